from collections.abc import Sequence
from typing import Final, final

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
    offset: Final[int]
    timestamp_ms: Final[int]
    key: Final[bytes | None]
    value: Final[bytes | None]
    headers: Final[tuple[tuple[str, bytes | None], ...]]
    topic: Final[str | None]
    partition: Final[int | None]
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
