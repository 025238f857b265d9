"""The two kernels, compiled and interpreted, in one process; every reader of batches; and what came of a call."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from record.batches import INT32_MAX, INT64_MAX, IS_COMPILED, LIMIT, RULES, SMALL_ROWS, Sketch, T
from record.columns import ALL
from seeklog.errors import SeeklogError
from seeklog.record import kernel

DIRECTORY = Path(str(kernel.__file__)).parent


def find_twin() -> Path | None:
    """Return where the kernel that does not run lies: its source, or, where that runs, what it was compiled to."""
    if IS_COMPILED:
        return DIRECTORY / "kernel.py"
    built = (path for suffix in importlib.machinery.EXTENSION_SUFFIXES for path in DIRECTORY.glob(f"kernel{suffix}"))
    return next(built, None)


def load(path: Path, *, loader: Any = None) -> ModuleType:
    """Return the kernel at `path` under another name than the one that runs."""
    spec = importlib.util.spec_from_file_location("twin.kernel", path, loader=loader)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(value: Any) -> Any:
    """Return a result without the twins' own classes: records become tuples."""
    if type(value).__name__ == "Record":
        return ("record", value.offset, value.timestamp_ms, value.key, value.value, value.headers)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


def told(call: Callable[[], Any]) -> Any:
    """Return what a call gave, or the whole of the declared error that it raised."""
    try:
        return plain(call())
    except SeeklogError as error:
        return (type(error).__name__, str(error), getattr(error, "position", None))


def read_records(module: Any, raw: bytes, *, contiguous: bool, start: int, stop: int) -> Any:
    out: list[Any] = []
    end = module.read_records(raw, 0, 9, 40, contiguous, start, stop, 100, 100, 2**62, LIMIT, out)
    return end, out


def read_columns(module: Any, raw: bytes) -> Any:
    columns = module.Columns(ALL, rows=2, data_bytes=10, limit=LIMIT, timestamp_scale=1000)
    taken = columns.add(raw, 0, 9, 40, False, 0, INT64_MAX)
    return taken, columns.rows, columns.finish()


def scan(module: Any, raw: bytes) -> Any:
    state = module.SegmentState(0, **{**RULES, "interval_bytes": 0, "interval_records": 2})
    taken = state.scan(raw, INT64_MAX)
    state.finish_times()
    return taken, state.save(), state.epochs, bytes(state.offset_table), bytes(state.time_table), str(state.problem)


def collect_keys(module: Any, raw: bytes) -> Any:
    table = module.KeyTable(40)
    taken = table.add(raw, 9, False, INT64_MAX, LIMIT)
    return taken, table.count, table.next_offset, bytes(table.encode(b"head"))


def map_keys(module: Any, raw: bytes) -> Any:
    offset_map = module.OffsetMap(64, base_offset=0, secret=bytes(16))
    taken = offset_map.add_batches(raw, 0, 9, 0, LIMIT, never)
    return taken, offset_map.count, offset_map.latest_offset


def compact(module: Any, raw: bytes) -> Any:
    """Let the filter of compaction take the batches, with a map that knows the keys of a sound one."""
    offset_map = module.OffsetMap(64, base_offset=0, secret=bytes(16))
    offset_map.add_batches(LATER, 0, 0, 0, LIMIT, never)
    sieve = module.BatchFilter(
        offset_map,
        now_ms=T + 1,
        delete_retention_ms=1000,
        last_offsets={},
        last_epochs={},
        limit=LIMIT,
        judge=never,
    )
    sieve.begin()
    taken = sieve.add_batches(raw, 0, 9)
    sieve.finish()
    return taken, sieve.records_read, sieve.records_kept, sieve.keyless, sieve.changed, sieve.take()


def note_transactions(module: Any, raw: bytes) -> Any:
    noted: list[tuple[int, ...]] = []
    return module.note_transactions(raw, 0, 9, INT64_MAX, LIMIT, lambda *batch: noted.append(batch)), noted


def check_keyed(module: Any, raw: bytes) -> Any:
    """Ask for keys what has been checked before, as an append does."""
    module.check_batches(raw, INT32_MAX)
    return module.check_keyed(raw, LIMIT)


def never(*_: int) -> bool:
    return False


# Has the keys of the small batch once more, behind it.
LATER = Sketch(SMALL_ROWS, base_offset=400).encode()

READERS: dict[str, Callable[[Any, bytes], Any]] = {
    "keys": collect_keys,
    "offset map": map_keys,
    "compaction": compact,
    "transactions": note_transactions,
    "keyed": check_keyed,
    "records": lambda m, raw: read_records(m, raw, contiguous=False, start=0, stop=INT64_MAX),
    "a window of records": lambda m, raw: read_records(m, raw, contiguous=True, start=41, stop=43),
    "columns": read_columns,
    "scan": scan,
    "header": lambda m, raw: m.read_header(raw, 0, 9),
    "check": lambda m, raw: m.check_batches(raw, INT32_MAX),
    "producers": lambda m, raw: m.has_producers(raw, len(raw)),
    "skip": lambda m, raw: m.skip_batches(raw, 0, 9, 40, INT64_MAX, False),
    "skip contiguous": lambda m, raw: m.skip_batches(raw, 0, 9, 40, INT64_MAX, True),
    "walk": lambda m, raw: (m.walk_batches(raw, 40, True), m.walk_batches(raw, 40, False)),
    "take": lambda m, raw: m.take_batches(raw, 0, 9, 40, False, INT64_MAX, INT64_MAX, True, True),
    "time": lambda m, raw: m.find_time(raw, 0, 9, T + 1),
    "entry": lambda m, raw: (m.entry_base(raw, 43, True), m.entry_base(raw, 43, False)),
    "count": lambda m, raw: m.count_whole_batches(raw),
}
