"""The files of an archive, as listed in its manifest.

The manifest is the directory: a file that it does not name does not exist. Names, sizes, seals, and configurations are
known without a request. A segment that replaced a compacted one, and a partial segment, are stored under other names;
here they appear under their usual names. The checkpoint and the catalog are derived from the manifest.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from seeklog import names
from seeklog.config import INT64_MAX
from seeklog.errors import NotALog
from seeklog.files import Buffer, Files, FileStatus, Kind, OsFiles, ReadOnlyFiles
from seeklog.files.remote import RemoteFiles
from seeklog.log.side import Checkpoint, encode_checkpoint
from seeklog.names import TopicPartition
from seeklog.record.saved_state import SavedState
from seeklog.topics.catalog import Catalog, Topic, encode_catalog
from seeklog.topics.layout import partition_path

if TYPE_CHECKING:
    from seeklog.archive.manifest import Manifest, PartitionEntry, SegmentEntry
    from seeklog.files.depot import Depot


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a store's files are, for another process that reads them. Small and picklable; `repr` hides secrets."""

    root: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    stored: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Files stored under other names, by their usual path: their path in the archive, or nothing for an empty file."""

    def files(self) -> Files:
        """Return access to the files. Makes no request."""
        files = RemoteFiles(self.root, storage_options=self.storage_options) if names.is_url(self.root) else OsFiles()
        return StoredFiles(files, self.stored) if self.stored else files


# The name under which a file without bytes is stored, and its handle. Other handles are positive.
_NOWHERE: Final = ""
_EMPTY: Final = -2


class StoredFiles(ReadOnlyFiles):
    """Files of which some are stored under other names, or not at all because they are empty."""

    def __init__(self, inner: Files, stored: Mapping[str, str]) -> None:
        self.inner = inner
        self.stored = stored

    def _stored(self, path: str) -> str:
        return self.stored.get(path, path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if write or create:
            self.refuse(path)
        stored = self._stored(path)
        return _EMPTY if stored == _NOWHERE else self.inner.open(stored)

    def close(self, handle: int) -> None:
        if handle != _EMPTY:
            self.inner.close(handle)

    def read(self, handle: int, size: int, position: int) -> bytes:
        return b"" if handle == _EMPTY else self.inner.read(handle, size, position)

    def size(self, handle: int) -> int:
        return 0 if handle == _EMPTY else self.inner.size(handle)

    def map(self, path: str) -> Buffer:
        stored = self._stored(path)
        return b"" if stored == _NOWHERE else self.inner.map(stored)

    def read_file(self, path: str) -> bytes:
        stored = self._stored(path)
        return b"" if stored == _NOWHERE else self.inner.read_file(stored)

    def list(self, directory: str) -> list[str]:
        return self.inner.list(directory)

    def kinds(self, directory: str) -> dict[str, Kind]:
        return self.inner.kinds(directory)

    def kind(self, path: str) -> Kind:
        stored = self._stored(path)
        return "file" if stored == _NOWHERE else self.inner.kind(stored)

    def file_size(self, path: str) -> int:
        stored = self._stored(path)
        return 0 if stored == _NOWHERE else self.inner.file_size(stored)

    def status(self, path: str) -> FileStatus:
        stored = self._stored(path)
        return FileStatus(0, (0, 0)) if stored == _NOWHERE else self.inner.status(stored)

    def status_of(self, handle: int) -> FileStatus:
        return FileStatus(0, (0, 0)) if handle == _EMPTY else self.inner.status_of(handle)


class ArchivedFiles(StoredFiles):
    """The files that a manifest names, read-only. A partition without segments appears as an empty log."""

    def __init__(self, inner: Files, root: str, manifest: Manifest) -> None:
        self._root = root
        self._sizes: dict[str, dict[str, int]] = {root: {names.TOPICS: 0, names.ARCHIVE: 0}}
        self._made = {f"{root}/{names.TOPICS}": encode_catalog(catalog_of(manifest))}
        for name, data in manifest.root.items():
            self._sizes[root][name] = len(data)
            self._made[f"{root}/{name}"] = data
        stored: dict[str, str] = {}
        for topic in manifest.topics.values():
            for number, partition in topic.partitions.items():
                path = partition_path(root, TopicPartition(topic.name, number))
                self._add_partition(path, partition, stored)
                if isinstance(inner, RemoteFiles):
                    inner.know(path, {name: file.size for name, file in partition.paths().items()})
            for number, start in topic.empty.items():
                self._add_empty(partition_path(root, TopicPartition(topic.name, number)), start, stored)
        super().__init__(inner, stored)

    def _add_empty(self, path: str, start: int, stored: dict[str, str]) -> None:
        checkpoint = encode_checkpoint(Checkpoint(start, start, start, start))
        self._made[f"{path}/{names.CHECKPOINT}"] = checkpoint
        self._sizes[path] = {names.CHECKPOINT: len(checkpoint)}
        for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
            name = names.segment_name(start, suffix)
            stored[f"{path}/{name}"] = _NOWHERE
            self._sizes[path][name] = 0

    def _add_partition(self, path: str, partition: PartitionEntry, stored: dict[str, str]) -> None:
        sizes = self._sizes[path] = {name: file.size for name, file in partition.files.items()}
        for segment in partition.segments:
            for suffix, file in segment.files.items():
                name = names.segment_name(segment.base_offset, suffix)
                sizes[name] = file.size
                if segment.stem != name[:20]:
                    stored[f"{path}/{name}"] = f"{path}/{segment.stem}{suffix}"
            if segment.seal_bytes is not None:
                self._made[f"{path}/{names.segment_name(segment.base_offset, names.SEAL)}"] = segment.seal_bytes
        checkpoint = encode_checkpoint(checkpoint_of(partition))
        sizes[names.CHECKPOINT] = len(checkpoint)
        self._made[f"{path}/{names.CHECKPOINT}"] = checkpoint

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        self.file_size(path)
        return super().open(path, write=write, create=create)

    def read_file(self, path: str) -> bytes:
        self.file_size(path)
        made = self._made.get(path)
        return super().read_file(path) if made is None else made

    def map(self, path: str) -> Buffer:
        self.file_size(path)
        return super().map(path)

    def list(self, directory: str) -> list[str]:
        return list(self.kinds(directory))

    def kinds(self, directory: str) -> dict[str, Kind]:
        if directory not in self._sizes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        found: dict[str, Kind] = dict.fromkeys(self._sizes[directory], "file")
        if directory == self._root:
            found.update({path.rpartition("/")[2]: "directory" for path in self._sizes if path != directory})
        return found

    def kind(self, path: str) -> Kind:
        if path in self._sizes:
            return "directory"
        self.file_size(path)
        return "file"

    def file_size(self, path: str) -> int:
        directory, _, name = path.rpartition("/")
        size = self._sizes.get(directory, {}).get(name)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return size

    def status(self, path: str) -> FileStatus:
        # An archived file never changes, so its identity need not be checked.
        return FileStatus(self.file_size(path), (0, 0))

    def status_of(self, handle: int) -> FileStatus:
        return FileStatus(self.size(handle), (0, 0))


def open_archive(files: Files, root: str) -> Files:
    """Return the files of an archive, or `files` unchanged if there is no archive at `root`."""
    manifest = read_manifest(files, root)
    if manifest is None:
        return files
    if not manifest.is_complete:
        raise NotALog(f"{root} is an incomplete archive; archive to it again to complete it")
    return ArchivedFiles(files, root, manifest)


def read_manifest(files: Files, root: str) -> Manifest | None:
    """Return an archive's manifest, or None if there is no archive at `root`."""
    path = f"{root}/{names.ARCHIVE}"
    try:
        data = files.read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # Imported only for archives: it would add milliseconds to `import seeklog`.
    from seeklog.archive.manifest import decode_manifest

    return decode_manifest(data, path=path)


def manifest_in(depot: Depot) -> Manifest | None:
    """Return the manifest of an archive as it is now, or None if there is no archive."""
    version = depot.version(names.ARCHIVE)
    if version is None:
        return None
    from seeklog.archive.manifest import decode_manifest

    return decode_manifest(version.data, path=f"{depot.location}/{names.ARCHIVE}")


def catalog_of(manifest: Manifest) -> Catalog:
    return {
        topic.name: Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(sorted((*topic.partitions, *topic.empty))),
            config=topic.config,
        )
        for topic in manifest.topics.values()
    }


def checkpoint_of(partition: PartitionEntry) -> Checkpoint:
    """Return the checkpoint of a partition that was closed cleanly at the end of its last segment."""
    end = partition.end_offset
    last = partition.segments[-1] if partition.segments else None
    return Checkpoint(
        recovery_point=end,
        log_start_offset=partition.log_start_offset,
        high_watermark=end,
        contiguous_from=_contiguous_from(partition.segments),
        epochs=partition.epochs,
        gaps=partition.gaps,
        active=None if last is None else _closed(last),
    )


def _contiguous_from(segments: tuple[SegmentEntry, ...]) -> int:
    """Return the offset from which on there are no gaps between batches."""
    found = INT64_MAX
    for segment in reversed(segments):
        seal = segment.seal()
        if seal is None or not seal.contiguous or (found != INT64_MAX and segment.next_offset != found):
            return found
        found = segment.base_offset
    return found


def _closed(segment: SegmentEntry) -> SavedState | None:
    """Return the state of a sealed segment as after a clean close. Fields that only a writer needs are zero."""
    seal = segment.seal()
    if seal is None:
        return None
    return SavedState(
        base_offset=seal.base_offset,
        next_offset=seal.next_offset,
        size=seal.size,
        log_crc=seal.log_crc,
        batch_count=seal.batch_count,
        record_count=seal.record_count,
        is_contiguous=int(seal.contiguous),
        first_timestamp_ms=-1,
        max_timestamp_ms=seal.max_timestamp_ms,
        bytes_since_entry=0,
        records_since_entry=0,
        offset_of_max_timestamp=0,
        last_indexed_timestamp_ms=0,
        last_epoch=0,
        offset_index_crc=seal.offset_index_crc,
        time_index_crc=seal.time_index_crc,
    )
