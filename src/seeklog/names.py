"""Every file and topic name, and the rules for them.

Kafka's own, in a partition's directory:
    %020d.log .index .timeindex   a segment, named after its base offset
    %020d.snapshot                what is known of producers, named after the offset that it goes up to
    leader-epoch-checkpoint       where each leader epoch starts
    .deleted .cleaned .swap       suffixes of segments that are leaving or arriving

seeklog's, which Kafka ignores there:
    %020d.seal                    proof of a sealed segment
    %020d.keyindex                where each key of a sealed segment stands for the last time
    %020d.<position>.torn         bytes that recovery cut from a segment, kept as evidence
    %020d.<position>.damaged      bytes that a repair took out of a segment, kept as evidence
    seeklog-checkpoint            recovery point, start offset, high watermark, clean shutdown
    seeklog-checkpoint.stale      the checkpoint from before a broker's visit, kept as evidence
    seeklog-watermark             the high watermark, published for other processes
    seeklog-losses                offsets that a repair has given up, and why
    seeklog-staged-<app>-<time>-<id>   finished batches that wait for their transaction to be committed
    seeklog-member-<id>           held by a member of a consumer group, in a partition of __consumer_offsets
    .lock                         held by the one writer, holds its pid

In the root of a store, Kafka's: a directory `<topic>-<partition>` for each partition, `.lock`, and the offset
checkpoints of all of them. seeklog's, which are files only, because a broker refuses to start on a directory that
is no partition:
    seeklog-topics                the topics, their partitions and configurations
    seeklog-topics.lock           held while the former changes
    seeklog-transaction-<app>     what an application's last transaction appends, or that it is done
    seeklog-transaction-<app>.lock     held while it is committed
    seeklog-producer-<name>       the id and epoch of a named producer
    seeklog-producer-<name>.lock  held while the former changes, and by a producer that resumes
    seeklog-archive.json          in the root of an archive: what has been copied there
    seeklog-archive.lock          held while somebody archives to a directory
    seeklog-group-offsets.csv     what groups have committed, for a tool of Kafka's

In a lake, which is a directory of its own: `_seeklog/manifest`, `_seeklog/lock`, and the Parquet files
`topic=<topic>/date=<day>/part-<partition>-<start>-<next>-<number>.parquet`, hidden until their job is committed.
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
MEMBER: Final = "seeklog-member-"
STAGED: Final = "seeklog-staged-"

TOPICS: Final = "seeklog-topics"
ARCHIVE: Final = "seeklog-archive.json"
ARCHIVE_LOCK: Final = "seeklog-archive.lock"
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
# Topics that a broker keeps for itself. Of these a store writes the first alone, and that by commits.
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
# What goes with a segment when it is deleted, a broker's files among them.
BESIDE_LOG: Final = (OFFSET_INDEX, TIME_INDEX, SEAL, KEY_INDEX, TRANSACTION_INDEX)
# What fsspec takes for an address: a scheme, or several of them chained.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)", re.ASCII)
_SEGMENT_NAME: Final = re.compile(r"(\d{20})(\.[a-z]+)\Z", re.ASCII)
_TORN_NAME: Final = re.compile(r"(\d{20})\.(\d+)(?:\.\d+)?\.torn\Z", re.ASCII)
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+\Z", re.ASCII)
# No leading zeros: a partition has one name.
_PARTITION_NAME: Final = re.compile(r"(.+)-(0|[1-9]\d{0,9})\Z", re.ASCII)
_STAGED_NAME: Final = re.compile(r"seeklog-staged-([0-9a-f]{16})-([0-9a-f]{12})-[0-9a-f]{32}\Z", re.ASCII)
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
    r"|\.lock)\Z",
    re.ASCII,
)


def is_url(path: str) -> bool:
    """Tell whether a path is an address such as s3://bucket/path, and not the name of a directory."""
    return _URL.match(path) is not None


def segment_name(base_offset: int, suffix: str) -> str:
    """Return a segment file's name: the base offset in 20 digits, and the suffix."""
    return f"{base_offset:020d}{suffix}"


def temporary_name(path: str, unique: str) -> str:
    """Return what a file is called while one of several that may be at it writes it; `unique` is 32 hex digits."""
    return f"{path}.{unique}{TEMPORARY}"


def is_temporary(name: str) -> bool:
    """Tell whether a name is one that `temporary_name` gave."""
    return _TEMPORARY_NAME.match(name) is not None


def torn_name(base_offset: int, position: int, attempt: int = 0) -> str:
    """Return the name under which bytes cut at `position` are kept; `attempt` tells apart later cuts there."""
    number = f".{attempt}" if attempt else ""
    return f"{base_offset:020d}.{position}{number}{TORN}"


def damaged_name(base_offset: int, position: int, attempt: int = 0) -> str:
    """Return the name under which a repair keeps the damaged bytes that stood at `position`."""
    number = f".{attempt}" if attempt else ""
    return f"{base_offset:020d}.{position}{number}{DAMAGED}"


def parse_torn_name(name: str) -> tuple[int, int] | None:
    """Return (base offset, position) of the name of bytes that recovery has cut, or None if it is none."""
    match = _TORN_NAME.match(name)
    return (int(match[1]), int(match[2])) if match else None


def parse_segment_name(name: str) -> tuple[int, str] | None:
    """Return (base offset, suffix) of a segment file's name, or None if it is not one."""
    match = _SEGMENT_NAME.match(name)
    return (int(match[1]), match[2]) if match else None


def app_key(app: str) -> str:
    """Return what stands for an application in the names of its files: it may be called anything that is text."""
    try:
        return hashlib.sha256(app.encode()).hexdigest()[:16]
    except UnicodeEncodeError:
        raise InvalidName(f"{app[:80]!a} is no text: it holds half of a surrogate pair") from None


def staged_name(key: str, *, now_ms: int, unique: str) -> str:
    """Return the name of a file of batches that an application, by its key, stages at a time."""
    return f"{STAGED}{key}-{max(0, now_ms):012x}-{unique}"


def parse_staged_name(name: str) -> tuple[str, int] | None:
    """Return (the application's key, when it was staged) of a staged file's name, or None if it is none."""
    match = _STAGED_NAME.match(name)
    return (match[1], int(match[2], 16)) if match else None


def producer_name(key: str) -> str:
    """Return the name of the file that holds the id and epoch of a named producer, by its key."""
    return f"{PRODUCER}{key}"


def transaction_name(key: str) -> str:
    """Return the name of the file that holds an application's last transaction."""
    return f"{TRANSACTION}{key}"


def parse_transaction_name(name: str) -> str | None:
    """Return the key of the application whose transaction a file holds, or None if it is none."""
    match = _TRANSACTION_NAME.match(name)
    return match[1] if match else None


def is_known(name: str) -> bool:
    """Tell whether a name in a directory speaks for a partition."""
    return _KNOWN_NAME.match(name) is not None


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return the name of the partition's directory."""
        return f"{self.topic}-{self.partition}"


def is_topic_name(name: str) -> bool:
    """Tell whether a topic can have this name. The rule is Kafka's."""
    return len(name) <= MAX_TOPIC_NAME_LENGTH and name not in (".", "..") and _TOPIC_NAME.match(name) is not None


def check_topic_name(name: str) -> None:
    """Refuse what cannot name a topic."""
    if not isinstance(name, str):
        raise InvalidName(f"a topic's name is a str, not {type(name).__name__}")
    if not is_topic_name(name):
        shown = name if len(name) <= 80 else f"{name[:77]}..."
        raise InvalidName(
            f"{shown!r} cannot name a topic: 1 to {MAX_TOPIC_NAME_LENGTH} of the characters A-Z a-z 0-9 . _ - "
            'are allowed, and neither "." nor ".."'
        )


def check_not_internal(name: str) -> None:
    """Refuse to let a user make, change or delete one of Kafka's own topics."""
    if name in INTERNAL_TOPICS:
        raise InvalidName(f"{name} is Kafka's own: it is not made, changed or deleted by hand")


def parse_partition_name(name: str) -> TopicPartition | None:
    """Return which partition a directory of this name holds, or None if it is no partition's."""
    match = _PARTITION_NAME.match(name)
    if match is None or not is_topic_name(match[1]) or int(match[2]) >= 2**31:
        return None
    return TopicPartition(match[1], int(match[2]))


def deleted_directory(partition: TopicPartition, unique: str) -> str:
    """Return what Kafka calls the directory of a partition that is being deleted; it fits in a file's name."""
    suffix = f"-{partition.partition}.{unique}{DELETED_DIRECTORY}"
    return f"{partition.topic[: MAX_FILE_NAME_LENGTH - len(suffix)]}{suffix}"


def parse_leftover_directory(name: str) -> str | None:
    """Return "stray" or "future" for the directory of a partition that a broker has set aside, None for any other.

    A stray one is of a topic that the broker's cluster does not know; a future one is the unfinished copy of a
    partition that moves to another disk.
    """
    match = _LEFTOVER_NAME.match(name)
    return match[1] if match else None


def is_deleted_directory(name: str) -> bool:
    """Tell whether a directory in a store's root waits for its removal."""
    return _DELETED_NAME.match(name) is not None


# ---------------------------------------------------------------- a lake: Parquet files beside a store

LAKE: Final = "_seeklog"
LAKE_MANIFEST: Final = "manifest"
LAKE_LOCK: Final = "lock"
# What Hive and Spark take for null: a time that no calendar date of four digits has.
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
_DATE: Final = rf"(?:\d{{4}}-\d{{2}}-\d{{2}}|{NO_DATE})"
_LAKE_FILE: Final = re.compile(
    rf"topic=([A-Za-z0-9._-]+)/date=({_DATE})/part-(0|[1-9]\d{{0,9}})-\d{{20}}-\d{{20}}-\d{{4,}}\.parquet\Z", re.ASCII
)
_HIDDEN_LAKE_FILE: Final = re.compile(r"\.(part-.+\.parquet)\.[0-9a-f]{32}\Z", re.ASCII)


def lake_directory(topic: str, date: str) -> str:
    """Return the directory, below a lake's own, of a topic's records of one day in UTC, or of `NO_DATE`."""
    return f"topic={topic}/date={date}"


def lake_file_name(partition: int, *, start: int, next_offset: int, number: int) -> str:
    """Return the name of a file that holds records of a partition's offsets from `start` to `next_offset`."""
    return f"part-{partition}-{start:020d}-{next_offset:020d}-{number:04d}.parquet"


def hidden_lake_file(name: str, unique: str) -> str:
    """Return what a file is called until its job is committed: Spark and others pass over names with a dot."""
    return f".{name}.{unique}"


def parse_lake_file(path: str) -> TopicPartition | None:
    """Return which partition a file is about, by its path below the lake's directory; None if it is no lake's."""
    match = _LAKE_FILE.match(path)
    if match is None or not is_topic_name(match[1]):
        return None
    return TopicPartition(match[1], int(match[3]))


def shown_lake_file(name: str) -> str:
    """Return the name that a hidden file is to have, or the name itself."""
    match = _HIDDEN_LAKE_FILE.match(name)
    return match[1] if match else name
