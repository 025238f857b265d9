"""The compiled modules and their interpreted sources in one process, every reader of batches, and results of calls."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from record.batches import INT32_MAX, INT64_MAX, IS_COMPILED, LIMIT, RULES, SMALL_ROWS, Sketch, T
from record.columns import ALL
from seeklog.errors import SeeklogError
from seeklog.record.interpreted import CIMPORTS, PACKAGE, InterpretedFinder, install

ROOT: Final = Path(__file__).resolve().parents[2]


def compiled_modules() -> tuple[str, ...]:
    """Return the names of the modules that setup.py compiles."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODULES":
            names: tuple[str, ...] = ast.literal_eval(node.value)
            return names
    raise AssertionError("setup.py has no MODULES")


def kernel_of(modules: list[ModuleType]) -> Any:
    """Return one namespace with the public names of all compiled modules."""
    names = {name: value for module in modules for name, value in vars(module).items() if name[0] != "_"}
    return SimpleNamespace(modules=tuple(modules), **names)


# The form that runs here: compiled, or with SEEKLOG_PURE=1 interpreted.
KERNEL: Final = kernel_of([importlib.import_module(name) for name in compiled_modules()])


@cache
def load_twin(*, loader: Any = SourceFileLoader) -> Any:
    """Return the modules in the form that is not running here; None if they are not compiled."""
    with _others(loader):
        modules = [importlib.import_module(name) for name in compiled_modules()]
    is_other = all(str(module.__file__).endswith(".py") == IS_COMPILED for module in modules)
    return kernel_of(modules) if is_other else None


@contextmanager
def _others(loader: Any) -> Iterator[None]:
    """Make imports find the other form of the compiled modules; the running form is restored afterwards."""
    names = compiled_modules()
    finders = list(sys.meta_path)
    running = {name: sys.modules[name] for name in names}
    aliases = {name: module for name, module in sys.modules.items() if name.startswith(CIMPORTS + PACKAGE)}
    for name in (*running, *aliases):
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in finders if not isinstance(finder, InterpretedFinder)]
    try:
        if IS_COMPILED:
            install(InterpretedFinder(loader))
        yield
    finally:
        sys.meta_path[:] = finders
        for name in [name for name in sys.modules if name.startswith(CIMPORTS + PACKAGE)]:
            del sys.modules[name]
        sys.modules.update({**running, **aliases})
        for name, module in running.items():
            room, _, last = name.rpartition(".")
            setattr(sys.modules[room], last, module)


def plain(value: Any) -> Any:
    """Return a result without the twins' own classes: records become tuples."""
    if type(value).__name__ == "Record":
        return ("record", value.offset, value.timestamp_ms, value.key, value.value, value.headers)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


def outcome_of(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or all details of the declared error that it raised."""
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
    """Pass the batches through the filter of compaction, with a map that contains the keys of a valid batch."""
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
    """Check the keys of already checked batches, as an append does."""
    module.check_batches(raw, INT32_MAX)
    return module.check_keyed(raw, LIMIT)


def never(*_: int) -> bool:
    return False


# Contains the keys of the small batch once more, after it.
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
