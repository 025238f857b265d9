"""The catalog's file: reading it, following what other processes append, and changing it.

A change is appended and synced: the file has its blocks already, so one `fdatasync` makes it durable. When the room is
used up, the file is replaced by a snapshot with twice the size, so the cost of a change does not depend on how many
topics there are.

Thread contract: one thread at a time. A process that changes the file holds `seeklog-topics.lock`.
"""

from __future__ import annotations

import contextlib
import errno

from seeklog import names
from seeklog.errors import CorruptionError
from seeklog.files import Files, FileStatus, Handle, ReadOnlyFiles, is_full, publish_file, replace_file, stage_file
from seeklog.topics.catalog import (
    CRC_LINE_SIZE,
    DELETION_MARK,
    Catalog,
    Change,
    apply,
    apply_read,
    decode_changes,
    decode_contents,
    deletion_mark,
    encode_catalog,
    encode_change,
)

# Deletions may use the last bytes of the file, so that one can be noted on a full disk.
_RESERVED = 1024
# How much a follower reads at once.
_CHUNK = 4096


class CatalogFile:
    """The catalog's file, and the topics in it as of the last read.

    The file that was read last stays open, so its inode is not reused, and the status of the name shows whether the
    file was replaced.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._root = root
        self.path = f"{root}/{names.TOPICS}"
        self.topics: Catalog = {}
        self._handle: Handle | None = None
        self._status: FileStatus | None = None
        self._end = 0
        """Where the next change goes."""
        self._last = 0
        self._last_bytes = b""
        """The last change with the byte after it, the end of the snapshot, or all of a file of format 1.

        By these bytes the content is recognized.
        """
        self._can_append = False
        self._is_doubtful = False
        """Whether a change failed in a way that leaves open what is on disk. Then the file must be replaced."""

    @property
    def was_read(self) -> bool:
        """Whether there was a file at the last read, and its content is known."""
        return self._status is not None

    def has_changed(self) -> bool:
        """Return whether another process changed the file since it was last read, or its content is unknown."""
        handle, last = self._handle, self._last_bytes
        if handle is None:
            return self._status is None  # a copy does not change
        try:
            is_same_file = self._files.status(self.path) == self._status
        except FileNotFoundError:
            return True
        return not is_same_file or self._files.read(handle.number, len(last), self._last) != last

    def close(self) -> None:
        """Close the file. It is read again when needed."""
        self._handle = self._status = None

    def read(self) -> bool:
        """Read the whole file. Return False without a catalog: in a broker's directory, or a new one."""
        damaged = None
        while True:
            try:
                return self._read()
            except CorruptionError as error:
                # A reader takes no lock. While changes are appended it may see a later one without an earlier one.
                if str(error) == damaged:
                    raise
                damaged = str(error)

    def _read(self) -> bool:
        self.close()
        self.topics, self._can_append = {}, False
        handle = None
        try:
            if isinstance(self._files, ReadOnlyFiles):
                data = self._files.read_file(self.path)
                status = FileStatus(len(data), (0, 0))
            else:
                handle = Handle(self._files, self.path)
                status = self._files.status_of(handle.number)
                data = self._files.read(handle.number, status.size, 0)
        except FileNotFoundError:
            return False
        contents = decode_contents(data, path=self.path)
        self.topics, self._end = contents.catalog, contents.end
        self._can_append = contents.is_whole and not self._is_doubtful
        self._last, self._last_bytes = contents.last, data[contents.last : len(data.rstrip(b"\0")) + 1]
        self._handle, self._status = handle, status
        return True

    def follow(self) -> list[str] | None:
        """Read the changes that other processes appended. Return the names of their topics.

        None if that is not all that happened to the file: then it must be read whole.
        """
        handle, last = self._handle, self._last_bytes[:-1]
        if handle is None or not self._can_append or self._files.status(self.path) != self._status:
            return None
        if self._files.read(handle.number, len(last), self._last) != last:
            return None
        data = self._read_written()
        try:
            found = decode_changes(data, 0, path=self.path, origin=self._end)
        except CorruptionError:
            return None
        changed = []
        for position, one in found.changes:
            changed += apply_read(self.topics, one, position=position, path=self.path)
        if found.changes:
            begin = found.changes[-1][0]
            self._know_last(begin, data[begin - self._end : found.end - self._end])
        self._can_append = found.is_whole
        return changed

    def _read_written(self) -> bytes:
        """Return the bytes from the end on, up to some zeros."""
        assert self._handle is not None
        data = b""
        while True:
            part = self._files.read(self._handle.number, _CHUNK, self._end + len(data))
            data += part
            if len(part) < _CHUNK or not part.rstrip(b"\0"):
                return data

    def _know_last(self, position: int, change: bytes) -> None:
        self._end = position + len(change)
        self._last, self._last_bytes = position, change + b"\0"

    def make_durable(self, *, name: bool) -> None:
        """Sync what other processes wrote, and with `name` the file's name: their writers may have died before."""
        if self._handle is not None:
            self._files.sync(self._handle.number)
        if name:
            self._files.sync_directory(self._root)

    def commit(self, change: Change, *, is_deletion: bool = False) -> list[str]:
        """Make a change durable and apply it. Return the names of its topics. Raises `OSError`.

        After an error the file is as before, or it is read again before the next change.
        """
        line = encode_change(change)
        limit = self._status.size - (0 if is_deletion else _RESERVED) if self._status is not None else 0
        if not self._can_append or self._end + len(line) + 1 > limit:
            topics = dict(self.topics)
            changed = apply(topics, change)
            try:
                self.replace(topics)
            except OSError as error:
                if not (is_deletion and is_full(error) and self._mark_deletion(change)):
                    raise
            return changed
        handle = self._open_to_write()
        try:
            self._files.write(handle.number, line, self._end)
            self._files.sync(handle.number)
        except BaseException as error:
            self.close()
            self._is_doubtful = True
            if isinstance(error, OSError):
                # Others may have seen the change, and a sync that failed proves nothing when it is repeated.
                with contextlib.suppress(OSError):
                    self.replace(self.topics)
            raise
        self._know_last(self._end, line)
        return apply(self.topics, change)

    def _open_to_write(self) -> Handle:
        handle = Handle(self._files, self.path, write=True)
        if self._files.status_of(handle.number) != self._status:
            raise OSError(errno.ESTALE, "was replaced by a process that did not lock it", self.path)
        return handle

    def _mark_deletion(self, change: Change) -> bool:
        """Note in a file of format 1 that a topic is being deleted, which needs no room. Return False if impossible."""
        if "deleting" not in change or not self.was_read:
            return False
        handle = self._open_to_write()
        data = self._files.read(handle.number, self._files.size(handle.number), 0)
        position = deletion_mark(data, change["deleting"])
        if position is None:
            return False
        self.close()
        try:
            self._files.write(handle.number, DELETION_MARK, position)
            self._files.sync(handle.number)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.write(handle.number, data[position : position + 1], position)
            raise
        self._read()
        return True

    def replace(self, topics: Catalog) -> None:
        """Replace the file by a snapshot of these topics. Durable on return. Raises `OSError`."""
        data = encode_catalog(topics)
        # An error here, as on a full disk, leaves the file as it was: a deletion can still be appended to it.
        stage_file(self._files, self._root, names.TOPICS, data)
        self.close()
        self._is_doubtful = True
        publish_file(self._files, self._root, names.TOPICS)
        self._files.sync_directory(self._root)
        self._is_doubtful = False
        handle = Handle(self._files, self.path)
        self._status, self._handle = self._files.status_of(handle.number), handle
        self.topics, self._can_append = topics, True
        end = len(data.rstrip(b"\0"))
        self._know_last(end - CRC_LINE_SIZE, data[end - CRC_LINE_SIZE : end])


def write_catalog(files: Files, root: str, data: bytes) -> None:
    """Replace the catalog. Durable on return."""
    replace_file(files, root, names.TOPICS, data)
    files.sync_directory(root)
