"""A consumer group that a query commits to what it has processed, so that whoever watches lags sees the query's."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from seeklog.errors import GroupInUse, SeeklogError
from seeklog.names import TopicPartition
from seeklog.store import open_store

logger = logging.getLogger("seeklog")


class ProgressGroup:
    """The group of one source of one query. Where the query reads on is in its checkpoint alone."""

    def __init__(self, path: str, group: str) -> None:
        """Open the store to write to. A group with members, and a store that cannot be written, are refused."""
        # A store that is not there must not be made by asking for it.
        with open_store(path, read_only=True, background=False):
            pass
        self._group = group
        self._store = open_store(path, background=False)
        members = self._store.describe_group(group).members if group in self._store.groups() else ()
        if members:
            self._store.close()
            raise GroupInUse(
                f"group {group!r} has {len(members)} members that consume; give the query a groupId of its own"
            )
        self._committed: dict[TopicPartition, int] = {}
        self._is_failing = False

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit what has changed. A query that runs does not fail with this: there is one warning instead."""
        changed = {at: offset for at, offset in offsets.items() if self._committed.get(at) != offset}
        if not changed:
            return
        try:
            self._store.commit_offsets(self._group, changed)
        except SeeklogError as error:
            if not self._is_failing:
                logger.warning("group %r does not show how far the query is: %s", self._group, error)
            self._is_failing = True
        else:
            self._committed |= changed
            self._is_failing = False
