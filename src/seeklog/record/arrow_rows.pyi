from mmap import mmap
from typing import Final, final

from seeklog.record.growing import GrowingBatch

_Buffer = bytes | bytearray | memoryview | mmap

class ArrowColumn:
    rows: Final[int]

@final
class ArrowBytes(ArrowColumn):
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
class ArrowInts(ArrowColumn):
    def __init__(self, rows: int, *, offset: int, wide: bool, valid: _Buffer | None, data: _Buffer | None) -> None: ...

@final
class ArrowHeaders:
    rows: Final[int]
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
    rows: Final[int]
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
    def gather(
        self,
        selection: ArrowInts | None,
        start: int,
        stop: int,
        now_ms: int,
        batch_bytes: int,
        limit: int,
    ) -> tuple[GrowingBatch, int]: ...
    def scatter(
        self, partitions: ArrowInts, start: int, now_ms: int, batches: list[GrowingBatch], batch_bytes: int
    ) -> tuple[int, int]: ...

def partitions_of(keys: ArrowBytes, count: int) -> bytearray: ...
def group_rows(partitions: ArrowInts, count: int) -> tuple[bytearray, list[int]]: ...
