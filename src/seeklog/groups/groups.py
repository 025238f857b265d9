"""The consumer groups of a store: their committed offsets and members, stored in `__consumer_offsets`.

The records of a group are in one partition, chosen by the hash of its name as in Kafka. A group's state follows from
the last record of each key. To change a group, a process acquires the lock of that partition, reads what other
processes have appended, decides, appends, and releases the lock. So the changes of a group are serialized without a
server.
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
from seeklog.metrics import GroupSection
from seeklog.names import CONSUMER_OFFSETS, TopicPartition
from seeklog.record.record import Record
from seeklog.topics.layout import partition_path
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.topics import Topics

logger = logging.getLogger("seeklog")

# Kafka creates 50 partitions, to spread them over brokers. Here they only let groups commit at the same time. A broker
# that takes over counts the directories.
OFFSETS_PARTITIONS: Final = 4
OFFSETS_CONFIG: Final[Mapping[str, Any]] = {"cleanup.policy": "compact", "segment.bytes": 100 << 20}
# How long a change waits for changes of other groups in the same partition.
LOCK_WAIT_S: Final = 30.0
# Bounds the first read of a group: the last segment of its partition, and what compaction left of those before.
ROLL_RECORDS: Final = 2048
# A commit of a thousand partitions appends a thousand records. The segment holds ten of them before it is rolled.
ROLL_FACTOR: Final = 10
MAX_METADATA_BYTES: Final = 4096
MAX_GROUP_NAME_BYTES: Final = 1024
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(slots=True)
class Group:
    """The state of one group."""

    name: str
    state: GroupState = field(default_factory=GroupState)
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)


class _OffsetsPartition:
    """One partition of `__consumer_offsets`, and the state of its groups."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.lock = threading.RLock()
        self.groups: dict[str, Group] = {}
        self._next_offset = 0
        self._rolled_at = 0
        """The base offset of the last segment."""

    def catch_up(self, log: LogReader) -> None:
        """Apply the records appended since the last call."""
        end = log.high_watermark
        if end == self._next_offset:
            return
        start = log.log_start_offset
        # Compaction, by seeklog or a broker, skips the last segment. Below it, compaction may have removed a tombstone
        # that was not read yet, and the value that it deletes would stay in memory.
        self._rolled_at = take_snapshot(log).view.bases[-1]
        first_whole_offset = max(start, self._rolled_at)
        if not first_whole_offset <= self._next_offset <= end:
            # Or the log was recreated or truncated. Read everything again.
            self.groups, self._next_offset = {}, start
        for record in log.scan(self._next_offset, end):
            self._take(record)
        self._next_offset = end

    def append(self, log: Log, change: GroupChange) -> None:
        """Append the records of a change, and apply it. All earlier records are already applied."""
        self._next_offset = log.append_many(change.pending, wait=False).stop
        if change.group.offsets or change.group.state != GroupState():
            self.groups[change.name] = change.group
        else:
            self.groups.pop(change.name, None)
        appended = self._next_offset - self._rolled_at
        if appended >= ROLL_RECORDS and appended >= ROLL_FACTOR * sum(
            len(group.offsets) for group in self.groups.values()
        ):
            self._compact(log)

    def _compact(self, log: Log) -> None:
        """Roll a segment, so that compaction keeps only the latest record of each key of those before."""
        log.flush()
        self._rolled_at = self._next_offset
        try:
            log.roll()
            log.flush()
            log.compact_if_due()
        except SeeklogError as error:
            # The append is durable. A later roll, or the store's maintenance, compacts.
            logger.warning("%s: compaction failed and is tried again later: %s", self.partition, error)

    def tombstones_of(self, topic: str) -> list[Record]:
        """Return tombstones for every offset that a group has committed for a topic."""
        return [
            Record(None, key=records.encode_offset_key(group.name, partition))
            for group in self.groups.values()
            for partition in group.offsets
            if partition.topic == topic
        ]

    def reset(self) -> None:
        """Read everything again on the next call."""
        self.groups, self._next_offset = {}, -1

    def _take(self, record: Record) -> None:
        try:
            key = records.decode_key(record.key or b"")
            if isinstance(key, OffsetKey):
                self._take_offset(key, record.value)
            elif isinstance(key, GroupKey):
                self._take_group(key, record.value)
        except CorruptionError as error:
            logger.warning("%s: the record at offset %d is skipped: %s", self.partition, record.offset, error)

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
    """A change of one group, made with its partition locked."""

    def __init__(self, name: str, group: Group, now_ms: int) -> None:
        self.name = name
        self.group = group
        self._now_ms = now_ms
        self.pending: list[Record] = []

    def put_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset | None]) -> None:
        """Set offsets. The value None deletes one."""
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
        """Set the members, in a new generation."""
        state = replace(state, generation=self.group.state.generation + 1, state_timestamp_ms=self._now_ms)
        self.pending.append(Record(records.encode_group(state), key=records.encode_group_key(self.name)))
        self.group = Group(self.name, state, self.group.offsets)

    def drop_state(self) -> None:
        """Delete the group's state."""
        self.pending.append(Record(None, key=records.encode_group_key(self.name)))
        self.group = Group(self.name, GroupState(), self.group.offsets)


class Groups:
    """Reads and changes the groups of one store. Any thread may call any method."""

    def __init__(self, topics: Topics, table: OpenLogs, *, files: Files, clock: Clock, read_only: bool) -> None:
        self._topics = topics
        self._table = table
        self._files = files
        self._clock = clock
        self._read_only = read_only
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, _OffsetsPartition] = {}
        self.metrics = GroupSection()
        """Changed with `_lock` held."""

    # ------------------------------------------------------------ lookups

    def names(self) -> list[str]:
        """Return the names of all groups, sorted."""
        if not self._topics.has(CONSUMER_OFFSETS):
            return []
        found: list[str] = []
        for number in self._topics.find(CONSUMER_OFFSETS).partitions:
            with self._reading(TopicPartition(CONSUMER_OFFSETS, number)) as offsets:
                found += offsets.groups
        return sorted(found)

    def look(self, name: str) -> Group | None:
        """Return a group, or None if it does not exist."""
        if not self._has_offsets():
            return None
        with self._reading(self.partition_of(name)) as offsets:
            group = offsets.groups.get(name)
            return None if group is None else Group(name, group.state, dict(group.offsets))

    def find(self, name: str) -> Group:
        """Return a group, or raise `GroupNotFound` with the nearest name."""
        group = self.look(name)
        if group is None:
            import difflib  # only for an error message: it would add 5 ms to every import

            there = self.names()
            nearest = difflib.get_close_matches(name, there, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(there[:8]) or 'none yet'}"
            raise GroupNotFound(f"there is no group {name!r} in {self._topics.root}; {hint}")
        return group

    def _has_offsets(self) -> bool:
        # An archive names the topic even before one of its segments is archived; then it has no partition.
        return self._topics.has(CONSUMER_OFFSETS) and self._topics.find(CONSUMER_OFFSETS).partition_count > 0

    def partition_of(self, name: str) -> TopicPartition:
        """Return the partition of `__consumer_offsets` with a group's records."""
        count = self._topics.find(CONSUMER_OFFSETS).partition_count
        return TopicPartition(CONSUMER_OFFSETS, java_hash(name) % count)

    def directory_of(self, name: str) -> str:
        """Return the directory of that partition. It also holds the files of the group's members."""
        return partition_path(self._topics.root, self.partition_of(name))

    def living(self, group: Group) -> dict[str, Member]:
        """Return the members of a group that are alive."""
        if not group.state.members:
            return {}
        with translated(f"the members of group {group.name!r} cannot be checked"):
            return liveness.living(self._files, self._clock, self.directory_of(group.name), group.state)

    def check_idle(self, group: Group) -> None:
        """Raise `GroupInUse` if a group has live members."""
        members = self.living(group)
        if members:
            raise GroupInUse(
                f"group {group.name!r} has {len(members)} active members, such as {min(members)}; stop them first"
            )

    @contextlib.contextmanager
    def _reading(self, partition: TopicPartition) -> Iterator[_OffsetsPartition]:
        offsets = self._offsets_partition(partition)
        with offsets.lock:
            while True:
                log = self._table.reading(partition)
                try:
                    offsets.catch_up(log)
                    break
                except LogClosed:
                    continue  # the log was reopened meanwhile
            yield offsets

    def _offsets_partition(self, partition: TopicPartition) -> _OffsetsPartition:
        with self._lock:
            offsets = self._partitions.get(partition)
            if offsets is None:
                offsets = self._partitions[partition] = _OffsetsPartition(partition)
            return offsets

    def abandon(self) -> None:
        """Replace the locks in a forked child: a thread of the parent may have held them."""
        self._lock = threading.Lock()
        self.metrics = GroupSection()
        for offsets in self._partitions.values():
            offsets.lock = threading.RLock()

    # ------------------------------------------------------------ changing

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[GroupChange]:
        """Change a group: lock it, and append all records of the change durably when the block ends, or none.

        This locks all groups of the partition, also for other processes. The state includes every earlier commit.
        """
        check_group_name(name)
        if self._read_only:
            raise UsageError(f"{self._topics.root} is open read-only; open it without read_only to change groups")
        with translated(f"group {name!r} cannot be changed"):
            partition = self._ensure_partition_of(name)
            offsets = self._partitions.get(partition) or self._offsets_partition(partition)
            with offsets.lock:
                try:
                    with self._table.borrow(partition, wait_s=LOCK_WAIT_S, stays_open=True) as log:
                        offsets.catch_up(log)
                        change = GroupChange(name, offsets.groups.get(name) or Group(name), self._clock.now_ms())
                        yield change
                        if change.pending:
                            offsets.append(log, change)
                except LogFailed:
                    # The appended records may be lost, and their offsets may go to another commit.
                    offsets.reset()
                    raise

    def _ensure_partition_of(self, name: str) -> TopicPartition:
        """Return the partition for a group's records. Create `__consumer_offsets` if it does not exist."""
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
        """Set a group's offsets. A member may commit for its own partitions, and a non-member only for an idle group.

        `topic_ids` are the ids of the topics that were read. For other partitions the current topic counts.
        """
        if not offsets:
            return
        began = self._clock.monotonic()
        try:
            self._commit(name, offsets, member_id=member_id, read=topic_ids or {})
        except BaseException:
            with self._lock:
                self.metrics.commit_failures += 1
            raise
        with self._lock:
            self.metrics.commit_seconds.observe(self._clock.monotonic() - began)

    def _commit(
        self,
        name: str,
        offsets: Mapping[TopicPartition, int | tuple[int, str]],
        *,
        member_id: str | None,
        read: Mapping[TopicPartition, str],
    ) -> None:
        self._topics.refresh()
        self._check_topics(read)
        # Before the logs are read: a topic that is recreated in between must not be taken for the one that was checked.
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
                    # A member that is only late rejoins, and starts at the offsets committed here.
                    change.put_state(GroupState())
            else:
                own = members[member_id].assignment if member_id in members else frozenset()
                strange = sorted(set(committed) - own)
                if strange:
                    raise CommitRefused(
                        f"{', '.join(map(str, strange))} no longer belongs to this member of group {name!r}: another "
                        "member has it and continues at the last commit"
                    )
            # The topics are as of the lock. A deletion changes the catalog before it acquires the lock to delete the
            # group's offsets. So either the deletion is seen here, or it sees this commit.
            self._check_topics(asked)
            change.put_offsets(committed)

    def _check_topics(self, topic_ids: Mapping[TopicPartition, str]) -> None:
        """Raise `CommitRefused` for offsets of topics that were deleted or recreated."""
        for partition, topic_id in topic_ids.items():
            if self._topics.check(partition).topic_id != topic_id:
                raise CommitRefused(
                    f"topic {partition.topic!r} was deleted and recreated since {partition} was read, so the offset is "
                    "meaningless in the new topic. Nothing was committed; the next poll starts at the new topic"
                )

    def _checked(self, partition: TopicPartition, value: int | tuple[int, str]) -> CommittedOffset:
        offset, metadata = value if isinstance(value, tuple) and len(value) == 2 else (value, "")
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise UsageError(f"commit an offset, or a pair of an offset and a text, not {value!r}")
        if metadata != "":
            check_text("metadata of a commit", metadata, max_bytes=MAX_METADATA_BYTES)
        log = self._table.reading(partition)
        if 0 <= offset <= log.known_watermark:
            # A member commits what it has read, so the last look at the log is enough: another takes a millisecond.
            return self._checked_in(log, partition, offset, metadata)
        return self._table.ask(partition, lambda log: self._checked_in(log, partition, offset, metadata))

    def _checked_in(self, log: LogReader, partition: TopicPartition, offset: int, metadata: str) -> CommittedOffset:
        if not 0 <= offset <= log.known_watermark:
            seen = take_snapshot(log)
            if not 0 <= offset <= seen.log_end_offset:
                raise OffsetOutOfRange(
                    offset,
                    log_start_offset=seen.log_start_offset,
                    log_end_offset=seen.log_end_offset + 1,
                    what=f"the offset to commit for {partition},",
                )
        # A commit is durable, so the records before it must be, too: after a power loss new records would get their
        # offsets, and the group would skip them. If another process writes them, its flush policy decides.
        self._table.flush(partition, below=offset)
        return CommittedOffset(
            offset=offset,
            leader_epoch=log.leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=self._clock.now_ms(),
        )

    def delete(self, name: str) -> None:
        """Delete a group and its offsets. Raises `GroupInUse` if it has members."""
        self.find(name)
        with self.changing(name) as change:
            self.check_idle(change.group)
            change.put_offsets(dict.fromkeys(change.group.offsets))
            change.drop_state()

    def forget_topic(self, topic: str) -> None:
        """Delete the offsets that all groups have committed for a topic.

        Every partition is locked, even one without such offsets: another process may be committing now.
        """
        if not self._topics.has(CONSUMER_OFFSETS):
            return
        for number in self._topics.find(CONSUMER_OFFSETS).partitions:
            partition = TopicPartition(CONSUMER_OFFSETS, number)
            offsets = self._offsets_partition(partition)
            with offsets.lock:
                # Read the log again: what was read before may have been lost by another process's failed sync.
                offsets.reset()
                try:
                    with self._table.borrow(partition, wait_s=LOCK_WAIT_S, stays_open=True) as log:
                        offsets.catch_up(log)
                        _append_in_batches(log, offsets.tombstones_of(topic))
                finally:
                    offsets.reset()


def _append_in_batches(log: Log, tombstones: list[Record]) -> None:
    """Append tombstones in as many batches as needed.

    The offsets of a deleted topic were committed one by one; all of their tombstones may not fit in one batch.
    """
    try:
        if tombstones:
            log.append_many(tombstones)
    except RecordTooLarge:
        half = len(tombstones) // 2
        if not half:
            raise
        _append_in_batches(log, tombstones[:half])
        _append_in_batches(log, tombstones[half:])


def check_text(what: str, text: object, *, max_bytes: int) -> None:
    """Raise `UsageError` if a value is not a text, or is too long, for a field of a group's records."""
    try:
        fits = isinstance(text, str) and len(text.encode()) <= max_bytes
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise UsageError(f"{what} must be a text of at most {max_bytes:,} bytes in UTF-8")


def check_group_name(name: str) -> None:
    """Raise `InvalidName` for an invalid group name."""
    if not isinstance(name, str) or not name:
        raise InvalidName(f"{name!r} cannot name a group; pass a text of 1 to {MAX_GROUP_NAME_BYTES:,} bytes")
    try:
        check_text("a group's name", name, max_bytes=MAX_GROUP_NAME_BYTES)
    except UsageError as error:
        raise InvalidName(str(error)) from None
    if _CONTROL.search(name) or name != name.strip():
        raise InvalidName(f"{name!r} cannot name a group: remove control characters, and blanks at its ends")


@lru_cache(maxsize=1024)
def java_hash(text: str) -> int:
    """Return the absolute value of Java's hash of a string. Kafka chooses a group's partition by it."""
    hashed = 0
    data = text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        hashed = (31 * hashed + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    # The smallest int has no absolute value in Java; Kafka uses 0.
    return 0 if signed == -(1 << 31) else abs(signed)
