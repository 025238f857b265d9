"""Opening a clean log of many segments: the time and the additional memory, in a new process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figures.opened import open_in_child
from bench.row import Row, Unit
from bench.workload import CYCLE, RECORDS_PER_16KB_BATCH, encoded_cycle
from seeklog import Log, LogConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Bench

BATCHES_PER_SEGMENT = 4


def measure(bench: Bench) -> Iterator[Row]:
    segments = bench.scale.segments
    cycle = encoded_cycle(RECORDS_PER_16KB_BATCH)
    piece = cycle[: len(cycle) // (CYCLE // RECORDS_PER_16KB_BATCH) * BATCHES_PER_SEGMENT]
    with bench.directory("open-seeklog") as path:
        # Each piece fills a segment, so that the next piece rolls.
        with Log(path, config=LogConfig(flush="os", segment_bytes=len(piece))) as log:
            for _ in range(segments):
                log.append_batches(piece)
        segment_count = len(list(path.glob("*.log")))
        opens = [open_in_child(path) for _ in range(2 * bench.scale.repetitions)]
    work = f"open a clean log of {segment_count:,} segments"
    yield Row(work=work, figure=min(opened.seconds for opened in opens) * 1e3, unit=Unit.MILLISECONDS, target=50)
    yield Row(
        work=f"{work}, additional memory",
        figure=max(opened.grown_bytes for opened in opens) / 1e6,
        unit=Unit.MEGABYTES,
        target=30,
    )
