"""Types of the compiled kernel. `stubtest` holds them against the module."""

from collections.abc import Sequence
from mmap import mmap
from typing import Any, Final, final

_Buffer = bytes | bytearray | memoryview | mmap

HEADER_SIZE: Final[int]
NO_TIMESTAMP: Final[int]
SECRET_SIZE: Final[int]
FIXED_SECRET: Final[bytes]

def crc32c(data: _Buffer, initial: int = 0) -> int: ...
def murmur2(key: bytes) -> int: ...
def partition_of(key: bytes, count: int) -> int: ...
def hash_key(key: bytes, secret: bytes = ...) -> tuple[int, int]: ...

@final
class Record:
    def __init__(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        offset: int = -1,
    ) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def partition(self) -> int | None: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

def make_record(
    value: bytes | None,
    key: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    timestamp_ms: int | None,
    offset: int,
    source: tuple[str, int] | None,
) -> Record: ...
def record_bound(record: Record) -> int: ...
def encode_headers(headers: tuple[tuple[str, bytes | None], ...]) -> bytes: ...
def encode_one(
    value: bytes | None,
    key: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    timestamp_ms: int | None,
    now_ms: int,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
) -> bytes: ...
def encode_records(
    records: list[Record],
    now_ms: int,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    producer: tuple[int, int, int],
) -> bytes: ...
def stamp(raw: bytes, base_offset: int, leader_epoch: int) -> bytes: ...
def stamp_append_time(raw: bytes, now_ms: int) -> bytes: ...
def read_header(
    data: bytes, at: int, origin: int
) -> tuple[int, int, int, int, int, int, int, int, int, int, int, int]: ...
def check_batches(data: bytes, max_batch_bytes: int) -> tuple[int, int]: ...
def has_producers(data: bytes, end: int) -> bool: ...
def skip_batches(
    data: bytes, at: int, origin: int, next_offset: int, target: int, contiguous: bool
) -> tuple[int, int, int]: ...
def walk_batches(data: bytes, next_offset: int, contiguous: bool) -> tuple[int, int]: ...
def entry_base(data: bytes, last_offset: int, exact: bool) -> int: ...
def count_whole_batches(data: bytes) -> tuple[int, int]: ...
def take_batches(
    data: bytes,
    at: int,
    origin: int,
    next_offset: int,
    contiguous: bool,
    stop: int,
    max_bytes: int,
    at_least_one: bool,
    verify: bool,
) -> tuple[int, int, bool]: ...
def find_time(data: bytes, at: int, origin: int, timestamp_ms: int) -> tuple[int, bool]: ...
def read_records(
    data: bytes,
    at: int,
    origin: int,
    next_offset: int,
    contiguous: bool,
    start: int,
    stop: int,
    max_records: int,
    enough_records: int,
    enough_bytes: int,
    limit: int,
    out: list[Record],
    source: tuple[str, int] | None = None,
) -> tuple[int, int, int]: ...

@final
class BytesColumn:
    def __init__(self, rows: int, data_bytes: int) -> None: ...

@final
class Columns:
    @property
    def rows(self) -> int: ...
    def __init__(
        self,
        columns: Sequence[str],
        *,
        rows: int,
        data_bytes: int,
        limit: int,
        timestamp_scale: int,
    ) -> None: ...
    def allocate(self, rows: int, data_bytes: int) -> None: ...
    def make_room(self, count: int, size: int) -> bool: ...
    def add(
        self,
        data: bytes,
        at: int,
        origin: int,
        next_offset: int,
        contiguous: bool,
        start: int,
        stop: int,
    ) -> tuple[int, int, bool]: ...
    def finish(self) -> dict[str, Any]: ...

def filled_lists(ends: bytearray, rows: int) -> tuple[int, bytearray]: ...

@final
class ArrowBytes:
    @property
    def rows(self) -> int: ...
    def __init__(
        self,
        rows: int,
        *,
        offset: int,
        wide: bool,
        valid: _Buffer | None,
        ends: _Buffer | None,
        data: _Buffer | None,
    ) -> None: ...

@final
class ArrowInts:
    @property
    def rows(self) -> int: ...
    def __init__(self, rows: int, *, offset: int, wide: bool, valid: _Buffer | None, data: _Buffer | None) -> None: ...

@final
class ArrowHeaders:
    @property
    def rows(self) -> int: ...
    def __init__(
        self,
        rows: int,
        *,
        offset: int,
        wide: bool,
        valid: _Buffer | None,
        ends: _Buffer | None,
        pair_offset: int,
        pair_valid: _Buffer | None,
        keys: ArrowBytes,
        values: ArrowBytes,
    ) -> None: ...

@final
class ArrowRows:
    @property
    def rows(self) -> int: ...
    def __init__(
        self,
        rows: int,
        *,
        key: ArrowBytes | None = None,
        value: ArrowBytes | None = None,
        timestamp: ArrowInts | None = None,
        headers: ArrowHeaders | None = None,
        micros: bool = False,
    ) -> None: ...
    def encode(
        self,
        selection: ArrowInts | None,
        start: int,
        stop: int,
        now_ms: int,
        codec: int,
        batch_bytes: int,
        limit: int,
    ) -> tuple[bytes, int]: ...

def partitions_of(keys: ArrowBytes, count: int) -> bytearray: ...
def group_rows(partitions: ArrowInts, count: int) -> tuple[bytearray, list[int]]: ...

@final
class SegmentState:
    def __init__(
        self,
        base_offset: int,
        *,
        interval_bytes: int,
        interval_records: int,
        segment_bytes: int,
        segment_ms: int,
        segment_index_bytes: int,
    ) -> None: ...
    def must_roll_before(self, data: bytes) -> bool: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def batch_count(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def contiguous(self) -> bool: ...
    @property
    def first_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def offset_table(self) -> bytearray: ...
    @property
    def time_table(self) -> bytearray: ...
    @property
    def epochs(self) -> list[tuple[int, int]]: ...
    @property
    def problem(self) -> Any: ...
    def append(self, data: bytes) -> bool: ...
    def scan(self, data: bytes, contiguous_from: int) -> int: ...
    def save(self) -> tuple[int, ...]: ...
    def restore(self, saved: tuple[int, ...], offset_table: bytes, time_table: bytes) -> bool: ...
    def finish_times(self) -> None: ...

def floor_entry(table: _Buffer, entry_size: int, wide: bool, target: int) -> int: ...
def entries_around(table: _Buffer, target: int) -> tuple[int, int, int, int]: ...

FILTER_BLOCK_SIZE: Final[int]

def filter_block_count(count: int) -> int: ...

@final
class KeyTable:
    def __init__(self, base_offset: int) -> None: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def add(self, data: bytes, origin: int, contiguous: bool, stop: int, limit: int) -> int: ...
    def offset_of(self, first: int, second: int) -> int: ...
    def encode(self, head: bytes) -> bytearray: ...

@final
class KeyEntries:
    @property
    def count(self) -> int: ...
    def __init__(self, buffer: _Buffer, *, head_size: int, blocks: int, count: int) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    def may_hold(self, first: int) -> bool: ...
    def offsets_of(self, first: int) -> tuple[int, ...]: ...
