"""Every file and topic name, and the rules for them.

Kafka's files in a partition directory:
    %020d.log .index .timeindex   a segment, named after its base offset
    %020d.snapshot                the state of producers below the offset in the name
    leader-epoch-checkpoint       the start offset of each leader epoch
    .deleted .cleaned .swap       suffixes of segments being deleted or compacted

seeklog's files, which Kafka ignores there:
    %020d.seal                    sizes, counts and checksums of a sealed segment
    %020d.keyindex                the last offset of each key in a sealed segment
    %020d.<position>.torn         bytes that recovery cut from a segment, kept as evidence
    %020d.<position>.damaged      bytes that a repair removed from a segment, kept as evidence
    seeklog-checkpoint            recovery point, log start offset, high watermark, clean shutdown
    seeklog-checkpoint.stale      the checkpoint from before a broker used the directory, kept as evidence
    seeklog-watermark             the high watermark, published for other processes
    seeklog-losses                offsets that a repair gave up, and why
    seeklog-staged-<app>-<time>-<id>   finished batches of an uncommitted transaction
    seeklog-member-<id>           locked by a member of a consumer group, in a partition of __consumer_offsets
    .lock                         locked by the writer, contains its process id
    .waiting                      locked by the process whose turn to write is next

A store's root contains, in Kafka's format, a directory `<topic>-<partition>` for each partition, `.lock`, and the
offset checkpoints of all partitions. seeklog adds only files, because a broker refuses to start on any other directory:
    seeklog-topics                the topics, their partitions and configurations
    seeklog-topics.lock           locked while seeklog-topics changes
    seeklog-transaction-<app>     what an application's last transaction appends, or that it is complete
    seeklog-transaction-<app>.lock     locked during its commit
    seeklog-producer-<name>       the id and epoch of a named producer
    seeklog-producer-<name>.lock  locked while that file changes, and by a producer that resumes
    seeklog-archive.json          in the root of an archive: its manifest
    seeklog-archive.lock          locked while a process archives to a directory
    seeklog-restore               what is being restored from an archive; removed when the store is whole
    seeklog-restore.lock          locked during a restore
    seeklog-group-offsets.csv     committed offsets, for Kafka's own tool

A lake is a separate directory: `_seeklog/manifest`, `_seeklog/lock`, and the Parquet files
`topic=<topic>/date=<day>/part-<partition>-<start>-<next>-<number>.parquet`, hidden until their job commits.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

from seeklog.errors import InvalidName

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
SEAL: Final = ".seal"
KEY_INDEX: Final = ".keyindex"
SNAPSHOT: Final = ".snapshot"
TRANSACTION_INDEX: Final = ".txnindex"
TORN: Final = ".torn"
DAMAGED: Final = ".damaged"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"

CHECKPOINT: Final = "seeklog-checkpoint"
STALE_CHECKPOINT: Final = "seeklog-checkpoint.stale"
WATERMARK: Final = "seeklog-watermark"
LOSSES: Final = "seeklog-losses"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
LOCK: Final = ".lock"
WAITING: Final = ".waiting"
MEMBER: Final = "seeklog-member-"
STAGED: Final = "seeklog-staged-"

TOPICS: Final = "seeklog-topics"
ARCHIVE: Final = "seeklog-archive.json"
ARCHIVE_LOCK: Final = "seeklog-archive.lock"
RESTORE: Final = "seeklog-restore"
RESTORE_LOCK: Final = "seeklog-restore.lock"
TOPICS_LOCK: Final = "seeklog-topics.lock"
TRANSACTION: Final = "seeklog-transaction-"
PRODUCER: Final = "seeklog-producer-"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP: Final = "bootstrap.checkpoint"
GROUP_OFFSETS: Final = "seeklog-group-offsets.csv"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
DELETED_DIRECTORY: Final = "-delete"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
# Topics that a broker reserves for itself. A store writes only the first, through commits.
INTERNAL_TOPICS: Final = frozenset(
    {
        CONSUMER_OFFSETS,
        "__cluster_metadata",
        "__remote_log_metadata",
        "__share_group_state",
        TRANSACTION_STATE,
    }
)
MAX_TOPIC_NAME_LENGTH: Final = 249
MAX_FILE_NAME_LENGTH: Final = 255

SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, SEAL, KEY_INDEX)
# Files deleted together with a segment, including a broker's.
BESIDE_LOG: Final = (OFFSET_INDEX, TIME_INDEX, SEAL, KEY_INDEX, TRANSACTION_INDEX)
# What fsspec accepts as a URL: a scheme, or several chained.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)", re.ASCII)
_HALF_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)", re.ASCII)
_SEGMENT_NAME: Final = re.compile(r"(\d{20})(\.[a-z]+)\Z", re.ASCII)
_TORN_NAME: Final = re.compile(r"(\d{20})\.(\d+)(?:\.\d+)?\.torn\Z", re.ASCII)
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+\Z", re.ASCII)
# No leading zeros: a partition has exactly one name.
_PARTITION_NAME: Final = re.compile(r"(.+)-(0|[1-9]\d{0,9})\Z", re.ASCII)
_STAGED_NAME: Final = re.compile(r"seeklog-staged-([0-9a-f]{16})-([0-9a-f]{12})-[0-9a-f]{32}\Z", re.ASCII)
_PRODUCER_NAME: Final = re.compile(r"seeklog-producer-([0-9a-f]{16})\Z", re.ASCII)
_TRANSACTION_NAME: Final = re.compile(r"seeklog-transaction-([0-9a-f]{16})\Z", re.ASCII)
_TEMPORARY_NAME: Final = re.compile(r".+\.[0-9a-f]{32}\.tmp\Z", re.ASCII)
_LEFTOVER_NAME: Final = re.compile(r".+-\d+\.[0-9a-f]{32}-(stray|future)\Z", re.ASCII)
_DELETED_NAME: Final = re.compile(r".+\.[0-9a-f]{32}-delete\Z", re.ASCII)
_KNOWN_NAME: Final = re.compile(
    r"(\d{20}\..+"
    r"|seeklog-(checkpoint|watermark|losses)(\.tmp)?"
    r"|seeklog-checkpoint\.stale(\.tmp)?"
    r"|seeklog-(member|staged)-.+"
    r"|leader-epoch-checkpoint(\.tmp)?"
    r"|partition\.metadata(\.tmp)?"
    r"|\.(lock|waiting))\Z",
    re.ASCII,
)


def is_url(path: str) -> bool:
    """Return whether a path is a URL such as s3://bucket/path, not a directory name."""
    return _URL.match(path) is not None


def check_location(path: str) -> None:
    """Raise `InvalidName` for an empty path, and for a URL with a slash missing: s3:/bucket would name a directory."""
    if not path:
        raise InvalidName("the path is empty; name a directory, or pass . for the current one")
    match = _HALF_URL.match(path)
    if match is not None:
        # The path of a file's URL begins with a slash of its own.
        meant = f"{match[1]}://{'/' if match[1].lower() == 'file' else ''}{path[match.end() :]}"
        raise InvalidName(f"{path!r} looks like a URL with a slash missing; write {meant}, or ./{path} for a directory")


def segment_name(base_offset: int, suffix: str) -> str:
    """Return a segment file's name: the base offset in 20 digits, then the suffix."""
    return f"{base_offset:020d}{suffix}"


def temporary_name(path: str, unique: str) -> str:
    """Return a unique temporary name for a file that several writers may write; `unique` is 32 hex digits."""
    return f"{path}.{unique}{TEMPORARY}"


def is_temporary(name: str) -> bool:
    """Return whether `temporary_name` made this name."""
    return _TEMPORARY_NAME.match(name) is not None


def torn_name(base_offset: int, position: int, attempt: int = 0) -> str:
    """Return the name for bytes cut at `position`; `attempt` distinguishes later cuts at the same position."""
    number = f".{attempt}" if attempt else ""
    return f"{base_offset:020d}.{position}{number}{TORN}"


def damaged_name(base_offset: int, position: int, attempt: int = 0) -> str:
    """Return the name for damaged bytes that a repair moved away from `position`."""
    number = f".{attempt}" if attempt else ""
    return f"{base_offset:020d}.{position}{number}{DAMAGED}"


def parse_torn_name(name: str) -> tuple[int, int] | None:
    """Return (base offset, position) from the name of bytes cut by recovery, or None for other names."""
    match = _TORN_NAME.match(name)
    return (int(match[1]), int(match[2])) if match else None


def parse_segment_name(name: str) -> tuple[int, str] | None:
    """Return (base offset, suffix) from a segment file's name, or None for other names."""
    match = _SEGMENT_NAME.match(name)
    return (int(match[1]), match[2]) if match else None


def app_key(app: str) -> str:
    """Return the key that stands for an application in file names. An application's name may be any text."""
    try:
        return hashlib.sha256(app.encode()).hexdigest()[:16]
    except UnicodeEncodeError:
        raise InvalidName(f"{app[:80]!a} is not text: it contains half of a surrogate pair") from None


def staged_name(key: str, *, now_ms: int, unique: str) -> str:
    """Return the name of a file of batches that the application with this key stages."""
    return f"{STAGED}{key}-{max(0, now_ms):012x}-{unique}"


def parse_staged_name(name: str) -> tuple[str, int] | None:
    """Return (application key, time of staging in ms) from a staged file's name, or None for other names."""
    match = _STAGED_NAME.match(name)
    return (match[1], int(match[2], 16)) if match else None


def producer_name(key: str) -> str:
    """Return the name of the file that contains a named producer's id and epoch."""
    return f"{PRODUCER}{key}"


def transaction_name(key: str) -> str:
    """Return the name of the file that describes an application's last transaction."""
    return f"{TRANSACTION}{key}"


def parse_transaction_name(name: str) -> str | None:
    """Return the application key from a transaction file's name, or None for other names."""
    match = _TRANSACTION_NAME.match(name)
    return match[1] if match else None


def is_archived_root_file(name: str) -> bool:
    """Return whether a file of a store's root belongs to a backup: a named producer or a transaction."""
    return _PRODUCER_NAME.match(name) is not None or _TRANSACTION_NAME.match(name) is not None


def is_known(name: str) -> bool:
    """Return whether a file name is evidence that its directory is a partition."""
    return _KNOWN_NAME.match(name) is not None


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return the name of the partition's directory."""
        return f"{self.topic}-{self.partition}"


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int


def is_topic_name(name: str) -> bool:
    """Return whether a topic can have this name, by Kafka's rule."""
    return len(name) <= MAX_TOPIC_NAME_LENGTH and name not in (".", "..") and _TOPIC_NAME.match(name) is not None


def check_topic_name(name: str) -> None:
    """Raise `InvalidName` if a topic cannot have this name."""
    if not isinstance(name, str):
        raise InvalidName(f"a topic name must be a str, not {type(name).__name__}")
    if not is_topic_name(name):
        shown = name if len(name) <= 80 else f"{name[:77]}..."
        raise InvalidName(
            f"{shown!r} cannot name a topic: 1 to {MAX_TOPIC_NAME_LENGTH} of the characters A-Z a-z 0-9 . _ - "
            'are allowed, and neither "." nor ".."'
        )


def check_not_internal(name: str) -> None:
    """Raise `InvalidName` for Kafka's internal topics, which users cannot create, change or delete."""
    if name in INTERNAL_TOPICS:
        raise InvalidName(
            f"{name} is Kafka's own topic: it cannot be created, changed or deleted by hand; name another"
        )


def parse_partition_name(name: str) -> TopicPartition | None:
    """Return the partition that a directory of this name holds, or None for other names."""
    match = _PARTITION_NAME.match(name)
    if match is None or not is_topic_name(match[1]) or int(match[2]) >= 2**31:
        return None
    return TopicPartition(match[1], int(match[2]))


def deleted_directory(partition: TopicPartition, unique: str) -> str:
    """Return Kafka's name for the directory of a partition being deleted, cut to the maximum length of a file name."""
    suffix = f"-{partition.partition}.{unique}{DELETED_DIRECTORY}"
    return f"{partition.topic[: MAX_FILE_NAME_LENGTH - len(suffix)]}{suffix}"


def parse_leftover_directory(name: str) -> str | None:
    """Return "stray" or "future" from the name of a directory that a broker renamed, None for other names.

    A stray directory belongs to a topic that the broker's cluster does not know. A future one is the unfinished copy
    of a partition that is moving to another disk.
    """
    match = _LEFTOVER_NAME.match(name)
    return match[1] if match else None


def is_deleted_directory(name: str) -> bool:
    """Return whether a directory in a store's root is waiting to be deleted."""
    return _DELETED_NAME.match(name) is not None


# ---------------------------------------------------------------- a lake: Parquet files exported from a store

LAKE: Final = "_seeklog"
LAKE_MANIFEST: Final = "manifest"
LAKE_LOCK: Final = "lock"
# Null for Hive and Spark: a timestamp outside the calendar dates with four-digit years.
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
_DATE: Final = rf"(?:\d{{4}}-\d{{2}}-\d{{2}}|{NO_DATE})"
_LAKE_FILE: Final = re.compile(
    rf"topic=([A-Za-z0-9._-]+)/date=({_DATE})/part-(0|[1-9]\d{{0,9}})-\d{{20}}-\d{{20}}-\d{{4,}}\.parquet\Z", re.ASCII
)
_HIDDEN_LAKE_FILE: Final = re.compile(r"\.(part-.+\.parquet)\.[0-9a-f]{32}\Z", re.ASCII)


def lake_directory(topic: str, date: str) -> str:
    """Return the path, relative to the lake, of a topic's records of one day in UTC, or of `NO_DATE`."""
    return f"topic={topic}/date={date}"


def lake_file_name(partition: int, *, start: int, next_offset: int, number: int) -> str:
    """Return the name of a file with a partition's records from `start` (inclusive) to `next_offset` (exclusive)."""
    return f"part-{partition}-{start:020d}-{next_offset:020d}-{number:04d}.parquet"


def hidden_lake_file(name: str, unique: str) -> str:
    """Return a file's name until its job commits. Spark and other readers ignore names that start with a dot."""
    return f".{name}.{unique}"


def parse_lake_file(path: str) -> TopicPartition | None:
    """Return the partition of a lake file by its path relative to the lake, or None for other paths."""
    match = _LAKE_FILE.match(path)
    if match is None or not is_topic_name(match[1]):
        return None
    return TopicPartition(match[1], int(match[3]))


def shown_lake_file(name: str) -> str:
    """Return the final name of a hidden file, or the name itself."""
    match = _HIDDEN_LAKE_FILE.match(name)
    return match[1] if match else name
