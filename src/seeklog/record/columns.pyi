from collections.abc import Callable, Sequence
from typing import Any, final

@final
class Memory:
    def __init__(self, allocate: Callable[[int], Any], size: int) -> None: ...

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
        expected: int = -1,
        allocate: Callable[[int], Any] = ...,
    ) -> None: ...
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
    def add_file(
        self,
        descriptor: int,
        room: Memory,
        position: int,
        end: int,
        next_offset: int,
        contiguous: bool,
        start: int,
        stop: int,
    ) -> tuple[int, int, bool]: ...
    def finish(self) -> dict[str, Any]: ...

def filled_lists(ends: Any, rows: int) -> tuple[int, bytearray]: ...
