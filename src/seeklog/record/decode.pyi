from collections.abc import Callable

from seeklog.record.record import Record

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
def read_control_record(data: bytes, limit: int) -> Record: ...
def check_keyed(data: bytes, limit: int) -> None: ...
def check_timestamps(data: bytes, limit: int, check: Callable[[int | None, int], object]) -> None: ...
