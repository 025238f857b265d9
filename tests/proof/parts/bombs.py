"""Target 13: batches that would expand past `max_decompressed_bytes`, at every entry point that opens a batch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proof.bombing import DOORS, PEERS
from proof.part import Missing, Run, part
from record.batches import HEADER, batch_of, seal
from record.bombs import BOMBS, LIMIT, MIB, SLACK

if TYPE_CHECKING:
    from collections.abc import Mapping

# The refusals of a bomb. Many blocks that hold nothing may count as an empty body.
REFUSED: Final = ("FormatError", "CorruptBatch", "expands past", "damaged", "cannot hold", "overruns", "cannot fit")
# These only read the headers of batches.
NEVER_OPEN: Final = ("repair",)
HONEST: Final = {"gzip, honest": "gzip", "snappy, xerial": "snappy", "lz4, honest": "lz4", "zstd, honest": "zstd"}


@part(
    13,
    "Feed decompression bombs of four codecs to every entry point; memory stays within the limit and 16 MiB",
    covers=("cli.verbs.reading", "log"),
)
def bombs(run: Run) -> None:
    if not Path("/proc/self/status").exists():
        raise Missing("/proc: the peak of a process's memory is read there")
    most = slowest = 0.0
    cases = [(name, door) for name in BOMBS for door in DOORS]
    for name, door in run.choose(cases, short=3):
        run.case()
        outcome, grown, seconds = bomb(run, door, batch_with(name))
        most, slowest = max(most, grown / MIB), max(slowest, seconds)
        if grown > LIMIT + SLACK:
            run.violation(f"{name} by {door}: grew by {grown / MIB:.0f} MiB")
        if not any(word in outcome for word in REFUSED) and door not in NEVER_OPEN:
            run.violation(f"{name} by {door}: {outcome[:200]}")
    run.note(f"{len(BOMBS)} bombs, {len(DOORS)} entry points; at most {most:.0f} MiB and {1000 * slowest:.0f} ms")
    if not run.is_short:
        for peer in PEERS:
            run.peer(peer, f"grows by {peer_growth(run, peer)}")


def peer_growth(run: Run, peer: str) -> str:
    """Return by how much a peer grows with a valid bomb of each codec."""
    grown = {codec: bomb(run, peer, batch_with(name))[1] // MIB for name, codec in HONEST.items()}
    return describe(grown)


def describe(grown: Mapping[str, int]) -> str:
    return ", ".join(f"{size:,} MiB ({codec})" for codec, size in grown.items())


def batch_with(name: str) -> bytes:
    """Return a whole batch whose records are a bomb."""
    codec, make = BOMBS[name]
    body = make()
    raw = batch_of(b"", attributes=codec, record_count=1, batch_length=HEADER.size - 12 + len(body))
    return seal(raw + body)


def bomb(run: Run, door: str, batch: bytes) -> tuple[str, int, float]:
    """Give a batch to an entry point in a separate process. Return the outcome, the growth and the time."""
    directory = run.scratch / "log" / "orders-0"
    shutil.rmtree(directory.parent, ignore_errors=True)
    script = Path(__file__).parents[1] / "bombing.py"
    command = [sys.executable, str(script), door, str(directory)]
    child = subprocess.run(command, input=batch, capture_output=True, check=False)
    if child.returncode:
        return f"the process died: {child.stderr[-300:].decode(errors='replace')}", 0, 0.0
    outcome, grown, seconds = json.loads(child.stdout.splitlines()[-1])
    return str(outcome), int(grown), float(seconds)
