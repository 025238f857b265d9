"""Workloads of many pages, because file systems treat files of one page specially."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from crash.recorder import NEW_DISK
from crash.workloads import Workload
from seeklog import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from crash.recorder import Recorder

LARGE: Final[dict[str, Any]] = {"segment_bytes": 100_000, "index_interval_bytes": 4096, "retention_ms": -1}
SIZES: Final = (300, 4000, 4000, 25_000)  # below a page, about one, some

LARGE_WORKLOADS: Final[dict[str, Workload]] = {}


def workload(name: str, **settings: object) -> Callable[[Callable[[Recorder], None]], Callable[[Recorder], None]]:
    """Add a function to the table of large workloads, with its configuration."""

    def enter(run: Callable[[Recorder], None]) -> Callable[[Recorder], None]:
        LARGE_WORKLOADS[name] = Workload(name, LogConfig.from_mapping({**LARGE, **settings}), run, NEW_DISK)
        return run

    return enter


@workload("large appends, flush=os", flush="os")
@workload("large appends, flush=batch", flush="batch")
@workload("large appends, lz4", flush="os", compression_type="lz4")
def large_appends(on: Recorder) -> None:
    """Segments are created and deleted, so that new files get blocks with old batches."""
    on.open()
    for number in range(36):
        on.append(on.chance.randbytes(on.chance.choice(SIZES)))
        if number % 11 == 7:
            on.flush()
        if number % 11 == 10:
            on.delete_before(on.log.log_end_offset - 4)
    on.truncate_to(max(on.first_batch, on.log.log_end_offset - 3))
    for _ in range(4):
        on.append(on.chance.randbytes(on.chance.choice(SIZES)))
    on.kill()
    on.open()
    on.append(on.chance.randbytes(4000))
    on.close()


@workload("large compaction", flush="os", cleanup_policy="compact")
@workload("large compaction, flush=batch", flush="batch", cleanup_policy="compact")
def large_compaction(on: Recorder) -> None:
    on.open()
    for _ in range(2):
        for _ in range(24):
            on.append(on.chance.randbytes(on.chance.choice(SIZES)), key=b"%d" % on.chance.randrange(6))
        on.flush()
        on.compact()
    on.append(on.chance.randbytes(4000), key=b"0")
    on.close()
