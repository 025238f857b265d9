from collections.abc import Callable
from typing import Protocol, final

from seeklog.record.offset_map import OffsetMap

_Judge = Callable[[int, int, int, int, int], bool]

class _LastOffsets(Protocol):
    def get(self, producer_id: int, default: int, /) -> int: ...

@final
class BatchFilter:
    def __init__(
        self,
        offset_map: OffsetMap,
        *,
        now_ms: int,
        delete_retention_ms: int,
        last_offsets: _LastOffsets,
        last_epochs: _LastOffsets,
        limit: int,
        judge: _Judge,
    ) -> None: ...
    @property
    def records_read(self) -> int: ...
    @property
    def records_kept(self) -> int: ...
    @property
    def keyless(self) -> int: ...
    @property
    def changed(self) -> bool: ...
    def begin(self) -> None: ...
    def finish(self) -> None: ...
    def add_batches(self, data: bytes, at: int, origin: int) -> int: ...
    def take(self) -> bytes: ...
