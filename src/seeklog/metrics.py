"""What a store counts: sections of counters, gauges and histograms, as a dict and in Prometheus' text format.

A section belongs to one part of the engine. That part changes it in its only thread, or under a lock that it holds for
its own work. So sections have no locks. A reader takes none either: it may see an event in one number, and not yet in
another.

A histogram has fixed buckets. The first holds values below 10 µs; each bound is twice the one before, the last 84 s.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

Kind = Literal["counter", "gauge", "histogram"]

_UNITS_PER_SECOND: Final = 100_000
# More than the bits of any duration: 2^63 units are 2.9 million years.
_SLOTS: Final = 64
BOUNDS_S: Final[tuple[float, ...]] = tuple((1 << number) / _UNITS_PER_SECOND for number in range(24))
"""The upper bounds of the buckets in seconds, exclusive. One more bucket holds everything above the last."""


class Histogram:
    """How often something took how long."""

    __slots__ = ("counts", "max", "sum")

    def __init__(self) -> None:
        self.counts = [0] * _SLOTS
        self.sum = 0.0
        self.max = 0.0

    def observe(self, seconds: float) -> None:
        # The number of bits is the logarithm to base 2: no search for the bucket, and no look at the last bound.
        self.counts[int(seconds * _UNITS_PER_SECOND).bit_length()] += 1
        self.sum += seconds
        if seconds > self.max:
            self.max = seconds

    def add(self, other: Histogram) -> None:
        if other.sum or any(other.counts):
            self.counts = [own + added for own, added in zip(self.counts, other.counts, strict=True)]
            self.sum += other.sum
            self.max = max(self.max, other.max)

    def quantile(self, share: float) -> float:
        """Return an upper bound of a quantile: at most twice its value."""
        left = share * sum(self.counts)
        for bound, count in zip(BOUNDS_S, self.counts, strict=False):
            left -= count
            if left <= 0:
                return min(bound, self.max)
        return self.max

    def as_dict(self) -> dict[str, Any]:
        counts = [*self.counts[: len(BOUNDS_S)], sum(self.counts[len(BOUNDS_S) :])]
        buckets = [[bound, count] for bound, count in zip((*BOUNDS_S, None), counts, strict=True) if count]
        return {
            "count": sum(self.counts),
            "sum": self.sum,
            "max": self.max,
            "p50": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "buckets": buckets,
        }


class Definition(NamedTuple):
    """What a number of a section is."""

    kind: Kind
    meaning: str
    kafka: str
    """The name of Kafka's metric, or nothing."""
    takes_max: bool = False
    """Whether the sum of two sections has the larger number, not the sum."""


def _counter(meaning: str, kafka: str = "") -> Any:
    return Definition("counter", meaning, kafka)


def _gauge(meaning: str, kafka: str = "", *, takes_max: bool = False) -> Any:
    return Definition("gauge", meaning, kafka, takes_max)


def _histogram(meaning: str, kafka: str = "") -> Any:
    return Definition("histogram", meaning, kafka)


class Section:
    """Numbers about one subject. Two sections of a kind can be added."""

    # Not a dataclass: a dozen of them would add some milliseconds to every import.
    definitions: ClassVar[Mapping[str, Definition]] = {}

    def __init_subclass__(cls) -> None:
        cls.definitions = {name: value for name, value in vars(cls).items() if isinstance(value, Definition)}

    def __init__(self) -> None:
        for name, definition in self.definitions.items():
            setattr(self, name, Histogram() if definition.kind == "histogram" else 0)

    def add(self, other: Self) -> None:
        """Add the numbers of another section."""
        own = vars(self)
        for name, added in vars(other).items():
            if isinstance(added, Histogram):
                own[name].add(added)
            elif added:
                own[name] = max(own[name], added) if self.definitions[name].takes_max else own[name] + added

    def as_dict(self) -> dict[str, Any]:
        return {
            name: number.as_dict() if isinstance(number, Histogram) else number for name, number in vars(self).items()
        }


class LogSection(Section):
    records_in: int = _counter("Records appended.", "MessagesInPerSec")
    batches_in: int = _counter("Batches appended.")
    bytes_in: int = _counter("Bytes of those batches in the log, as compressed.", "BytesInPerSec")
    opens: int = _counter("Logs opened for writing.")
    rolls: int = _counter("Segments started because the one before was full, old, or rolled on request.")
    flush_seconds: Histogram = _histogram(
        "Syncs of a log's data: each makes all records appended before it durable.", "LogFlushRateAndTimeMs"
    )
    recovery_seconds: Histogram = _histogram(
        "Opens for which segments had to be scanned: the log was not closed cleanly, or a broker wrote it."
    )
    cut_bytes: int = _counter("Bytes that recovery cut off and kept in `.torn` files.")
    failures: int = _counter("Writes, syncs and other changes that failed a log: it must then be reopened.")
    full_disk_errors: int = _counter("Appends and rolls refused because the disk was full.")


class RetentionSection(Section):
    deleted_segments: int = _counter("Segments deleted at the start of a log, by retention or `delete_before`.")
    deleted_bytes: int = _counter("Bytes of those segments.")


class CompactionSection(Section):
    seconds: Histogram = _histogram("Compactions of a log that found something to do.", "max-clean-time-secs")
    failures: int = _counter("Compactions that ended with an error.")
    bytes_before: int = _counter("Bytes of the segments that they examined.")
    bytes_after: int = _counter("Bytes that they kept of those.", "cleaner-recopy-percent")
    records_before: int = _counter("Records in the segments that they examined.")
    records_after: int = _counter("Records that they kept of those.")


class OffsetsSection(Section):
    """The offsets of one partition that is open for writing."""

    log_start_offset: int = _gauge("The first offset that the log holds.", "LogStartOffset")
    high_watermark: int = _gauge("The end of the records that readers see.")
    log_end_offset: int = _gauge("The offset that the next record gets.", "LogEndOffset")
    recovery_point: int = _gauge("The offset below which every record is durable.")
    size_bytes: int = _gauge("The bytes of all segments.", "Size")
    segments: int = _gauge("The segments of the log.", "NumLogSegments")


class MaintenanceSection(Section):
    seconds: Histogram = _histogram("Rounds of rolling, retention, compaction and key indexes over all partitions.")
    failures: int = _counter("Rounds in which at least one partition raised an error.")


class FilesSection(Section):
    open_files: int = _gauge("Files of logs that are open, with the mapped ones.")
    mapped_files: int = _gauge("Key indexes that are mapped into memory.")
    open_logs: int = _gauge("Logs that are open for writing.")
    open_segments: int = _gauge("Segments that have a file or an index open for reading.")


class CatalogSection(Section):
    topics: int = _gauge("Topics, with Kafka's internal ones.", "GlobalTopicCount")
    partitions: int = _gauge("Partitions of those topics.", "GlobalPartitionCount")
    changes: int = _counter("Changes of topics that this process wrote to the catalog.")


class ProducerSection(Section):
    producers: int = _gauge("Producers that are open.")
    records_sent: int = _counter("Records written.", "record-send-total")
    record_errors: int = _counter("Records whose future has an error.", "record-error-total")
    batches: int = _counter("Batches taken from the buffer, whether or not they could be written.")
    queue_seconds: Histogram = _histogram(
        "Batches in the buffer, from the first record to the start of the append.", "record-queue-time-avg"
    )
    append_seconds: Histogram = _histogram(
        "Rounds of the sending thread: appending the batches that were ready and, with `flush=batch`, their sync.",
        "request-latency-avg",
    )
    wait_seconds: Histogram = _histogram(
        "Calls of `send` that waited for a full buffer.", "bufferpool-wait-time-ns-total"
    )
    buffered_bytes: int = _gauge("Bytes in the buffers.")
    buffer_bytes: int = _gauge("The size of the buffers: the sum of `buffer_bytes`.", "buffer-total-bytes")


class ConsumerSection(Section):
    consumers: int = _gauge("Consumers that are open.")
    records_consumed: int = _counter("Records returned by `poll` and iteration.", "records-consumed-total")
    records_failed: int = _counter("Records that could not be deserialized, each time that one was met.")
    dead_letters: int = _counter("Records of those that were appended to a dead-letter topic.")
    fetches: int = _counter("Reads of a partition that returned records.", "fetch-total")
    rebalances: int = _counter("Changes of the partitions assigned to a member of a group.", "rebalance-total")
    offset_resets: int = _counter("Positions moved because the log no longer held them.")
    assigned_partitions: int = _gauge("Partitions assigned to the consumers.", "assigned-partitions")
    records_lag: int = _gauge("Records between the positions of the consumers and the high watermarks they know.")
    records_lag_max: int = _gauge("The largest lag of a consumer in a partition.", "records-lag-max", takes_max=True)


class GroupSection(Section):
    commit_seconds: Histogram = _histogram("Commits of offsets, each durable at its end.", "commit-latency-avg")
    commit_failures: int = _counter("Commits that raised an error.")


class LagSection(Section):
    """The lag of one group."""

    members: int = _gauge("Members that are alive.")
    partitions: int = _gauge("Partitions with a committed offset or a member.")
    records_lag: int = _gauge("Records between the committed offsets and the high watermarks.", "records-lag")
    records_lag_max: int = _gauge("The largest lag of a partition.", "records-lag-max", takes_max=True)


TOTALS: Final[Mapping[str, type[Section]]] = {
    "log": LogSection,
    "retention": RetentionSection,
    "compaction": CompactionSection,
    "maintenance": MaintenanceSection,
    "files": FilesSection,
    "catalog": CatalogSection,
    "producer": ProducerSection,
    "consumer": ConsumerSection,
    "group": GroupSection,
}
"""The sections that are always there, by their keys."""
OF_TOPIC: Final[Mapping[str, type[Section]]] = {name: TOTALS[name] for name in ("log", "retention", "compaction")}
OF_PARTITION: Final[Mapping[str, type[Section]]] = {**OF_TOPIC, "offsets": OffsetsSection}
OF_GROUP: Final[Mapping[str, type[Section]]] = {"lag": LagSection}

AnySection = TypeVar("AnySection", bound=Section)
Gauges = TypeVar("Gauges", bound=Section, covariant=True)


class Measured(Protocol[Gauges]):
    def gauges(self) -> Gauges:
        """Return the numbers of the present moment alone."""
        ...


class Family(Generic[AnySection]):
    """Objects that come and go, such as producers, and what all of them have counted. Thread-safe.

    The sum keeps the numbers of objects that have ended, so its counters never fall.
    """

    def __init__(self, kind: type[AnySection]) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._members: weakref.WeakSet[Measured[AnySection]] = weakref.WeakSet()
        self._live: list[AnySection] = []
        self._past = kind()
        # `retire` may run in the garbage collector, in a thread that holds the lock.
        self._retired: deque[AnySection] = deque()

    def new(self) -> AnySection:
        """Return a section for a new object, whose threads alone change it."""
        section = self._kind()
        with self._lock:
            self._settle()
            self._live.append(section)
        return section

    def retire(self, section: AnySection) -> None:
        """Keep the numbers of an object that has ended, and not the section. Only once for each."""
        self._retired.append(section)

    def add(self, member: Measured[AnySection]) -> None:
        """Add an object whose gauges are part of the sum, as long as it exists."""
        with self._lock:
            self._members.add(member)

    def total(self) -> AnySection:
        total = self._kind()
        with self._lock:
            self._settle()
            for section in (self._past, *self._live):
                total.add(section)
            members = list(self._members)
        for member in members:
            total.add(member.gauges())
        return total

    def _settle(self) -> None:
        while self._retired:
            section = self._retired.popleft()
            if section in self._live:  # not one of the parent of this forked process
                self._live.remove(section)
                self._past.add(section)

    def abandon(self) -> None:
        """Start from zero in a forked child. A thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self._live, self._past = [], self._kind()
        self._members = weakref.WeakSet()


# ---------------------------------------------------------------- Prometheus


def prometheus_text(metrics: Mapping[str, Any]) -> str:
    """Return what `Store.metrics` or `Log.metrics` returned in Prometheus' text format, version 0.0.4.

    Totals are called `seeklog_log_records_in_total`; those of a topic
    `seeklog_topic_log_records_in_total`, with a label.
    """
    families: dict[str, list[str]] = {}
    for name, section in TOTALS.items():
        if name in metrics:
            _render(families, f"seeklog_{name}", section, metrics[name], {})
    for topic, sections in metrics.get("by_topic", {}).items():
        for name, section in OF_TOPIC.items():
            _render(families, f"seeklog_topic_{name}", section, sections[name], {"topic": topic})
    for partition, sections in metrics.get("by_partition", {}).items():
        topic, _, number = partition.rpartition("-")
        for name, section in OF_PARTITION.items():
            if name in sections:
                labels = {"topic": topic, "partition": number}
                _render(families, f"seeklog_partition_{name}", section, sections[name], labels)
    for group, sections in metrics.get("by_group", {}).items():
        for name, section in OF_GROUP.items():
            _render(families, f"seeklog_group_{name}", section, sections[name], {"group": group})
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def _render(
    families: dict[str, list[str]],
    prefix: str,
    section: type[Section],
    numbers: Mapping[str, Any],
    labels: Mapping[str, str],
) -> None:
    for name, definition in section.definitions.items():
        family = f"{prefix}_{name}" + ("_total" if definition.kind == "counter" else "")
        lines = families.get(family)
        if lines is None:
            lines = families[family] = [f"# HELP {family} {definition.meaning}", f"# TYPE {family} {definition.kind}"]
        if definition.kind == "histogram":
            lines += _histogram_lines(family, numbers[name], labels)
        else:
            lines.append(f"{family}{_labelled(labels)} {numbers[name]}")


def _histogram_lines(family: str, histogram: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[str]:
    counts = dict(histogram["buckets"])
    below = 0
    for bound in BOUNDS_S:
        below += counts.get(bound, 0)
        yield f"{family}_bucket{_labelled({**labels, 'le': repr(bound)})} {below}"
    yield f"{family}_bucket{_labelled({**labels, 'le': '+Inf'})} {histogram['count']}"
    yield f"{family}_sum{_labelled(labels)} {histogram['sum']}"
    yield f"{family}_count{_labelled(labels)} {histogram['count']}"


def _labelled(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
