"""Tools for tests of producers: a disk that loses pages, and a flush that fails."""

from __future__ import annotations

import pytest

from log.workbench import GatedFiles
from seeklog import Producer
from seeklog.errors import SeeklogError

NEVER_MS = 10**9


def flush_expecting(producer: Producer, error: type[SeeklogError]) -> None:
    with pytest.raises(error):
        producer.flush()


class LosingFiles(GatedFiles):
    """A disk that loses the pages of a failed sync at once, as a system does that is short of memory."""

    synced: dict[str, int]

    def sync(self, handle: int) -> None:
        path = self._paths[handle]
        try:
            super().sync(handle)
        except OSError:
            self.sync_errors.clear()
            self.truncate(handle, self.synced.get(path, 0))
            raise
        self.synced[path] = self.size(handle)
