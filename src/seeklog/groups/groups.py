"""The consumer groups of a store: their committed offsets and members, kept in `__consumer_offsets`.

A group's records lie in one partition, chosen as Kafka does by the hash of its name. The state of a group is what
its records add up to, the last one of each key counting. Whoever changes a group holds the lock of that partition
for that moment: takes it, reads what others have added, decides, appends, and lets it go. So processes change a
group one after the other, each knowing what the one before did, and nobody needs a server.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from seeklog.clock import Clock
from seeklog.errors import (
    CommitRefused,
    CorruptionError,
    GroupInUse,
    GroupNotFound,
    InvalidName,
    LogClosed,
    LogFailed,
    OffsetOutOfRange,
    RecordTooLarge,
    SeeklogError,
    TopicExists,
    TopicNotFound,
    UsageError,
)
from seeklog.files import Files, translated
from seeklog.groups import liveness, records
from seeklog.groups.records import CommittedOffset, GroupKey, GroupState, Member, OffsetKey
from seeklog.log import Log, LogReader, take_snapshot
from seeklog.names import CONSUMER_OFFSETS, TopicPartition
from seeklog.record.record import Record
from seeklog.topics.layout import partition_path
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.topics import Topics

logger = logging.getLogger("seeklog")

# Kafka makes 50, one directory each, so that brokers can share them out; here they only let groups commit side by
# side. A broker that takes over counts the directories.
OFFSETS_PARTITIONS: Final = 4
OFFSETS_CONFIG: Final[Mapping[str, Any]] = {"cleanup.policy": "compact", "segment.bytes": 100 << 20}
# How long a change waits while other processes change groups of the same partition.
LOCK_WAIT_S: Final = 30.0
# The first look at a group reads the last segment of its partition, and what compaction has left of those before.
ROLL_RECORDS: Final = 2048
MAX_METADATA_BYTES: Final = 4096
MAX_GROUP_NAME_BYTES: Final = 1024
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(slots=True)
class Group:
    """What is known of one group."""

    name: str
    state: GroupState = field(default_factory=GroupState)
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)


class _OffsetsPartition:
    """One partition of `__consumer_offsets`, and what its records add up to so far."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.lock = threading.RLock()
        self.groups: dict[str, Group] = {}
        self._next_offset = 0
        self._rolled_at = 0
        """Where the last segment begins."""

    def read_on(self, log: LogReader) -> None:
        """Take in the records that were added since."""
        end = log.high_watermark
        if end == self._next_offset:
            return
        start = log.log_start_offset
        # Compaction, ours or a broker's, leaves the last segment alone. Out of those before it a tombstone that was not
        # read here may be gone by now, and what it took away would stay.
        self._rolled_at = take_snapshot(log).view.bases[-1]
        first_whole_offset = max(start, self._rolled_at)
        if not first_whole_offset <= self._next_offset <= end:
            # That, or the log was recreated, or lost its beginning: start over.
            self.groups, self._next_offset = {}, start
        for record in log.scan(self._next_offset, end):
            self._take(record)
        self._next_offset = end

    def append(self, log: Log, change: GroupChange) -> None:
        """Append what a change has put, and take it in. Everything before was read."""
        self._next_offset = log.append_many(change.pending, wait=False).stop
        if change.group.offsets or change.group.state != GroupState():
            self.groups[change.name] = change.group
        else:
            self.groups.pop(change.name, None)
        if self._next_offset - self._rolled_at >= ROLL_RECORDS:
            self._compact(log)

    def _compact(self, log: Log) -> None:
        """Begin a segment, so that of those before it only the latest record of each key is kept."""
        log.flush()
        self._rolled_at = self._next_offset
        try:
            log.roll()
            log.flush()
            log.compact_if_due()
        except SeeklogError as error:
            # What was appended is durable. The next segment, or the store's maintenance, makes up for it.
            logger.warning("%s: not compacted yet: %s", self.partition, error)

    def tombstones_of(self, topic: str) -> list[Record]:
        """Return what takes away all that groups have committed for a topic."""
        return [
            Record(None, key=records.encode_offset_key(group.name, partition))
            for group in self.groups.values()
            for partition in group.offsets
            if partition.topic == topic
        ]

    def start_over(self) -> None:
        """Read everything again the next time."""
        self.groups, self._next_offset = {}, -1

    def _take(self, record: Record) -> None:
        try:
            key = records.decode_key(record.key or b"")
            if isinstance(key, OffsetKey):
                self._take_offset(key, record.value)
            elif isinstance(key, GroupKey):
                self._take_group(key, record.value)
        except CorruptionError as error:
            logger.warning("%s: the record at offset %d is left out: %s", self.partition, record.offset, error)

    def _take_offset(self, key: OffsetKey, value: bytes | None) -> None:
        if value is not None:
            committed = records.decode_offset(value)
            self.groups.setdefault(key.group, Group(key.group)).offsets[key.partition] = committed
        elif key.group in self.groups:
            self.groups[key.group].offsets.pop(key.partition, None)
            self._forget_if_empty(key.group)

    def _take_group(self, key: GroupKey, value: bytes | None) -> None:
        if value is not None:
            self.groups.setdefault(key.group, Group(key.group)).state = records.decode_group(value)
        elif key.group in self.groups:
            self.groups[key.group].state = GroupState()
            self._forget_if_empty(key.group)

    def _forget_if_empty(self, name: str) -> None:
        group = self.groups[name]
        if not group.offsets and group.state == GroupState():
            del self.groups[name]


class GroupChange:
    """A group, held still so that it can be changed."""

    def __init__(self, name: str, group: Group, now_ms: int) -> None:
        self.name = name
        self.group = group
        self._now_ms = now_ms
        self.pending: list[Record] = []

    def put_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset | None]) -> None:
        """Set offsets; None takes one away."""
        known = dict(self.group.offsets)
        for partition, committed in offsets.items():
            if committed is None:
                known.pop(partition, None)
                value = None
            else:
                known[partition] = committed
                value = records.encode_offset(committed)
            self.pending.append(Record(value, key=records.encode_offset_key(self.name, partition)))
        self.group = Group(self.name, self.group.state, known)

    def put_state(self, state: GroupState) -> None:
        """Set the members, as the generation after the last."""
        state = replace(state, generation=self.group.state.generation + 1, state_timestamp_ms=self._now_ms)
        self.pending.append(Record(records.encode_group(state), key=records.encode_group_key(self.name)))
        self.group = Group(self.name, state, self.group.offsets)

    def drop_state(self) -> None:
        """Take the group itself away."""
        self.pending.append(Record(None, key=records.encode_group_key(self.name)))
        self.group = Group(self.name, GroupState(), self.group.offsets)


class Groups:
    """Reads and changes the groups of one store. Any thread may call anything."""

    def __init__(self, topics: Topics, table: OpenLogs, *, files: Files, clock: Clock, read_only: bool) -> None:
        self._topics = topics
        self._table = table
        self._files = files
        self._clock = clock
        self._read_only = read_only
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, _OffsetsPartition] = {}

    # ------------------------------------------------------------ asking

    def names(self) -> list[str]:
        """Return the names of all groups, in order."""
        if not self._topics.has(CONSUMER_OFFSETS):
            return []
        found: list[str] = []
        for number in self._topics.find(CONSUMER_OFFSETS).partitions:
            with self._looking(TopicPartition(CONSUMER_OFFSETS, number)) as offsets:
                found += offsets.groups
        return sorted(found)

    def look(self, name: str) -> Group | None:
        """Return a group as it is now, or None if nothing is known of it."""
        if not self._topics.has(CONSUMER_OFFSETS):
            return None
        with self._looking(self.partition_of(name)) as offsets:
            group = offsets.groups.get(name)
            return None if group is None else Group(name, group.state, dict(group.offsets))

    def find(self, name: str) -> Group:
        """Return a group as it is now; the nearest name is told of one that is not there."""
        group = self.look(name)
        if group is None:
            import difflib  # only to word an error: it would cost every import 5 ms

            there = self.names()
            nearest = difflib.get_close_matches(name, there, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(there[:8]) or 'none yet'}"
            raise GroupNotFound(f"there is no group {name!r} in {self._topics.root}; {hint}")
        return group

    def partition_of(self, name: str) -> TopicPartition:
        """Return the partition of `__consumer_offsets` that a group's records lie in."""
        count = self._topics.find(CONSUMER_OFFSETS).partition_count
        return TopicPartition(CONSUMER_OFFSETS, java_hash(name) % count)

    def directory_of(self, name: str) -> str:
        """Return the directory of that partition, where the files of the group's members lie too."""
        return partition_path(self._topics.root, self.partition_of(name))

    def living(self, group: Group) -> dict[str, Member]:
        """Return the members of a group that are alive."""
        if not group.state.members:
            return {}
        with translated(f"who is alive in group {group.name!r} cannot be told"):
            return liveness.living(self._files, self._clock, self.directory_of(group.name), group.state)

    def check_idle(self, group: Group) -> None:
        """Refuse if a group has members that are alive."""
        members = self.living(group)
        if members:
            raise GroupInUse(
                f"group {group.name!r} has {len(members)} members that consume, such as {min(members)}; stop them first"
            )

    @contextlib.contextmanager
    def _looking(self, partition: TopicPartition) -> Iterator[_OffsetsPartition]:
        offsets = self._offsets_partition(partition)
        with offsets.lock:
            while True:
                log = self._table.reading(partition)
                try:
                    offsets.read_on(log)
                    break
                except LogClosed:
                    continue  # the table has opened it otherwise meanwhile
            yield offsets

    def _offsets_partition(self, partition: TopicPartition) -> _OffsetsPartition:
        with self._lock:
            offsets = self._partitions.get(partition)
            if offsets is None:
                offsets = self._partitions[partition] = _OffsetsPartition(partition)
            return offsets

    def abandon(self) -> None:
        """Make the locks anew in a forked child: a thread that is not in it may have held them."""
        self._lock = threading.Lock()
        for offsets in self._partitions.values():
            offsets.lock = threading.RLock()

    # ------------------------------------------------------------ changing

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[GroupChange]:
        """Hold a group still, and append what was put when the block ends: all of it, durable, or nothing.

        All groups of the partition are held, in this and in other processes, with what was committed before taken in.
        """
        check_group_name(name)
        if self._read_only:
            raise UsageError(f"{self._topics.root} is open read-only: a group cannot be changed")
        with translated(f"group {name!r} cannot be changed"):
            partition = self._place_of(name)
            offsets = self._partitions.get(partition) or self._offsets_partition(partition)
            with offsets.lock:
                try:
                    with self._table.borrow(partition, wait_s=LOCK_WAIT_S, stays_open=True) as log:
                        offsets.read_on(log)
                        change = GroupChange(name, offsets.groups.get(name) or Group(name), self._clock.now_ms())
                        yield change
                        if change.pending:
                            offsets.append(log, change)
                except LogFailed:
                    # What was appended, and taken in, may be lost, and its offset given to what another commits.
                    offsets.start_over()
                    raise

    def _place_of(self, name: str) -> TopicPartition:
        """Return the partition that a group's records lie in, of a topic that is created with the first of them."""
        try:
            return self.partition_of(name)
        except TopicNotFound:
            with contextlib.suppress(TopicExists):
                self._topics.create(CONSUMER_OFFSETS, partitions=OFFSETS_PARTITIONS, config=OFFSETS_CONFIG)
            return self.partition_of(name)

    def commit(
        self,
        name: str,
        offsets: Mapping[TopicPartition, int | tuple[int, str]],
        *,
        member_id: str | None = None,
        topic_ids: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Set a group's offsets. A member may commit for its own partitions, others only for an idle group.

        `topic_ids` are of the topics that the offsets were read from; where none is given, it is the topic of now.
        """
        if not offsets:
            return
        read = topic_ids or {}
        self._topics.refresh()
        self._check_topics(read)
        # Before the logs are asked: a topic that is recreated in between must not pass for the one that was asked.
        asked = {
            partition: read.get(partition) or self._topics.check(partition).topic_id
            for partition in {**offsets, **read}
        }
        committed = {partition: self._checked(partition, value) for partition, value in offsets.items()}
        with self.changing(name) as change:
            members = change.group.state.members
            if member_id is None:
                self.check_idle(change.group)
                if members:
                    # One that is only late comes back as a new member, which begins at what is committed here.
                    change.put_state(GroupState())
            else:
                own = members[member_id].assignment if member_id in members else frozenset()
                strange = sorted(set(committed) - own)
                if strange:
                    raise CommitRefused(
                        f"{', '.join(map(str, strange))} is no longer this member's in group {name!r}: it was given "
                        "to another, who reads on from the last commit"
                    )
            # The topics are as they were when the lock was taken. A deletion is in the catalog before it takes the lock
            # to make the group forget: so either it is seen here, or it sees what is committed now.
            self._check_topics(asked)
            change.put_offsets(committed)

    def _check_topics(self, topic_ids: Mapping[TopicPartition, str]) -> None:
        """Refuse offsets of topics that are gone, or others by now."""
        for partition, topic_id in topic_ids.items():
            if self._topics.check(partition).topic_id != topic_id:
                raise CommitRefused(
                    f"topic {partition.topic!r} was deleted and recreated since {partition} was read: an offset of the "
                    "old one says nothing of the new one. Nothing was committed; the next poll begins the new one"
                )

    def _checked(self, partition: TopicPartition, value: int | tuple[int, str]) -> CommittedOffset:
        offset, metadata = value if isinstance(value, tuple) and len(value) == 2 else (value, "")
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise UsageError(f"what is committed is an offset, or (offset, text), not {value!r}")
        if metadata != "":
            check_text("metadata of a commit", metadata, most=MAX_METADATA_BYTES)
        return self._table.ask(partition, lambda log: self._checked_in(log, partition, offset, metadata))

    def _checked_in(self, log: LogReader, partition: TopicPartition, offset: int, metadata: str) -> CommittedOffset:
        seen = take_snapshot(log)
        end = seen.log_end_offset
        if seen.recovery_point < offset <= end:
            # A commit is durable. The records that it counts must be too, or others would take their offsets after a
            # power loss and be passed over. Where another process writes them, that is up to its flush policy.
            self._table.flush(partition)
        if not 0 <= offset <= end:
            raise OffsetOutOfRange(
                offset,
                log_start_offset=seen.log_start_offset,
                log_end_offset=end + 1,
                what=f"the offset to commit for {partition},",
            )
        return CommittedOffset(
            offset=offset,
            leader_epoch=log.leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=self._clock.now_ms(),
        )

    def delete(self, name: str) -> None:
        """Take a group away with its offsets, unless it has members."""
        self.find(name)
        with self.changing(name) as change:
            self.check_idle(change.group)
            change.put_offsets(dict.fromkeys(change.group.offsets))
            change.drop_state()

    def forget_topic(self, topic: str) -> None:
        """Take away what all groups have committed for a topic.

        Each partition is held, whatever was found in it before: another process may be committing just now.
        """
        if not self._topics.has(CONSUMER_OFFSETS):
            return
        for number in self._topics.find(CONSUMER_OFFSETS).partitions:
            partition = TopicPartition(CONSUMER_OFFSETS, number)
            offsets = self._offsets_partition(partition)
            with offsets.lock:
                # By what is in the log now: what was read before may have been lost by another process's failed sync.
                offsets.start_over()
                try:
                    with self._table.borrow(partition, wait_s=LOCK_WAIT_S, stays_open=True) as log:
                        offsets.read_on(log)
                        _append_apart(log, offsets.tombstones_of(topic))
                finally:
                    offsets.start_over()


def _append_apart(log: Log, tombstones: list[Record]) -> None:
    """Append tombstones, which need not come together, in as many batches as it takes.

    Each of what a topic's deletion takes away was committed in time; all of it may be more than a batch holds.
    """
    try:
        if tombstones:
            log.append_many(tombstones)
    except RecordTooLarge:
        half = len(tombstones) // 2
        if not half:
            raise
        _append_apart(log, tombstones[:half])
        _append_apart(log, tombstones[half:])


def check_text(what: str, text: object, *, most: int) -> None:
    """Refuse what is no text, or too long a one, for a field of a group's records."""
    try:
        fits = isinstance(text, str) and len(text.encode()) <= most
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise UsageError(f"{what} is a text of at most {most:,} bytes in UTF-8")


def check_group_name(name: str) -> None:
    """Refuse what cannot name a group."""
    if not isinstance(name, str) or not name:
        raise InvalidName(f"{name!r} cannot name a group: a text of 1 to {MAX_GROUP_NAME_BYTES:,} bytes can")
    try:
        check_text("a group's name", name, most=MAX_GROUP_NAME_BYTES)
    except UsageError as error:
        raise InvalidName(str(error)) from None
    if _CONTROL.search(name) or name != name.strip():
        raise InvalidName(f"{name!r} cannot name a group: it has control characters or blanks around it")


@lru_cache(maxsize=1024)
def java_hash(text: str) -> int:
    """Return the magnitude of Java's hash of a string, by which Kafka chooses a group's partition."""
    hashed = 0
    data = text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        hashed = (31 * hashed + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    # Java has no positive number for the smallest one; Kafka takes 0.
    return 0 if signed == -(1 << 31) else abs(signed)
