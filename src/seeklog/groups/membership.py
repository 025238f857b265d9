"""A consumer's membership in a group: who is in it, who is alive, and which partitions are whose.

The members and their partitions are a record in `__consumer_offsets`; every change of it is made under that
partition's lock (`Groups.changing`). Nobody rules. Each member compares what it has with what `plan` says it should
have, gives up its own surplus after it has committed it, and takes from what is free. It never touches the
partitions of another that lives, so a partition has one reader at any time; and because all decide by the same
plan, they come to agree.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from seeklog.clock import Clock
from seeklog.errors import LogClosed, TopicNotFound
from seeklog.files import Files, Lock, take_lock
from seeklog.groups.assignor import plan
from seeklog.groups.groups import Groups
from seeklog.groups.liveness import member_path, remove_files_of_dead, sign_of_life
from seeklog.groups.records import GroupState, Member
from seeklog.names import TopicPartition
from seeklog.topics.topics import Topics

logger = logging.getLogger("seeklog")

PROTOCOL = "cooperative-sticky"
# Means nothing here, where a lock tells who lives. A broker that takes over waits so long for members that it finds in
# a group; this is the least that it allows.
SESSION_TIMEOUT_MS = 6000


class Membership:
    """One member of one group. One thread at a time calls it: its consumer's."""

    def __init__(
        self,
        groups: Groups,
        topics: Topics,
        *,
        files: Files,
        clock: Clock,
        group: str,
        subscribed: Collection[str],
        client_id: str,
        heartbeat_interval_ms: int,
        max_poll_interval_ms: int,
        on_revoke: Callable[[frozenset[TopicPartition]], None],
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._files = files
        self._clock = clock
        self._group = group
        self._heartbeat_s = heartbeat_interval_ms / 1000
        self._on_revoke = on_revoke
        self._next_heartbeat = 0.0
        self._lock: Lock | None = None
        self._member = Member(
            member_id=f"{client_id}-{uuid.uuid4()}",
            client_id=client_id,
            client_host=f"/{socket.gethostname()}",
            rebalance_timeout_ms=max_poll_interval_ms,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            topics=frozenset(subscribed),
        )
        self.join_count = 0
        """How often it has joined: what it had in a former life is not its own any more."""
        self.assignment: frozenset[TopicPartition] = frozenset()

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def is_abandoned(self) -> bool:
        """Whether this is the copy in a forked child."""
        return self._lock is not None and not self._lock.is_held

    def join(self) -> None:
        """Become a member, with the partitions that are free and should be this one's."""
        # First: it may have become one, though this raises.
        self.join_count += 1
        with self._groups.changing(self._group) as change:
            # The lock before the record: whoever finds this member in the group finds it alive.
            if self._lock is None:
                self._lock = take_lock(self._files, self._path(), owner=sign_of_life(self._clock))
            change.put_state(self._taking(self._groups.living(change.group), mine=frozenset()))
        self._settle(change.group.state)

    def heartbeat(self, *, now: bool = False) -> None:
        """Show that this member lives, and take part in what came and went; costs nothing between heartbeats.

        Calls `on_revoke` with partitions that are about to be given up, while they are still this member's.
        """
        moment = self._clock.monotonic()
        if moment < self._next_heartbeat and not now:
            return
        self._next_heartbeat = moment + self._heartbeat_s
        if self._lock is None or not self._lock.is_held:
            raise LogClosed(
                f"this member of group {self._group!r} belongs to the process that this one was forked from"
            )
        try:
            self._files.write(self._lock.number, sign_of_life(self._clock).encode(), 0)
        except OSError as error:
            # The lock still tells that it lives; only a poll after `max_poll_interval_ms` would come too late.
            logger.warning("group %s: the sign of life was not written: %s", self._group, error)
        self._topics.refresh()
        group = self._groups.look(self._group)
        if group is None or self.member_id not in group.state.members:
            # Others took this one for gone: it has not polled for too long. What it had is theirs.
            self.assignment = frozenset()
            self.join()
            return
        own = group.state.members[self.member_id].assignment
        if not self.assignment <= own:
            # What it gave up with a call that raised was given up, and another may have read on.
            self.join_count += 1
            self.assignment = own
        # This one lives, whether or not its file could be written.
        living = self._groups.living(group) | {self.member_id: group.state.members[self.member_id]}
        wanted = self._plan(living)
        giving = self.assignment - wanted
        if giving:
            self._on_revoke(giving)
        if giving or len(living) < len(group.state.members) or wanted - _owned(living):
            self._take_part(giving)
        else:
            self._settle(group.state)

    def _take_part(self, giving: frozenset[TopicPartition]) -> None:
        with self._groups.changing(self._group) as change:
            if self.member_id not in change.group.state.members:
                return
            state = self._taking(self._groups.living(change.group), mine=self.assignment - giving)
            if dict(state.members) != dict(change.group.state.members):
                change.put_state(state)
            remove_files_of_dead(self._files, self._groups.directory_of(self._group))
        self._settle(change.group.state)

    def leave(self) -> None:
        """Give everything up; the others share it among them at their next heartbeat."""
        if self._lock is None or not self._lock.is_held:
            return
        path = self._path()
        try:
            with self._groups.changing(self._group) as change:
                members = self._groups.living(change.group)
                if members.pop(self.member_id, None) is not None:
                    change.put_state(self._state_of(members))
                remove_files_of_dead(self._files, self._groups.directory_of(self._group))
        finally:
            with contextlib.suppress(OSError):
                self._files.remove(path)
            self._lock.close()
            self.assignment = frozenset()

    def _path(self) -> str:
        path = member_path(self._groups.directory_of(self._group), self.member_id)
        assert path is not None
        return path

    # ------------------------------------------------------------ deciding

    def _settle(self, state: GroupState) -> None:
        self.assignment = state.members[self.member_id].assignment

    def _plan(self, members: Mapping[str, Member]) -> frozenset[TopicPartition]:
        """Return what this member should have."""
        partitions: dict[str, Collection[int]] = {}
        for topic in {topic for member in members.values() for topic in member.topics}:
            with contextlib.suppress(TopicNotFound):
                partitions[topic] = self._topics.find(topic).partitions
        wanted = plan(
            {name: member.topics for name, member in members.items()},
            partitions,
            {name: member.assignment for name, member in members.items()},
        )
        return frozenset(wanted[self.member_id])

    def _taking(self, members: Mapping[str, Member], *, mine: frozenset[TopicPartition]) -> GroupState:
        """Return the group with this member having `mine`, and of what is free all that it should have."""
        members = {**members, self.member_id: replace(self._member, assignment=mine)}
        taken = self._plan(members) - _owned(members)
        members[self.member_id] = replace(self._member, assignment=mine | taken)
        return self._state_of(members)

    def _state_of(self, members: Mapping[str, Member]) -> GroupState:
        if not members:
            return GroupState()
        return GroupState(protocol=PROTOCOL, leader=min(members), members=dict(members))


def _owned(members: Mapping[str, Member]) -> frozenset[TopicPartition]:
    return frozenset[TopicPartition]().union(*(member.assignment for member in members.values()))
