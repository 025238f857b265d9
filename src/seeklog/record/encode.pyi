from collections.abc import Callable
from typing import TypeAlias

from seeklog.record import Bytes, Headers
from seeklog.record.record import Record

_TimestampCheck: TypeAlias = tuple[int, int, Callable[[int | None, int], object] | None]

NO_CHECK: _TimestampCheck

def bytes_of(field: object) -> str: ...
def checked_key(key: object) -> bytes: ...
def record_bound(record: Record) -> int: ...
def encode_headers(headers: tuple[tuple[str, bytes | None], ...]) -> bytes: ...
def encode_one(
    value: Bytes | None,
    key: Bytes | None,
    headers: Headers,
    timestamp_ms: int | None,
    now_ms: int,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    timestamps: _TimestampCheck = ...,
) -> bytes: ...
def encode_records(
    records: list[Record],
    now_ms: int,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    producer: tuple[int, int, int],
    timestamps: _TimestampCheck = ...,
) -> bytes: ...
def stamp(raw: bytes, base_offset: int, leader_epoch: int) -> bytes: ...
def stamp_append_time(raw: bytes, now_ms: int) -> bytes: ...
