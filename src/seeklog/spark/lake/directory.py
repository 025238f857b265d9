"""The directory of a lake: its lock, its manifest, and the publication of its files.

Tasks write files under hidden names. When all are done the driver renames them, then replaces the manifest, which is
the commit. A kill before that leaves files that the manifest does not list; the next job removes them. A reader that
lists the directories instead of reading the manifest may see those files, but never a record twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from seeklog import names
from seeklog.errors import ArchiveMismatch, LogLocked
from seeklog.files import Files, absolute, replace_file, sync_ancestors, take_lock, translated
from seeklog.spark.lake.manifest import LakeFile, Manifest, decode_manifest, encode_manifest
from seeklog.spark.option_map import local_path


def writing_to(lake: str) -> translated:
    """Return the context manager that translates errors of the operating system while a job writes to a lake."""
    return translated(f"the lake at {lake} cannot be written", when_full="nothing was added; run to_lake again")


class LakeDirectory:
    """A lake on a file system that driver and executors share. The constructor accesses no file."""

    def __init__(self, path: str | os.PathLike[str], *, files: Files) -> None:
        self.path = absolute(local_path("lake", os.fsdecode(path)))
        self._files = files
        self._own = f"{self.path}/{names.LAKE}"

    def read_manifest(self) -> Manifest | None:
        """Return the manifest, or None if there is no lake yet.

        Raises `ArchiveMismatch` if the directory holds anything else, such as a lake whose manifest is missing: the
        next job would remove its files as those of a killed job.
        """
        path = f"{self._own}/{names.LAKE_MANIFEST}"
        others: list[str] = []
        with translated(f"the lake at {self.path} cannot be read"):
            with contextlib.suppress(FileNotFoundError):
                return decode_manifest(self._files.read_file(path), path=path)
            with contextlib.suppress(FileNotFoundError):
                others = [name for name in self._files.list(self.path) if name != names.LAKE]
        if others:
            raise ArchiveMismatch(
                f"{self.path} holds {others[0]!r} and no manifest at {names.LAKE}/{names.LAKE_MANIFEST}: restore the "
                "manifest if this was a lake, or choose another directory"
            )
        return None

    def check_files(self, files: Iterable[LakeFile]) -> None:
        """Raise `ArchiveMismatch` for the first file that is missing or whose size differs from the manifest."""
        for file in files:
            try:
                size = self._files.file_size(f"{self.path}/{file.path}")
            except OSError as error:
                raise ArchiveMismatch(
                    f"{self.path}/{file.path}, with offsets {file.start} to {file.next_offset - 1}, is in the manifest "
                    f"but cannot be read ({error.strerror}): restore it, or write a new lake"
                ) from error
            if size != file.size:
                raise ArchiveMismatch(
                    f"{self.path}/{file.path} has {size:,} bytes, but {file.size:,} in the manifest: restore it, or "
                    "write a new lake"
                )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the lake; raise `LogLocked` if another job holds it."""
        try:
            with writing_to(self.path):
                is_new = not self._exists()
                self._files.make_directory(self._own)
                if is_new:
                    sync_ancestors(self._files, self._own)
                lock = take_lock(self._files, f"{self._own}/{names.LAKE_LOCK}", subject=self.path)
                # A killed job may have left a manifest that is visible but not durable, and this job relies on it.
                self._files.sync_directory(self._own)
        except LogLocked as error:
            advice = "another to_lake is writing there; run this one after it ends"
            raise LogLocked(self.path, error.owner_pid, advice=advice) from None
        with contextlib.closing(lock):
            yield

    def _exists(self) -> bool:
        try:
            return bool(self._files.list(self._own))
        except FileNotFoundError:
            return False

    def commit(self, manifest: Manifest) -> None:
        """Replace the manifest; durable on return."""
        replace_file(self._files, self._own, names.LAKE_MANIFEST, encode_manifest(manifest))
        self._files.sync_directory(self._own)

    def sweep(self, manifest: Manifest) -> int:
        """Remove the files of jobs that did not commit; return their number."""
        kept = {file.path for file in manifest.files()}
        removed = 0
        for directory in list(self._date_directories()):
            for name in self._files.list(f"{self.path}/{directory}"):
                is_lake_file = names.parse_lake_file(f"{directory}/{names.shown_lake_file(name)}") is not None
                if is_lake_file and f"{directory}/{name}" not in kept:
                    self._files.remove(f"{self.path}/{directory}/{name}")
                    removed += 1
        return removed

    def _date_directories(self) -> Iterator[str]:
        for topic, kind in self._files.kinds(self.path).items():
            if kind != "directory" or not topic.startswith("topic="):
                continue
            for date, inner in self._files.kinds(f"{self.path}/{topic}").items():
                if inner == "directory" and date.startswith("date="):
                    yield f"{topic}/{date}"

    def publish(self, hidden: Iterable[tuple[str, LakeFile]]) -> list[LakeFile]:
        """Rename files that tasks have written and synced under hidden names; durable on return."""
        published = []
        for path, file in hidden:
            self._files.rename(f"{self.path}/{path}", f"{self.path}/{file.path}")
            published.append(file)
        # The directories of dates, then of topics, then the lake's: each may be new.
        directories = {os.path.dirname(f"{self.path}/{file.path}") for file in published}
        for _ in range(3):
            for directory in sorted(directories):
                self._files.sync_directory(directory)
            directories = {os.path.dirname(directory) for directory in directories}
        return published
