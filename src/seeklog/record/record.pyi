from typing import Final, final

from seeklog.errors import InvalidRecord
from seeklog.record import Bytes, Headers

@final
class Record:
    def __init__(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Headers = (),
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

def invalid_headers(fact: str) -> InvalidRecord: ...
def make_record(
    value: Bytes | None,
    key: Bytes | None,
    headers: Headers,
    timestamp_ms: int | None,
    offset: int,
    source: tuple[str, int] | None,
) -> Record: ...
