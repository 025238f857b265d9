from typing import Final, final

from seeklog.record.record import Record

FIRST_ROOM: Final[int]

@final
class GrowingBatch:
    size: Final[int]
    count: Final[int]
    base_timestamp: Final[int]
    min_timestamp: Final[int]
    max_timestamp: Final[int]
    has_null_key: Final[bool]
    def add(self, record: Record, now_ms: int, limit: int) -> int: ...
    def finish(
        self, now_ms: int, base_offset: int, leader_epoch: int, attributes: int, producer: tuple[int, int, int]
    ) -> bytes: ...
    def records(self) -> list[Record]: ...
    def split(self) -> tuple[GrowingBatch, GrowingBatch]: ...

def finish_batches(
    batches: list[GrowingBatch],
    now_ms: int,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    producer: tuple[int, int, int],
) -> tuple[bytes, int, int]: ...
