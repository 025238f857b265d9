"""A store with a topic of several segments, and functions to damage it."""

from __future__ import annotations

from pathlib import Path

import seeklog
from cli.workbench import MORNING_MS

# A record takes about 100 bytes: three segments of about twenty records, each with index entries.
SMALL = {"segment.bytes": 2000, "index.interval.bytes": 300, "retention.ms": -1}
RECORDS = 50


def make_segments(path: Path, *, records: int = RECORDS) -> Path:
    """Create a store at `path` with one partition `orders-0` of three segments; return the partition's directory."""
    with seeklog.open(path, background=False) as made:
        made.create_topic("orders", partitions=1, config=SMALL)
        with made.writer("orders", 0) as log:
            for number in range(records):
                log.append(
                    b"order %d" % number, key=b"customer %d" % (number % 7), timestamp_ms=MORNING_MS + number * 60_000
                )
    return path / "orders-0"


def logs_of(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def flip(path: Path, position: int, *, mask: int = 0x01) -> None:
    """Flip bits of one byte of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def state_of(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory, to check that nothing changed."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
