"""The consumer: reads topics from the offsets its group has committed, alone or sharing partitions with other members.

It keeps a position for each assigned partition: the offset of the next record to return. `poll` returns records and
advances the positions; a commit stores them for the group. Records returned before a call of `poll` count as processed
at that call, so an automatic commit covers them. After a crash of the consumer records may be read again, but none is
skipped.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypedDict, TypeVar

from seeklog.arguments import check_flags, check_offset, check_whole_number
from seeklog.clients.turns import Turns
from seeklog.clock import Clock, as_milliseconds, check_wait_ms, timeout_ms_in_s
from seeklog.config import INT32_MAX
from seeklog.errors import (
    CommitRefused,
    CorruptionError,
    LogClosed,
    NoOffset,
    OffsetOutOfRange,
    SeeklogError,
    TopicNotFound,
    UsageError,
)
from seeklog.files import Files
from seeklog.groups.groups import Groups, check_group_name, check_text
from seeklog.groups.membership import Membership
from seeklog.log import LogReader, find_offset_at_time
from seeklog.metrics import ConsumerSection, Family
from seeklog.names import TopicPartition
from seeklog.record.record import Record
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.topics import Topics

if TYPE_CHECKING:
    from datetime import datetime

logger = logging.getLogger("seeklog")

AutoOffsetReset = Literal["earliest", "latest", "error"]
Partitions = frozenset[TopicPartition]
Listener = Callable[[Partitions], object]

# How long a waiting `poll` sleeps between two looks at the partitions: at first, and at most. Where many partitions
# take longer to look at, it sleeps until the looks take a hundredth of the time.
MIN_PAUSE_S = 0.001
MAX_PAUSE_S = 0.02
MAX_PAUSE_SHARE = 99
# The same while every partition rests, and a change ends the sleep: for the changes of topics and groups.
MAX_REST_S = 0.25
NO_TIMEOUT_S = float("inf")
MAX_CLIENT_ID_BYTES = 1024
DEFAULT_POLL_RECORDS = 500


class Position:
    """The position of a consumer in one partition."""

    __slots__ = ("chunks", "end_offset", "fetched", "is_paused", "next_offset", "partition", "topic_id")

    def __init__(self, partition: TopicPartition, next_offset: int, *, topic_id: str) -> None:
        self.partition = partition
        self.topic_id = topic_id
        """The topic that the offsets belong to. A recreated topic has others."""
        self.next_offset = next_offset
        """The offset of the next record to return."""
        self.fetched: list[Record] = []
        """Records that were read but not returned yet, from `next_offset` on."""
        self.chunks: Iterator[list[Record]] | None = None
        """The records after those, up to `end_offset`, the high watermark when the scan began."""
        self.end_offset = next_offset
        self.is_paused = False

    def take(self, max_records: int) -> list[Record]:
        """Return and remove up to `max_records` fetched records."""
        taken = self.fetched
        if len(taken) > max_records:
            taken, self.fetched = taken[:max_records], taken[max_records:]
        else:
            self.fetched = []
        self.next_offset = taken[-1].offset + 1
        return taken

    def go_to(self, offset: int) -> None:
        self.next_offset = offset
        self.fetched = []
        self.chunks = None


def offset_from_time(log: LogReader, timestamp_ms: int) -> int:
    """Return the offset of the first record with a timestamp at or after a time, or the end of the log."""
    found = find_offset_at_time(log, timestamp_ms)
    return log.high_watermark if found is None else found


def _checked_partition(partition: object) -> TopicPartition:
    if not isinstance(partition, tuple) or len(partition) != 2:
        raise UsageError(f"a partition must be (topic, number), such as ('payments', 0), not {partition!r}")
    topic, number = partition
    return TopicPartition(topic, check_offset(number, name="the number of a partition"))


def _weak_listener(listener: Listener) -> Callable[[Partitions], None]:
    """Return a listener with a weak reference to its consumer, so that a dropped consumer can leave its group."""
    reference = weakref.WeakMethod(listener)

    def listen(partitions: Partitions) -> None:
        method = reference()
        if method is not None:
            method(partitions)

    return listen


class ConsumerOptions(TypedDict, total=False):
    """The options that do not change what a consumer returns, for type checkers."""

    group: str | None
    auto_offset_reset: AutoOffsetReset
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_records: int
    max_poll_interval_ms: int
    heartbeat_interval_ms: int
    consumer_timeout_ms: float | None
    client_id: str
    on_assign: Listener | None
    on_revoke: Listener | None


class HasOffset(Protocol):
    @property
    def offset(self) -> int: ...


AnyRecord = TypeVar("AnyRecord", bound=HasOffset)


class ConsumerBase(Generic[AnyRecord]):
    """Everything that a consumer does, whatever it makes of the records that it returns."""

    def __init__(
        self,
        topics: Topics,
        table: OpenLogs,
        groups: Groups,
        *,
        owner: object,
        family: Family[ConsumerSection],
        files: Files,
        clock: Clock,
        subscribed: Collection[str],
        group: str | None,
        auto_offset_reset: AutoOffsetReset,
        enable_auto_commit: bool,
        auto_commit_interval_ms: int,
        max_poll_records: int,
        max_poll_interval_ms: int,
        heartbeat_interval_ms: int,
        consumer_timeout_ms: float | None,
        client_id: str,
        on_assign: Listener | None,
        on_revoke: Listener | None,
    ) -> None:
        if auto_offset_reset not in ("earliest", "latest", "error"):
            raise UsageError(f'auto_offset_reset must be "earliest", "latest" or "error", not {auto_offset_reset!r}')
        for option, value in (
            ("max_poll_records", max_poll_records),
            ("max_poll_interval_ms", max_poll_interval_ms),
            ("heartbeat_interval_ms", heartbeat_interval_ms),
            ("auto_commit_interval_ms", auto_commit_interval_ms),
        ):
            check_whole_number(option, value, minimum=1, maximum=INT32_MAX)
        check_flags(enable_auto_commit=enable_auto_commit)
        if heartbeat_interval_ms > max_poll_interval_ms:
            raise UsageError("heartbeat_interval_ms must not be more than max_poll_interval_ms")
        timeout_s = timeout_ms_in_s("consumer_timeout_ms", consumer_timeout_ms)
        topics.refresh(at_once=True)
        for topic in subscribed:
            topics.find(topic)
        # The store must stay open for this consumer even if nothing else refers to it.
        self._owner = owner
        self._topics = topics
        self._table = table
        self._groups = groups
        self._clock = clock
        self._group = group
        self._polled_by: int | None = None
        """The thread that was last given records. Only a close in that thread may count them as processed."""
        self._checked_version = topics.version
        self._subscribed = frozenset(subscribed)
        self._reset_policy = auto_offset_reset
        self._auto_commits = enable_auto_commit and group is not None
        self._commit_interval_s = auto_commit_interval_ms / 1000
        self._next_commit = clock.monotonic() + self._commit_interval_s
        self._max_poll_records = max_poll_records
        self._timeout_s = NO_TIMEOUT_S if timeout_s is None else timeout_s
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._positions: dict[TopicPartition, Position] = {}
        self._chosen: Partitions = frozenset()
        """The partitions passed to `assign`. Those of a deleted topic are read again once it is recreated."""
        self._turns = Turns(topics.root, files=files, clock=clock)
        self._max_rest_s = min(MAX_REST_S, heartbeat_interval_ms / 1000)
        self._pause_s = MIN_PAUSE_S
        """How long the next sleep is. It grows until records are found, over several polls."""
        self._next_refresh = 0.0
        self._iterated: tuple[Position, list[AnyRecord], Iterator[AnyRecord]] | None = None
        self._closing = threading.Event()
        # Counted by the thread that uses the consumer.
        self._metrics = family.new()
        weakref.finalize(self, family.retire, self._metrics)
        self._version = -1
        self._join_count = 0
        self._membership: Membership | None = None
        if group is not None:
            check_group_name(group)
        check_text("client_id", client_id, max_bytes=MAX_CLIENT_ID_BYTES)
        if group is not None and subscribed:
            self._membership = Membership(
                groups,
                topics,
                files=files,
                clock=clock,
                group=group,
                subscribed=self._subscribed,
                client_id=client_id,
                heartbeat_interval_ms=heartbeat_interval_ms,
                max_poll_interval_ms=max_poll_interval_ms,
                on_revoke=_weak_listener(self._revoke),
            )
            self._membership.join()
        try:
            self._follow_assignment()
        except BaseException:
            # No caller gets this consumer, so none could close it. It must leave the group.
            self._close(commit=False)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception nothing is committed: the record that caused it must be read again.
        self._close(commit=kind is None)

    # ------------------------------------------------------------ partitions

    @property
    def assignment(self) -> Partitions:
        """The partitions assigned to this consumer."""
        return frozenset(self._positions)

    @property
    def member_id(self) -> str | None:
        """The consumer's member id in its group, or None."""
        return self._membership.member_id if self._membership is not None else None

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, regardless of other members. Only for a consumer without subscribed topics."""
        if self._subscribed:
            raise UsageError("a consumer with topics cannot use assign; create it without topics")
        self._check_open()
        chosen = frozenset(map(_checked_partition, partitions))
        self._topics.refresh(at_once=True)
        for partition in chosen:
            self._topics.check(partition)
        self._chosen = chosen
        self._assign(chosen)

    def _follow_assignment(self) -> None:
        """Update the positions to the current assignment."""
        if self._membership is not None:
            if self._has_rejoined:
                # Other members may have read further and committed, so start again from the committed offsets.
                self._join_count = self._membership.join_count
                lost = self.assignment
                self._assign(frozenset())
                if lost and self._on_revoke is not None:
                    self._on_revoke(lost)
            if self._membership.assignment != self._positions.keys():
                self._metrics.rebalances += 1
                self._assign(self._membership.assignment)
        elif self._version != self._topics.version:
            self._version = self._topics.version
            everything = [self._topics.find(name) for name in self._subscribed]
            self._assign(
                frozenset(TopicPartition(topic.name, number) for topic in everything for number in topic.partitions)
                | {partition for partition in self._chosen if self._topic_id(partition) is not None}
            )

    def _assign(self, partitions: Partitions) -> None:
        for partition in [known for known in self._positions if known not in partitions]:
            self._forget(partition)
        added = sorted(partitions - self._positions.keys())
        if not added:
            return
        # Before reading the group: a committed offset must not count for a topic that is recreated in between.
        topic_ids = {partition: self._topics.check(partition).topic_id for partition in added}
        group = self._groups.look(self._group) if self._group is not None else None
        for partition in added:
            committed = group.offsets.get(partition) if group is not None else None
            start = committed.offset if committed is not None else self._reset(partition, why="")
            self._positions[partition] = Position(partition, start, topic_id=topic_ids[partition])
            self._turns.add(partition)
        if self._on_assign is not None:
            self._on_assign(frozenset(added))

    def _forget(self, partition: TopicPartition) -> None:
        self._settle_iteration(partition)
        self._turns.remove(partition)
        del self._positions[partition]

    def _go_to(self, position: Position, offset: int) -> None:
        position.go_to(offset)
        self._turns.add(position.partition)

    def _revoke(self, partitions: Partitions) -> None:
        """Commit the positions of partitions that are being revoked, while they still belong to this member."""
        for partition in partitions:
            self._settle_iteration(partition)
        if self._auto_commits:
            self._commit_positions(partitions)
        if self._on_revoke is not None:
            self._on_revoke(partitions)

    def _reset(self, partition: TopicPartition, *, why: str) -> int:
        if self._reset_policy == "error":
            raise NoOffset(
                f"group {self._group!r} has no offset for {partition}{why}, and auto_offset_reset is "
                '"error"; seek, or reset the group\'s offsets'
            )
        log = self._log(partition)
        return log.log_start_offset if self._reset_policy == "earliest" else log.high_watermark

    def _log(self, partition: TopicPartition) -> LogReader:
        return self._table.reading(partition)

    def _position(self, partition: TopicPartition | tuple[str, int]) -> Position:
        self._check_open()
        wanted = _checked_partition(partition)
        position = self._positions.get(wanted)
        if position is None:
            self._topics.check(wanted)
            raise UsageError(f"{wanted} is not assigned to this consumer; it reads {self._assigned_text()}")
        self._settle_iteration(wanted)
        return position

    def _assigned_text(self) -> str:
        return ", ".join(map(str, sorted(self._positions)[:12])) or "nothing"

    def position(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return the offset of the next record to return."""
        return self._position(partition).next_offset

    def seek(self, partition: TopicPartition | tuple[str, int], *, offset: int) -> None:
        """Continue at an offset."""
        offset = check_offset(offset)
        position = self._position(partition)
        log = self._log(position.partition)
        start, end = log.log_start_offset, log.log_end_offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, log_start_offset=start, log_end_offset=end + 1, what="seek to offset")
        self._go_to(position, offset)

    def seek_to_time(
        self, timestamp_ms: int | datetime, *, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None
    ) -> None:
        """Continue at the first record with a timestamp at or after a time, or at the end if there is no such record.

        The time is milliseconds since 1970, or a datetime with a time zone. Applies to all assigned partitions, or to
        those given.
        """
        wanted_ms = as_milliseconds(timestamp_ms, clock=self._clock)
        for position in self._chosen_positions(partitions):
            offset = self._table.ask(position.partition, lambda log: offset_from_time(log, wanted_ms))
            self._go_to(position, offset)

    def seek_to_beginning(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Continue at the first record kept, in all assigned partitions or in those given."""
        for position in self._chosen_positions(partitions or None):
            self._go_to(position, self._log(position.partition).log_start_offset)

    def seek_to_end(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Continue after the last record, in all assigned partitions or in those given."""
        for position in self._chosen_positions(partitions or None):
            self._go_to(position, self._log(position.partition).high_watermark)

    def _chosen_positions(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None) -> list[Position]:
        return [
            self._position(partition) for partition in (list(self._positions) if partitions is None else partitions)
        ]

    def pause(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Return no records of these partitions until `resume`. Their positions stay."""
        for position in self._chosen_positions(partitions):
            position.is_paused = True

    def resume(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Return records of paused partitions again."""
        for position in self._chosen_positions(partitions):
            position.is_paused = False

    @property
    def paused(self) -> Partitions:
        """The paused partitions."""
        return frozenset(partition for partition, position in self._positions.items() if position.is_paused)

    # ------------------------------------------------------------ records

    def poll(self, timeout_ms: float = 0, *, max_records: int | None = None) -> list[AnyRecord]:
        """Return the next records, waiting up to `timeout_ms` for the first. Each has its topic, partition, and offset.

        Records returned by earlier calls count as processed, and an automatic commit may now cover them.
        """
        limit = self._max_poll_records if max_records is None else max_records
        check_whole_number("max_records", limit, minimum=1)
        check_wait_ms("timeout_ms", timeout_ms)
        self._settle_all()
        deadline = self._clock.monotonic() + timeout_ms / 1000
        while True:
            # Everything that can fail comes before positions move, so an error or Ctrl-C loses no records.
            ready = self._wait_for_records(deadline, limit)
            records = self._take(ready, limit)
            if records or not ready:
                self._metrics.records_consumed += len(records)
                return records

    def _take(self, ready: list[Position], max_records: int) -> list[AnyRecord]:
        """Return up to `max_records` fetched records of positions that have some, and move the positions after them.

        Returns none if the first position was moved past records that are not returned.
        """
        raise NotImplementedError

    def _wait_for_records(self, deadline: float, max_records: int) -> list[Position]:
        """Return positions with records; none after the deadline, or when the consumer is closed."""
        was_resting = False
        while True:
            began = self._clock.monotonic()
            self._participate()
            try:
                ready = self._ready(max_records)
            except TopicNotFound:
                if self._checked_version == self._topics.version:
                    raise
                continue  # the catalog has changed since, and `_participate` follows it
            if ready:
                self._pause_s = MIN_PAUSE_S
                return ready
            now = self._clock.monotonic()
            left = deadline - now
            if left <= 0:
                return []
            spent = now - began
            is_resting = all(self._positions[partition].is_paused for partition in self._turns.awake)
            if was_resting and not is_resting:
                self._pause_s = MIN_PAUSE_S
            was_resting = is_resting
            is_woken = is_resting and not self._turns.is_polled
            longest = self._max_rest_s if is_woken else max(MAX_PAUSE_S, MAX_PAUSE_SHARE * spent)
            # Looking at thousands of partitions takes time: spend at most a fifth of it on looks, and soon less.
            pause = min(max(self._pause_s, 4 * spent), longest)
            self._pause_s = 2 * pause
            if self._sleep(min(pause, left)):
                return []

    def _sleep(self, seconds: float) -> bool:
        """Wait for a change, or for the time. Return whether the consumer was closed."""
        return self._closing.is_set() if self._turns.wait(seconds) else self._closing.wait(seconds)

    def __iter__(self) -> Iterator[AnyRecord]:
        return chain.from_iterable(self._iterate_chunks())

    def _iterate_chunks(self) -> Iterator[Iterator[AnyRecord]]:
        """Yield chunks of records as iterators, so that a record costs no more than a step of one.

        During a chunk the position is after its last record; `_settle_all` moves it back to the first unreturned one.
        """
        self._check_open()
        if not self._subscribed and not self._positions:
            raise UsageError("nothing is assigned; pass topics to the consumer, or call assign")
        while not self._closing.is_set():
            self._settle_all()
            ready = self._wait_for_records(self._clock.monotonic() + self._timeout_s, 1)
            if not ready:
                return
            # At most as many as a poll returns: the member sends heartbeats only between chunks.
            chunk = self._take(ready[:1], self._max_poll_records)
            records = iter(chunk)
            self._iterated = (ready[0], chunk, records)
            yield records
            self._settle_all()
            del chunk, records  # before the next fetch, which can then reuse their memory

    def _settle_iteration(self, partition: TopicPartition) -> None:
        """End the chunk being iterated if it is of this partition, with the position after the last record returned."""
        if self._iterated is not None and self._iterated[0].partition == partition:
            self._settle_all()

    def _settle_all(self) -> None:
        if self._iterated is None:
            return
        position, chunk, records = self._iterated
        self._iterated = None
        left = length_hint(records)
        self._metrics.records_consumed += len(chunk) - left
        if left:
            position.go_to(chunk[len(chunk) - left].offset)
            # The iterator stops where its list ends. The rest of the chunk is read again.
            chunk.clear()

    def _in_turn(self) -> list[Position]:
        """Return the unpaused positions that may have records, starting with another one each time."""
        positions = [self._positions[partition] for partition in self._turns.in_turn()]
        return [position for position in positions if not position.is_paused]

    def _ready(self, max_records: int) -> list[Position]:
        """Return positions with records, fetching where none are left.

        An error in one partition is raised only if no other has records. The next call meets it again.
        """
        ready: list[Position] = []
        count = 0
        for position in self._in_turn():
            try:
                if not position.fetched and not self._fetch(position):
                    continue
            except SeeklogError:
                if ready:
                    break
                raise
            ready.append(position)
            count += len(position.fetched)
            # Stop early: joining more lists costs more than another call.
            if count >= max_records // 4:
                break
        return ready

    def _fetch(self, position: Position) -> bool:
        """Fetch the next records of a partition. Return whether there were any."""
        while True:
            # Outside the `try`: `LogClosed` from a closed store must not cause a retry.
            log = self._log(position.partition)
            if self._table.topic_id(position.partition) != position.topic_id:
                raise self._recreated(position)
            try:
                if position.chunks is None:
                    position.end_offset = log.high_watermark
                    if position.next_offset == position.end_offset == log.settled_watermark():
                        self._turns.found_empty(position.partition)
                        return False
                    position.chunks = log.scan_chunks(position.next_offset, position.end_offset)
                position.fetched = next(position.chunks, [])
                if position.fetched:
                    self._metrics.fetches += 1
                    return True
                # Below the end there are only control records, or offsets that compaction removed.
                position.go_to(max(position.next_offset, position.end_offset))
            except LogClosed:
                self._check_open()
                position.go_to(position.next_offset)  # the log was reopened meanwhile
            except OffsetOutOfRange as error:
                position.go_to(position.next_offset)
                self._topics.refresh(at_once=True)
                if self._topic_id(position.partition) != position.topic_id:
                    raise self._recreated(position) from error
                offset = self._reset(position.partition, why=f" that is still there ({error})")
                logger.warning("%s: %s; continuing at offset %d", position.partition, error, offset)
                position.go_to(offset)
                self._metrics.offset_resets += 1
            except CorruptionError:
                # Another process may have rewritten the tail. `read` distinguishes that from damage.
                position.go_to(position.next_offset)
                position.fetched = list(log.read(position.next_offset))
                return bool(position.fetched)
            except BaseException:
                # A generator that raised looks exhausted. Discard it, so that nothing unread counts as read.
                position.go_to(position.next_offset)
                raise

    # ------------------------------------------------------------ metrics

    def metrics(self) -> dict[str, Any]:
        """Return what this consumer has counted, and its lag. Any thread may call this.

        The keys are those of the section `consumer` in docs/metrics.md.
        """
        section = self.gauges()
        section.add(self._metrics)
        return section.as_dict()

    def gauges(self) -> ConsumerSection:
        """Return the numbers of the present moment alone. Any thread may call this."""
        section = ConsumerSection()
        if self._closing.is_set():
            return section
        section.consumers = 1
        iterated = self._iterated
        for position in list(self._positions.values()):
            log = self._table.known_log(position.partition)
            end = max(position.end_offset, log.known_watermark if log is not None else 0)
            lag = max(0, end - position.next_offset)
            if iterated is not None and iterated[0] is position:
                lag += length_hint(iterated[2])  # of the chunk that the position is already after
            section.assigned_partitions += 1
            section.records_lag += lag
            section.records_lag_max = max(section.records_lag_max, lag)
        return section

    # ------------------------------------------------------------ the group

    def _participate(self) -> None:
        """Send a heartbeat, commit if it is due, and update the assignment."""
        self._check_open()
        now = self._clock.monotonic()
        # Before the heartbeat: in it a removed member rejoins, and would then commit its old positions.
        if self._auto_commits and now >= self._next_commit:
            self._commit_positions(self._positions.keys())
        if self._membership is not None:
            self._membership.heartbeat()
        elif now >= self._next_refresh:
            # A heartbeat does this for the members of a group. A store may have no thread that does it.
            self._next_refresh = now + self._max_rest_s
            self._topics.refresh()
        # After both, which may have refreshed the topics.
        if self._checked_version != self._topics.version:
            self._checked_version = self._topics.version
            self._drop_deleted_topics()
        self._follow_assignment()
        self._polled_by = threading.get_ident()

    def _drop_deleted_topics(self) -> None:
        """Forget positions in deleted topics, and in recreated ones, which start again. Raise a deletion once."""
        first_error: TopicNotFound | None = None
        for partition, position in list(self._positions.items()):
            try:
                is_gone = self._topics.check(partition).topic_id != position.topic_id
            except TopicNotFound as error:
                first_error = first_error or error
                is_gone = True
            if is_gone:
                self._forget(partition)
                self._version = -1
        if first_error is not None and self._membership is None:
            raise first_error

    def _topic_id(self, partition: TopicPartition) -> str | None:
        """Return the id of a partition's current topic, or None if the partition does not exist."""
        try:
            return self._topics.check(partition).topic_id
        except TopicNotFound:
            return None

    @staticmethod
    def _recreated(position: Position) -> TopicNotFound:
        return TopicNotFound(f"topic {position.partition.topic!r} was deleted or recreated since it was read")

    @property
    def _has_rejoined(self) -> bool:
        """Whether the group removed this member and it has rejoined: others may have read further."""
        return self._membership is not None and self._membership.join_count != self._join_count

    def _commit_positions(self, partitions: Collection[TopicPartition]) -> None:
        """Commit automatically. Reading continues after an error, and the next commit covers these records."""
        self._next_commit = self._clock.monotonic() + self._commit_interval_s
        try:
            self._topics.refresh()
            # Skip partitions that have no position yet, and those whose topic was deleted or recreated.
            offsets = {
                known: self._positions[known].next_offset
                for known in partitions
                if known in self._positions and self._topic_id(known) == self._positions[known].topic_id
            }
            self._commit({} if self._has_rejoined else self._changed(offsets))
        except SeeklogError as error:
            logger.warning("group %s: the automatic commit failed: %s", self._group, error)

    def _changed(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Leave out offsets that the group has committed already."""
        group = self._groups.look(self._group) if self._group is not None else None
        known = group.offsets if group is not None else {}
        return {
            partition: offset
            for partition, offset in offsets.items()
            if partition not in known or known[partition].offset != offset
        }

    def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str]] | None = None) -> None:
        """Commit the positions, or the given offsets, for the group. Durable on return.

        A committed offset is that of the next record to read. A value may be a pair of an offset and a metadata string.
        Raises `TopicNotFound` for a deleted topic, and `CommitRefused` for one recreated since it was read; then no
        offset is committed.
        """
        self._check_open()
        self._check_group("commit")
        self._settle_all()
        if offsets is None:
            if self._has_rejoined:
                raise CommitRefused(
                    f"group {self._group!r} removed this consumer for inactivity, and others may have read further. "
                    "Nothing was committed; the next poll continues at the last commit"
                )
            self._commit({partition: position.next_offset for partition, position in self._positions.items()})
        elif isinstance(offsets, Mapping):
            self._commit({_checked_partition(partition): value for partition, value in offsets.items()})
        else:
            raise UsageError(f"offsets must be a dict of (topic, partition) to offset, not {type(offsets).__name__}")

    def _commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str]]) -> None:
        assert self._group is not None
        # A commit may name partitions that are not assigned to this consumer.
        read = {partition: self._positions[partition].topic_id for partition in offsets if partition in self._positions}
        self._groups.commit(self._group, offsets, member_id=self.member_id, topic_ids=read)

    def committed(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Return the group's committed offset for a partition, or None."""
        self._check_open()
        wanted = _checked_partition(partition)
        self._topics.check(wanted)
        group = self._groups.look(self._check_group("committed"))
        found = group.offsets.get(wanted) if group is not None else None
        return None if found is None else found.offset

    def _check_group(self, what: str) -> str:
        if self._group is None:
            raise UsageError(f"{what} needs a group; create the consumer with group=...")
        return self._group

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise LogClosed("the consumer is closed")
        if self._membership is not None and self._membership.is_abandoned:
            raise LogClosed("the consumer belongs to the parent of this forked process; create another one here")

    def close(self, *, commit: bool = True) -> None:
        """Commit the positions if commits are automatic, and leave the group. Closing twice has no effect.

        With `commit=False`, or from another thread than the one that polls, nothing is committed, and the last records
        are read again.
        """
        check_flags(commit=commit)
        self._close(commit=commit)

    def _close(self, *, commit: bool) -> None:
        if self._closing.is_set():
            return
        if self._polled_by not in (None, threading.get_ident()):
            commit = False  # the polling thread may still be processing its records
        if self._membership is not None and self._membership.is_abandoned:
            commit = False  # a forked child's copy: the parent commits
        try:
            self._settle_all()
            if commit and self._auto_commits:
                self._commit_positions(self._positions.keys())
            if self._membership is not None and self._positions and self._on_revoke is not None:
                self._on_revoke(self.assignment)
        finally:
            self._closing.set()
            self._turns.close()
            if self._membership is not None:
                self._membership.leave()


class Consumer(ConsumerBase[Record]):
    """Reads the records of topics. One thread at a time may use it.

    Create one with `Store.consumer`. Use it as a context manager, or close it. Iterating returns records one by one and
    waits for more, up to `consumer_timeout_ms` if that is set.
    """

    def _take(self, ready: list[Position], max_records: int) -> list[Record]:
        if len(ready) == 1:
            return ready[0].take(max_records)
        records: list[Record] = []
        for position in ready:
            if len(records) < max_records:
                records += position.take(max_records - len(records))
        return records
