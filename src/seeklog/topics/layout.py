"""The directories of partitions: creating and deleting them, and finding those that a broker left."""

from __future__ import annotations

import contextlib
import errno
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from seeklog import names
from seeklog.clock import Clock
from seeklog.errors import NotALog, TopicExists, UsageError
from seeklog.files import SHORT_WAIT_S, Files, Handle, Kind, is_full, retry_while_locked
from seeklog.log import lock_directory
from seeklog.names import TopicPartition
from seeklog.topics.catalog import NO_TOPIC_ID, Catalog, Topic, are_different

logger = logging.getLogger("seeklog")

# Every setting that can delete records of a topic, for one whose settings are not known. They are its own settings, so
# no default of a process applies.
ADOPTED_CONFIG: Final[Mapping[str, object]] = {"cleanup.policy": "delete", "retention.bytes": -1, "retention.ms": -1}
# A broker always creates these topics as compacted.
ADOPTED_COMPACTED_CONFIG: Final[Mapping[str, object]] = {"cleanup.policy": "compact", "segment.bytes": 100 << 20}
COMPACTED_TOPICS: Final = (names.CONSUMER_OFFSETS, names.TRANSACTION_STATE)
_OURS = (names.TOPICS, names.META_PROPERTIES, names.RECOVERY_POINTS, names.LOG_START_OFFSETS, names.HIGH_WATERMARKS)


def check_root(files: Files, root: str, *, create: bool) -> dict[str, Kind]:
    """Check that `root` is a store, or with `create` may become one. Return its entries.

    Refuses a directory with other contents only, the directory of a single partition, and symbolic links.
    """
    try:
        if create:
            files.make_directory(root)
        kinds = files.kinds(root)
    except NotADirectoryError as error:
        raise NotALog(f"{root} is a file; a store is a directory") from error
    except FileNotFoundError as error:
        if create:
            raise NotALog(f"no directory can be created at {root}; check the path") from error
        raise no_store(root) from error
    if not create:
        check_is_restored(root, kinds)
    for name, kind in kinds.items():
        if kind in ("link", "other") and (names.parse_partition_name(name) or name in _OURS):
            raise NotALog(
                f"{root}/{name} is {'a symbolic link' if kind == 'link' else 'not a file or directory'}, and a store "
                "follows no links. Replace it by what it points to; nothing was changed"
            )
    if names.ARCHIVE in kinds and create:
        raise UsageError(
            f"{root} is an archive, and an archive can only be read: open it with read_only=True. To write its topics, "
            f"restore it: seeklog restore {root} DIR"
        )
    if names.TOPICS in kinds:
        return kinds
    if any(names.parse_segment_name(name) for name in kinds):
        raise NotALog(f"{root} is the directory of one partition; open it with seeklog.Log, or its parent as a store")
    is_store = any(name in _OURS or _holds_log(files, root, name, kind) for name, kind in kinds.items())
    if kinds and not is_store and not all(map(_precedes_catalog, kinds)):
        other = next(name for name in kinds if not _precedes_catalog(name))
        if create:
            raise NotALog(f"{root} holds other files, such as {other!r}; give the store a directory of its own")
        raise NotALog(f"{root} is not a store: it holds other files, such as {other!r}; check the path")
    if not create and not is_store:
        raise no_store(root, why=": the directory has no topics")
    return kinds


def check_is_restored(root: str, listing: Collection[str]) -> None:
    """Raise `NotALog` for a directory to which an archive is being restored: parts of it are missing."""
    if names.RESTORE in listing:
        raise NotALog(
            f"{root} is an unfinished restore of an archive; run `seeklog restore` again to complete it, or empty the "
            "directory"
        )


def no_store(root: str, *, why: str = "", is_opened: bool = True) -> NotALog:
    """Return the error for a location without a store. One that `is_opened` can be created."""
    if names.is_url(root):
        return NotALog(f"there is no store at {root}{why}; check the bucket and the path of the URL")
    otherwise = ", or open it without read_only to create a store" if is_opened else ""
    return NotALog(f"there is no store at {root}{why}; check the path{otherwise}")


def _holds_log(files: Files, root: str, name: str, kind: Kind) -> bool:
    """Return whether a directory is named like a partition and holds a log. Other directories have such names, too."""
    if kind != "directory" or names.parse_partition_name(name) is None:
        return False
    try:
        return any(file_name.endswith(names.LOG) for file_name in files.list(f"{root}/{name}"))
    except (PermissionError, FileNotFoundError):
        return False


def _precedes_catalog(name: str) -> bool:
    """Return whether a name is one that a store creates before its catalog; a crash may leave only these."""
    return name in (names.TOPICS_LOCK, names.LOCK, names.TOPICS + names.TEMPORARY)


def partition_path(root: str, partition: TopicPartition) -> str:
    return f"{root}/{partition}"


def is_opened(files: Files, root: str, partition: TopicPartition) -> bool:
    """Return whether a writer has opened a partition: only then it has a checkpoint."""
    try:
        return files.kind(f"{partition_path(root, partition)}/{names.CHECKPOINT}") == "file"
    except FileNotFoundError:
        return False


def awaits_directory(files: Files, root: str, topic: Topic, number: int) -> bool:
    """Return whether a partition has no directory yet: a kill or a power loss came right after its topic was created.

    The next open for writing creates it. A missing directory of any other partition is a loss.
    """
    if number not in topic.unopened:
        return False
    try:
        files.kind(partition_path(root, TopicPartition(topic.name, number)))
    except FileNotFoundError:
        return True
    return False


def check_no_directory(files: Files, root: str, topic: str, numbers: Iterable[int]) -> None:
    """Refuse to create partitions over directories that exist and are not the store's."""
    for number in numbers:
        path = partition_path(root, TopicPartition(topic, number))
        with contextlib.suppress(FileNotFoundError):
            files.kind(path)
            raise TopicExists(f"{path} exists, but the catalog does not list it. Move it away; nothing was changed")


def prepare_partition(files: Files, root: str, partition: TopicPartition, *, topic_id: str, durable: bool) -> None:
    """Create what is missing of a partition that no writer has opened: its directory, its id, and an empty log.

    The caller holds the catalog's lock, so the topic is not deleted meanwhile. Nothing needs to be durable before the
    first writer acknowledges a record: it passes `durable`, which syncs the id, and opening the log syncs the names.
    """
    path = partition_path(root, partition)
    files.make_directory(path)
    if not _has_log(files.list(path)):
        for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
            files.close(files.open(f"{path}/{names.segment_name(0, suffix)}", write=True, create=True))
    _write_topic_id(files, path, topic_id, durable=durable)


def is_prepared(files: Files, root: str, partition: TopicPartition, *, topic_id: str, durable: bool) -> bool:
    """Return whether a partition has a log and its topic's id. With `durable`, sync the id. Nothing is created."""
    path = partition_path(root, partition)
    try:
        if not _has_log(files.list(path)):
            return False
        handle = Handle(files, f"{path}/{names.PARTITION_METADATA}", write=durable)
    except FileNotFoundError:
        return False
    data = topic_metadata(topic_id)
    if files.read(handle.number, len(data) + 1, 0) != data:
        return False
    if durable:
        files.sync(handle.number)
    return True


def _has_log(listing: Collection[str]) -> bool:
    """Return whether a partition has a segment, or was opened by a writer that could not note it in the catalog."""
    return names.CHECKPOINT in listing or any(name.endswith((names.LOG, names.LOG + names.SWAP)) for name in listing)


def _write_topic_id(files: Files, path: str, topic_id: str, *, durable: bool) -> None:
    data = topic_metadata(topic_id)
    handle = Handle(files, f"{path}/{names.PARTITION_METADATA}", write=True, create=True)
    found = files.read(handle.number, len(data) + 1, 0)
    # Never over the id of another topic: a broker may have recreated it.
    if found != data and (data.startswith(found) or parse_topic_id(found) == NO_TOPIC_ID):
        files.truncate(handle.number, 0)
        files.write(handle.number, data, 0)
    if durable:
        files.sync(handle.number)


@contextlib.contextmanager
def locked_partitions(
    files: Files, clock: Clock, root: str, partitions: Iterable[TopicPartition], *, are_new: bool = False
) -> Iterator[list[TopicPartition]]:
    """Hold the writer's locks of all existing partitions, and yield these partitions.

    A new partition may have no lock file, which shows that no writer has opened it; on a full disk none can be created.
    """
    present = [partition for partition in partitions if _is_directory(files, partition_path(root, partition))]
    with contextlib.ExitStack() as locks:
        for partition in present:
            if are_new and names.LOCK not in files.list(partition_path(root, partition)):
                continue
            take = partial(lock_directory, files, partition_path(root, partition))
            locks.callback(retry_while_locked(clock, SHORT_WAIT_S, take).close)
        yield present


def discard_partitions(files: Files, root: str, partitions: Iterable[TopicPartition]) -> list[str]:
    """Delete partitions by renaming their directories, as Kafka does. The caller holds their locks.

    Return the new names, for `remove_directories`. Directories that cannot be renamed are removed here. An error leaves
    them with their names, so the catalog must not forget the partitions before.
    """
    discarded = []
    for partition in partitions:
        name = names.deleted_directory(partition, uuid.uuid4().hex)
        try:
            files.rename(partition_path(root, partition), f"{root}/{name}")
            discarded.append(name)
        except OSError as error:
            # overlayfs renames no directory of a lower layer. On a full disk, a longer name may need a block.
            if error.errno != errno.EXDEV and not is_full(error):
                raise
            _remove_directory(files, partition_path(root, partition))
    files.sync_directory(root)
    return discarded


def find_discarded(kinds: Mapping[str, Kind]) -> list[str]:
    """Return the directories of deleted partitions, a broker's too."""
    return [name for name, kind in kinds.items() if kind == "directory" and names.is_deleted_directory(name)]


def remove_directories(files: Files, root: str, discarded: Iterable[str]) -> None:
    """Remove the directories of deleted partitions."""
    for name in discarded:
        path = f"{root}/{name}"
        try:
            _remove_directory(files, path)
        except FileNotFoundError:
            continue
        except OSError as error:
            # The directory is no longer used, so this is not an error. The next open tries again.
            logger.warning("%s: a deleted partition could not be removed and still takes space: %s", path, error)


def _remove_directory(files: Files, path: str) -> None:
    for name in files.list(path):
        with contextlib.suppress(FileNotFoundError):
            files.remove(f"{path}/{name}")
    files.remove_directory(path)


def find_topics(files: Files, root: str, kinds: Mapping[str, Kind], *, known: Iterable[str]) -> dict[str, Topic]:
    """Return the topics whose directories hold logs but that are not in the catalog. A broker created them."""
    known = set(known)
    found = _partitions_there(files, root, kinds, wanted=lambda topic: topic not in known)
    return {topic: _adopted(files, root, topic, partitions) for topic, partitions in found.items()}


def follow_broker(files: Files, root: str, kinds: Mapping[str, Kind], catalog: Catalog) -> Catalog:
    """Return the catalog updated with a broker's changes: topics deleted, recreated, or given more partitions.

    Only for a root that a broker has formatted; elsewhere a missing directory is a loss. A broker renames the
    directories of a topic that it deletes. So a directory that has its name but holds no log, or cannot be read, is
    damaged: its topic stays in the catalog, and opening the partition raises.
    """
    there = _partitions_there(files, root, kinds, wanted=lambda topic: topic in catalog)
    named = {partition.topic for name in kinds if (partition := names.parse_partition_name(name)) is not None}
    followed: Catalog = {}
    for name, topic in catalog.items():
        partitions = there.get(name)
        if topic.change is not None:
            followed[name] = topic
        elif partitions is not None:
            found = _adopted(files, root, name, partitions)
            # Topic ids have no checksum: the topic counts as recreated only if all partitions have another id.
            ids = [read_topic_id(files, partition_path(root, TopicPartition(name, number))) for number in partitions]
            is_another = all(are_different(topic_id, topic.topic_id) for topic_id in ids)
            numbers = tuple(sorted({*topic.partitions, *partitions}))
            followed[name] = found if is_another else replace(topic, partitions=numbers)
        elif name in named:
            followed[name] = topic
    return followed


def _partitions_there(
    files: Files, root: str, kinds: Mapping[str, Kind], *, wanted: Callable[[str], bool]
) -> dict[str, list[int]]:
    """Return the partition numbers of each wanted topic, from the directories that hold logs."""
    found: dict[str, list[int]] = {}
    for name, kind in kinds.items():
        partition = names.parse_partition_name(name)
        if partition is not None and wanted(partition.topic) and _holds_log(files, root, name, kind):
            found.setdefault(partition.topic, []).append(partition.partition)
    return found


def _adopted(files: Files, root: str, topic: str, partitions: Collection[int]) -> Topic:
    """Return a catalog entry for a topic that a broker created."""
    return Topic(
        name=topic,
        topic_id=read_topic_id(files, partition_path(root, TopicPartition(topic, min(partitions)))),
        partitions=tuple(sorted(partitions)),
        config=ADOPTED_COMPACTED_CONFIG if topic in COMPACTED_TOPICS else ADOPTED_CONFIG,
    )


def read_topic_id(files: Files, path: str) -> str:
    """Return the topic id in a partition's directory."""
    try:
        return parse_topic_id(files.read_file(f"{path}/{names.PARTITION_METADATA}"))
    except FileNotFoundError:
        return NO_TOPIC_ID


def topic_metadata(topic_id: str) -> bytes:
    """Return the bytes of a partition's metadata file."""
    return f"version: 0\ntopic_id: {topic_id}".encode("ascii")


def parse_topic_id(metadata: bytes) -> str:
    """Return the topic id in the bytes of a partition's metadata file."""
    words = metadata.decode("ascii", "replace").split()
    return words[3] if len(words) == 4 and words[2] == "topic_id:" else NO_TOPIC_ID


def is_brokers(files: Files, root: str) -> bool:
    """Return whether a broker has formatted the directory."""
    try:
        return files.kind(f"{root}/{names.META_PROPERTIES}") == "file"
    except FileNotFoundError:
        return False


def _is_directory(files: Files, path: str) -> bool:
    try:
        return files.kind(path) == "directory"
    except FileNotFoundError:
        return False
