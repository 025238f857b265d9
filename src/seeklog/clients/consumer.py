"""The consumer: reads topics from where its group left off, alone or sharing them with others of the group.

It holds a position for each partition that is its own: the offset of the next record it will hand out. `poll` hands
out records and moves the positions; a commit keeps them for the group. Whatever was handed out before a call of
`poll` counts as dealt with, so that is what an automatic commit keeps: after a crash of the consumer records are read
again, never left out.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from operator import length_hint
from types import TracebackType
from typing import Literal

from seeklog.clock import Clock
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
from seeklog.log import LogReader
from seeklog.names import TopicPartition
from seeklog.record.record import Record
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.topics import Topics

logger = logging.getLogger("seeklog")

AutoOffsetReset = Literal["earliest", "latest", "error"]
Partitions = frozenset[TopicPartition]
Listener = Callable[[Partitions], object]

# How long an idle `poll` sleeps between two looks: at first, and at most.
MIN_PAUSE_S = 0.001
MAX_PAUSE_S = 0.02
FOREVER_S = float("inf")
MAX_CLIENT_ID_BYTES = 1024


class _Position:
    """Where a consumer stands in one partition."""

    __slots__ = ("chunks", "end_offset", "fetched", "is_paused", "next_offset", "partition", "topic_id")

    def __init__(self, partition: TopicPartition, next_offset: int, *, topic_id: str) -> None:
        self.partition = partition
        self.topic_id = topic_id
        """Of the topic that the offsets are of: one made anew under its name has others."""
        self.next_offset = next_offset
        """Of the record that is handed out next."""
        self.fetched: list[Record] = []
        """Read, but not handed out yet; from `next_offset` on."""
        self.chunks: Iterator[list[Record]] | None = None
        """What follows, up to `end_offset`: the high watermark when the reading began."""
        self.end_offset = next_offset
        self.is_paused = False

    def take(self, most: int) -> list[Record]:
        """Hand out what was fetched, at most so many."""
        taken = self.fetched
        if len(taken) > most:
            taken, self.fetched = taken[:most], taken[most:]
        else:
            self.fetched = []
        self.next_offset = taken[-1].offset + 1
        return taken

    def go_to(self, offset: int) -> None:
        self.next_offset = offset
        self.fetched = []
        self.chunks = None


def offset_from_time(log: LogReader, timestamp_ms: int) -> int:
    """Return the offset of the first record stamped at or after a time, or the end where there is none."""
    found = log.offset_at_time(timestamp_ms)
    return log.high_watermark if found is None else found


def _checked_partition(partition: object) -> TopicPartition:
    if not isinstance(partition, tuple) or len(partition) != 2:
        raise UsageError(f"a partition is (topic, number), such as ('payments', 0), not {partition!r}")
    return TopicPartition(*partition)


def _weakly(listener: Listener) -> Callable[[Partitions], None]:
    """Return a listener that does not keep its consumer: one that is dropped unclosed must go, and leave its group."""
    reference = weakref.WeakMethod(listener)

    def listen(partitions: Partitions) -> None:
        method = reference()
        if method is not None:
            method(partitions)

    return listen


class Consumer:
    """Reads the records of topics. One thread at a time; close it, or use it as a context manager.

    Iterating over it hands out records one by one and waits for more, for `consumer_timeout_ms` if that is given.
    """

    def __init__(
        self,
        topics: Topics,
        table: OpenLogs,
        groups: Groups,
        *,
        owner: object,
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
            raise UsageError(f'auto_offset_reset is "earliest", "latest" or "error", not {auto_offset_reset!r}')
        for word, value in (
            ("max_poll_records", max_poll_records),
            ("max_poll_interval_ms", max_poll_interval_ms),
            ("heartbeat_interval_ms", heartbeat_interval_ms),
            ("auto_commit_interval_ms", auto_commit_interval_ms),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= INT32_MAX:
                raise UsageError(f"{word} must be a whole number between 1 and {INT32_MAX:,}, not {value!r}")
        if heartbeat_interval_ms > max_poll_interval_ms:
            raise UsageError("heartbeat_interval_ms must not be more than max_poll_interval_ms")
        for topic in subscribed:
            topics.find(topic)
        # While somebody reads, the store must stay open, though nobody else refers to it.
        self._owner = owner
        self._topics = topics
        self._table = table
        self._groups = groups
        self._clock = clock
        self._group = group
        self._polled_by: int | None = None
        """The thread that was last handed records: only where that one closes are they dealt with."""
        self._checked_version = topics.version
        self._subscribed = frozenset(subscribed)
        self._reset_policy = auto_offset_reset
        self._auto_commits = enable_auto_commit and group is not None
        self._commit_interval_s = auto_commit_interval_ms / 1000
        self._next_commit = clock.monotonic() + self._commit_interval_s
        self._max_poll_records = max_poll_records
        self._timeout_s = FOREVER_S if consumer_timeout_ms is None else consumer_timeout_ms / 1000
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._positions: dict[TopicPartition, _Position] = {}
        self._chosen: Partitions = frozenset()
        """What `assign` was asked for; of a topic that is gone nothing is read until it is made anew."""
        self._turn = 0
        self._iterated: tuple[_Position, list[Record], Iterator[Record]] | None = None
        self._closing = threading.Event()
        self._version = -1
        self._join_count = 0
        self._membership: Membership | None = None
        if group is not None:
            check_group_name(group)
        check_text("client_id", client_id, most=MAX_CLIENT_ID_BYTES)
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
                on_revoke=_weakly(self._give_up),
            )
            self._membership.join()
        try:
            self._follow_assignment()
        except BaseException:
            # Nobody gets this consumer, so nobody could close it: its partitions must not stay with it.
            self._close(commit=False)
            raise

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A record that could not be dealt with must come again: nothing more is committed then.
        self._close(commit=kind is None)

    # ------------------------------------------------------------ partitions

    @property
    def assignment(self) -> Partitions:
        """The partitions that this consumer reads."""
        return frozenset(self._positions)

    @property
    def member_id(self) -> str | None:
        """What the group knows this consumer by."""
        return self._membership.member_id if self._membership is not None else None

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read just these partitions, whatever others of the group read; only without subscribed topics."""
        if self._subscribed:
            raise UsageError("a consumer that subscribes to topics is given its partitions; make it without topics")
        self._check_open()
        chosen = frozenset(map(_checked_partition, partitions))
        for partition in chosen:
            self._topics.check(partition)
        self._chosen = chosen
        self._assign(chosen)

    def _follow_assignment(self) -> None:
        """Read the partitions that are this consumer's now."""
        if self._membership is not None:
            if self._has_rejoined:
                # It begins again where the others committed.
                self._join_count = self._membership.join_count
                lost = self.assignment
                self._assign(frozenset())
                if lost and self._on_revoke is not None:
                    self._on_revoke(lost)
            if self._membership.assignment != self._positions.keys():
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
            self._settle_iteration(partition)
            del self._positions[partition]
        added = sorted(partitions - self._positions.keys())
        if not added:
            return
        # Before the group is asked: an offset of a topic that is made anew in between must not count for the new one.
        topic_ids = {partition: self._topics.check(partition).topic_id for partition in added}
        group = self._groups.look(self._group) if self._group is not None else None
        for partition in added:
            committed = group.offsets.get(partition) if group is not None else None
            start = committed.offset if committed is not None else self._reset(partition, why="")
            self._positions[partition] = _Position(partition, start, topic_id=topic_ids[partition])
        if self._on_assign is not None:
            self._on_assign(frozenset(added))

    def _give_up(self, partitions: Partitions) -> None:
        """Commit what was dealt with in partitions that another member will read on; they are still this one's."""
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
                '"error": seek, or reset the group'
            )
        log = self._log(partition)
        return log.log_start_offset if self._reset_policy == "earliest" else log.high_watermark

    def _log(self, partition: TopicPartition) -> LogReader:
        return self._table.reading(partition)

    def _position(self, partition: TopicPartition | tuple[str, int]) -> _Position:
        self._check_open()
        wanted = _checked_partition(partition)
        position = self._positions.get(wanted)
        if position is None:
            self._topics.check(wanted)
            raise UsageError(f"{wanted} is not assigned to this consumer; it reads {self._shown()}")
        self._settle_iteration(wanted)
        return position

    def _shown(self) -> str:
        return ", ".join(map(str, sorted(self._positions)[:12])) or "nothing"

    def position(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return the offset of the record that is handed out next."""
        return self._position(partition).next_offset

    def seek(self, partition: TopicPartition | tuple[str, int], *, offset: int) -> None:
        """Go on reading at an offset."""
        position = self._position(partition)
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise UsageError(f"an offset is an int, not {type(offset).__name__}")
        log = self._log(position.partition)
        start, end = log.log_start_offset, log.log_end_offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, log_start_offset=start, log_end_offset=end + 1, what="seek to offset")
        position.go_to(offset)

    def seek_to_time(
        self, timestamp_ms: int, *, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None
    ) -> None:
        """Go on reading at the first record stamped at or after a time, or at the end where there is none.

        In all partitions of this consumer, or in those given.
        """
        if not isinstance(timestamp_ms, int):
            raise UsageError(f"a time is an int, milliseconds since 1970, not {type(timestamp_ms).__name__}")
        for position in self._chosen_positions(partitions):
            offset = self._table.ask(position.partition, lambda log: offset_from_time(log, timestamp_ms))
            position.go_to(offset)

    def seek_to_beginning(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Go on reading at the first record that is kept, in all partitions of this consumer or in those given."""
        for position in self._chosen_positions(partitions or None):
            position.go_to(self._log(position.partition).log_start_offset)

    def seek_to_end(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Go on reading after the last record, in all partitions of this consumer or in those given."""
        for position in self._chosen_positions(partitions or None):
            position.go_to(self._log(position.partition).high_watermark)

    def _chosen_positions(self, partitions: Iterable[TopicPartition | tuple[str, int]] | None) -> list[_Position]:
        return [self._position(each) for each in (list(self._positions) if partitions is None else partitions)]

    def pause(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Hand out nothing of these partitions until `resume`; their positions stay."""
        for position in self._chosen_positions(partitions):
            position.is_paused = True

    def resume(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Hand out records of paused partitions again."""
        for position in self._chosen_positions(partitions):
            position.is_paused = False

    @property
    def paused(self) -> Partitions:
        """The partitions that are paused."""
        return frozenset(partition for partition, position in self._positions.items() if position.is_paused)

    # ------------------------------------------------------------ records

    def poll(self, timeout_ms: float = 0, *, max_records: int | None = None) -> list[Record]:
        """Return the next records, waiting for some at most so long; each has its topic, partition and offset.

        What was handed out before counts as dealt with: an automatic commit may keep it now.
        """
        most = self._max_poll_records if max_records is None else max_records
        if not isinstance(most, int) or most < 1 or not isinstance(timeout_ms, int | float):
            raise UsageError("max_records must be at least 1, and timeout_ms a number of milliseconds")
        self._settle_all()
        records: list[Record] = []
        # First all that may fail, then all positions are moved: so an error or Ctrl-C takes no records along.
        for position in self._wait_for_records(timeout_ms / 1000, most):
            if len(records) < most:
                records += position.take(most - len(records))
        return records

    def _wait_for_records(self, timeout_s: float, most: int) -> list[_Position]:
        """Return positions that records can be taken from; none when the time is over, or the consumer is closed."""
        give_up = self._clock.monotonic() + timeout_s
        pause = MIN_PAUSE_S
        while True:
            began = self._clock.monotonic()
            self._keep_up()
            ready = self._ready(most)
            if ready:
                return ready
            now = self._clock.monotonic()
            left = give_up - now
            # A look at thousands of partitions takes its time: not more than a fifth of it all goes into looking.
            if left <= 0 or self._closing.wait(min(max(pause, 4 * (now - began)), left)):
                return []
            pause = min(2 * pause, MAX_PAUSE_S)

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self._handed_out())

    def _handed_out(self) -> Iterator[Iterator[Record]]:
        """Yield chunks of records as iterators, so that a record costs no more than a step of one.

        The position stands behind the whole chunk meanwhile; `_settle_all` takes back what was not handed out.
        """
        self._check_open()
        if not self._subscribed and not self._positions:
            raise UsageError("nothing is assigned: name topics when the consumer is made, or call assign")
        while not self._closing.is_set():
            self._settle_all()
            ready = self._wait_for_records(self._timeout_s, 1)
            if not ready:
                return
            position = ready[0]
            # No more than a poll would, because only in between the group hears of this member.
            chunk = position.take(self._max_poll_records)
            records = iter(chunk)
            self._iterated = (position, chunk, records)
            yield records
            self._settle_all()
            del chunk, records  # before the next is read, which then finds their memory warm

    def _settle_iteration(self, partition: TopicPartition) -> None:
        """Put a partition's position behind the last record that an iteration has handed out, and end its chunk."""
        if self._iterated is not None and self._iterated[0].partition == partition:
            self._settle_all()

    def _settle_all(self) -> None:
        if self._iterated is None:
            return
        position, chunk, records = self._iterated
        self._iterated = None
        left = length_hint(records)
        if left:
            position.go_to(chunk[len(chunk) - left].offset)
            # The iterator of a list ends where the list does: what is left of this chunk is read again.
            chunk.clear()

    def _in_turn(self) -> list[_Position]:
        """Return the positions that may be read, another one first each time."""
        positions = [position for position in self._positions.values() if not position.is_paused]
        self._turn += 1
        first = self._turn % len(positions) if positions else 0
        return positions[first:] + positions[:first]

    def _ready(self, most: int) -> list[_Position]:
        """Return the positions that records can be taken from, reading on where none are left.

        What goes wrong in one is raised when no other has records; the next call meets it again.
        """
        ready: list[_Position] = []
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
            # Not the last one at any price: putting lists together costs more than another call.
            if count >= most // 4:
                break
        return ready

    def _fetch(self, position: _Position) -> bool:
        """Read on in a partition; tell whether there was anything."""
        while True:
            # Outside of the `try`: a closed store refuses to give a log at all, and that is no reason to ask again.
            log = self._log(position.partition)
            try:
                if position.chunks is None:
                    position.end_offset = log.high_watermark
                    if position.next_offset == position.end_offset:
                        return False
                    position.chunks = log.scan_chunks(position.next_offset, position.end_offset)
                position.fetched = next(position.chunks, [])
                if position.fetched:
                    return True
                # Whatever is left below the end are markers, or what compaction left none of.
                position.go_to(max(position.next_offset, position.end_offset))
            except LogClosed:
                self._check_open()
                position.go_to(position.next_offset)  # the table has opened it otherwise meanwhile
            except OffsetOutOfRange as error:
                position.go_to(position.next_offset)
                offset = self._reset(position.partition, why=f" that is still there ({error})")
                logger.warning("%s: %s; reading on at offset %d", position.partition, error, offset)
                position.go_to(offset)
            except CorruptionError:
                # It may be the tail that a writer in another process rewrote: `read` can tell.
                position.go_to(position.next_offset)
                position.fetched = list(log.read(position.next_offset))
                return bool(position.fetched)
            except BaseException:
                # An iterator that has raised passes for one that has ended: nothing may be taken for read by it.
                position.go_to(position.next_offset)
                raise

    # ------------------------------------------------------------ the group

    def _keep_up(self) -> None:
        """Take part in the group, commit if it is time, and read what is assigned now."""
        self._check_open()
        # Before the heartbeat: a member that was taken for gone is one again behind it, and has its old positions yet.
        if self._auto_commits and self._clock.monotonic() >= self._next_commit:
            self._commit_positions(self._positions.keys())
        if self._membership is not None:
            self._membership.heartbeat()
        # After these, which may be the first to learn of it.
        if self._checked_version != self._topics.version:
            self._checked_version = self._topics.version
            self._drop_what_is_gone()
        self._follow_assignment()
        self._polled_by = threading.get_ident()

    def _drop_what_is_gone(self) -> None:
        """Forget positions in topics that were deleted, which is told once, or made anew since: those begin again."""
        first_error: TopicNotFound | None = None
        for partition, position in list(self._positions.items()):
            try:
                is_gone = self._topics.check(partition).topic_id != position.topic_id
            except TopicNotFound as error:
                first_error = first_error or error
                is_gone = True
            if is_gone:
                self._settle_iteration(partition)
                del self._positions[partition]
                self._version = -1
        if first_error is not None and self._membership is None:
            raise first_error

    def _topic_id(self, partition: TopicPartition) -> str | None:
        """Return the id of the topic that a partition is of by now; None if there is no such partition."""
        try:
            return self._topics.check(partition).topic_id
        except TopicNotFound:
            return None

    @property
    def _has_rejoined(self) -> bool:
        """Whether the group took this one for gone, and has it again: others may have read on from its positions."""
        return self._membership is not None and self._membership.join_count != self._join_count

    def _commit_positions(self, partitions: Collection[TopicPartition]) -> None:
        """Commit automatically. A failure is no reason to stop reading: the next commit makes up for it."""
        self._next_commit = self._clock.monotonic() + self._commit_interval_s
        try:
            self._topics.refresh()
            # One that could not be begun has no position, one of a topic that is gone none worth keeping.
            offsets = {
                known: self._positions[known].next_offset
                for known in partitions
                if known in self._positions and self._topic_id(known) == self._positions[known].topic_id
            }
            self._commit({} if self._has_rejoined else self._changed(offsets))
        except SeeklogError as error:
            logger.warning("group %s: the automatic commit failed: %s", self._group, error)

    def _changed(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Leave out what the group has already."""
        group = self._groups.look(self._group) if self._group is not None else None
        known = group.offsets if group is not None else {}
        return {
            partition: offset
            for partition, offset in offsets.items()
            if partition not in known or known[partition].offset != offset
        }

    def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str]] | None = None) -> None:
        """Keep the positions, or the given offsets, for the group; durable on return.

        An offset is that of the record to be read next; with a text beside it that is kept as its metadata. Of a topic
        that was deleted (`TopicNotFound`), or made anew since it was read (`CommitRefused`), it is not: then none is.
        """
        self._check_open()
        self._check_group("commit")
        self._settle_all()
        if offsets is None:
            if self._has_rejoined:
                raise CommitRefused(
                    f"group {self._group!r} took this consumer for gone: others may have read on. Nothing was "
                    "committed; the next poll begins at the last commit"
                )
            self._commit({partition: position.next_offset for partition, position in self._positions.items()})
        elif isinstance(offsets, Mapping):
            self._commit({_checked_partition(partition): value for partition, value in offsets.items()})
        else:
            raise UsageError(f"offsets are a dict of (topic, partition) to offset, not {type(offsets).__name__}")

    def _commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str]]) -> None:
        assert self._group is not None
        # Partitions that are committed by hand need not be read here.
        read = {partition: self._positions[partition].topic_id for partition in offsets if partition in self._positions}
        self._groups.commit(self._group, offsets, member_id=self.member_id, topic_ids=read)

    def committed(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Return the offset that the group has committed for a partition, or None."""
        self._check_open()
        wanted = _checked_partition(partition)
        self._topics.check(wanted)
        group = self._groups.look(self._check_group("committed"))
        found = group.offsets.get(wanted) if group is not None else None
        return None if found is None else found.offset

    def _check_group(self, what: str) -> str:
        if self._group is None:
            raise UsageError(f"{what} needs a group: make the consumer with group=...")
        return self._group

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise LogClosed("the consumer is closed")
        if self._membership is not None and self._membership.is_abandoned:
            raise LogClosed("the consumer belongs to the process that this one was forked from")

    def close(self, *, commit: bool = True) -> None:
        """Commit what was dealt with, if commits are automatic, and leave the group. Closing twice is nothing.

        With `commit=False`, or from another thread than the one that polls, nothing is committed: what was handed out
        last comes again.
        """
        self._close(commit=commit)

    def _close(self, *, commit: bool) -> None:
        if self._closing.is_set():
            return
        if self._polled_by not in (None, threading.get_ident()):
            commit = False  # another thread may still be at what it was handed
        if self._membership is not None and self._membership.is_abandoned:
            commit = False  # a forked child's copy: the parent goes on, and commits
        try:
            self._settle_all()
            if commit and self._auto_commits:
                self._commit_positions(self._positions.keys())
            if self._membership is not None and self._positions and self._on_revoke is not None:
                self._on_revoke(self.assignment)
        finally:
            self._closing.set()
            if self._membership is not None:
                self._membership.leave()
