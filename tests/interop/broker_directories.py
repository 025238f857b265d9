"""Data directories written by real Kafka brokers, and what clients read from those brokers.

`make_broker_golden.py` describes their content and creates them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

from seeklog import Log, LogConfig, LogReader

GOLDEN = Path(__file__).parent / "golden" / "broker"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))
LONGEST = 100  # make_broker_golden.py stores a digest of longer keys and values


@cache
def description(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return loaded


PARTITIONS = [(name, partition) for name in NAMES for partition in description(name)["partitions"]]


def unpack(root: Path) -> None:
    """Unpack every directory into `root`."""
    for name in NAMES:
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            archive.extractall(root, filter="data")


def open_log(path: Path, *, index_interval_bytes: int = 300) -> Log:
    # The broker's settings for these topics, without retention, as the records are years old.
    config = LogConfig(segment_bytes=12_000, index_interval_bytes=index_interval_bytes, retention_ms=-1, flush="os")
    return Log(path, config=config, background=False)


def open_reader(path: Path) -> LogReader:
    return LogReader(path, config=LogConfig(retention_ms=-1))


def encoded(data: bytes | None, *, whole: bool) -> Any:
    if data is None:
        return None
    if len(data) > LONGEST and not whole:
        return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return base64.b64encode(data).decode()


def rows(records: Any, partition: str) -> list[list[Any]]:
    """Return records in the form of the description, without timestamp types."""
    whole = partition.startswith("__")
    return [
        [
            record.offset,
            record.timestamp_ms,
            encoded(record.key, whole=whole),
            encoded(record.value, whole=whole),
            [[header, encoded(value, whole=False)] for header, value in record.headers],
        ]
        for record in records
    ]


def expected_rows(name: str, partition: str) -> list[list[Any]]:
    records = description(name)["partitions"][partition]["records"]
    return [[offset, timestamp, *rest] for offset, timestamp, _, *rest in records]


def facts(name: str, partition: str) -> dict[str, Any]:
    found: dict[str, Any] = description(name)["partitions"][partition]
    return found


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}
