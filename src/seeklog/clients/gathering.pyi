from asyncio import AbstractEventLoop, Event
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from threading import Condition
from typing import Any, Final, Generic, Self, TypeVar, final

from typing_extensions import disjoint_base

from seeklog.clients.bulk import SendManyFuture
from seeklog.clients.producer import Partitioner
from seeklog.clock import Clock
from seeklog.errors import SeeklogError
from seeklog.log import TimestampRule
from seeklog.names import RecordMetadata, TopicPartition
from seeklog.record import Bytes, Headers
from seeklog.record.growing import GrowingBatch
from seeklog.record.record import Record
from seeklog.topics.topics import Topics

_AnyRecord = TypeVar("_AnyRecord")

RECORD_OVERHEAD: Final[int]
FAR_BEHIND_BYTES: Final[int]

@final
class Lane:
    name: Final[str]
    destination: Any
    partition: Final[TopicPartition | None]
    number: Final[int]
    batch_bytes: int
    bulk_bytes: int
    gathering: Gathering | None
    failure: SeeklogError | None
    def __init__(
        self, name: str, destination: object, *, batch_bytes: int, partition: TopicPartition | None = None
    ) -> None: ...

@final
class Gathering:
    lane: Final[Lane]
    batch: Final[GrowingBatch]
    deadline: Final[float]
    delivery: Final[Delivery]
    def __init__(self, lane: Lane, deadline: float, batch: GrowingBatch | None = None) -> None: ...

class Delivery:
    arrivals: dict[AbstractEventLoop, Event]
    observed: set[int]
    offsets: Sequence[int]
    errors: Mapping[int, SeeklogError]
    def __init__(self) -> None: ...
    @property
    def is_done(self) -> bool: ...
    def finish(self, offsets: Sequence[int], errors: Mapping[int, SeeklogError]) -> None: ...
    def abandon(self, error: SeeklogError, count: int) -> None: ...
    def wait(self, timeout: float | None) -> None: ...
    def when_done(self, callback: Callable[[], object]) -> None: ...

@disjoint_base
class Future:
    def done(self) -> bool: ...
    def exception(self, timeout: float | None = None) -> SeeklogError | None: ...
    def add_done_callback(self, callback: Callable[[Self], object]) -> None: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...
    def _offset(self, timeout: float | None) -> int: ...

@final
class AppendFuture(Future):
    def result(self, timeout: float | None = None) -> int: ...
    def __await__(self) -> Generator[Any, Any, int]: ...

@final
class SendFuture(Future):
    @property
    def partition(self) -> int: ...
    def result(self, timeout: float | None = None) -> RecordMetadata: ...
    def __await__(self) -> Generator[Any, Any, RecordMetadata]: ...

@disjoint_base
class Gatherer:
    buffered: int
    buffer_bytes: int
    _refusal: SeeklogError | None
    _linger: float
    _lock: Any
    _ready: Condition
    _begun: deque[Gathering]
    _full: deque[Gathering]
    _outstanding: set[Gathering]
    def __init__(self, monotonic: Callable[[], float], *, linger_s: float, buffer_bytes: int) -> None: ...
    def put(
        self, lane: Lane, value: Bytes | None, key: Bytes | None, headers: Headers, timestamp: int
    ) -> AppendFuture: ...
    def put_batch(self, lane: Lane, batch: GrowingBatch) -> Delivery: ...
    def release(self, batches: Collection[Gathering]) -> None: ...

@final
class Route:
    topic: Final[str]
    version: Final[int]
    count: Final[int]
    needs_key: Final[bool]
    timestamps: Final[TimestampRule]
    lanes: Final[Mapping[int, Lane]]
    def __init__(
        self,
        topic: str,
        lanes: dict[int, Lane],
        *,
        count: int,
        version: int,
        needs_key: bool,
        timestamps: TimestampRule,
    ) -> None: ...
    def lane_to(self, partition: object) -> Lane: ...

@disjoint_base
class Intake:
    _sender: Any
    _routes: dict[str, Route]
    _topics: Topics
    _partition_of: Partitioner
    _now_ms: Callable[[], int]
    def __init__(self, sender: Gatherer, topics: Topics, *, partitioner: Partitioner, clock: Clock) -> None: ...
    def send(
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> SendFuture: ...
    def _route_of(self, topic: str) -> Route: ...
    def _send_each(
        self, topic: str, records: Iterable[Record], partition: int | None, sent: SendManyFuture
    ) -> None: ...

@disjoint_base
class AsyncIntake:
    sync: Any
    def __init__(self, sync: Intake) -> None: ...
    async def send(
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> SendFuture: ...

@final
class RecordStream(Generic[_AnyRecord]):
    records: Iterator[_AnyRecord]
    def __init__(self, refill: Callable[[], Awaitable[_AnyRecord]]) -> None: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> _AnyRecord: ...
