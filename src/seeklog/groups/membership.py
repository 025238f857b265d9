"""A consumer's membership in a group: joining, heartbeats, and taking and releasing partitions.

The members and their partitions are one record in `__consumer_offsets`, and it changes only under the lock of that
partition (`Groups.changing`). There is no coordinator. Each member compares its partitions with the result of `plan`,
commits and releases its surplus, and takes free partitions that it should have. It never takes a partition from a live
member, so a partition has at most one reader at any time. All members use the same plan, so they converge.
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
# Not used by seeklog, where locks show which members are alive. A broker that takes over waits this long for members
# that it finds in a group; it is the minimum that a broker allows.
SESSION_TIMEOUT_MS = 6000


class Membership:
    """One member of one group. Only its consumer's thread calls it."""

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
        self._basis: tuple[dict[str, Member], dict[str, Collection[int]]] | None = None
        """The members and the partitions of topics for which `_planned` was made."""
        self._planned: frozenset[TopicPartition] = frozenset()
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
        """How often this member has joined the group. A change means that its earlier partitions may be lost."""
        self.assignment: frozenset[TopicPartition] = frozenset()

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def is_abandoned(self) -> bool:
        """Whether this is a copy in a forked child."""
        return self._lock is not None and not self._lock.is_held

    def join(self) -> None:
        """Join the group with the free partitions that this member should have."""
        # First, because the join may succeed even if an error is raised.
        self.join_count += 1
        with self._groups.changing(self._group) as change:
            # The lock before the record: a member in the group's record must already count as alive.
            if self._lock is None:
                self._lock = take_lock(self._files, self._path(), owner=sign_of_life(self._clock))
            change.put_state(self._with_free_partitions(self._groups.living(change.group), mine=frozenset()))
        self._set_assignment(change.group.state)

    def heartbeat(self, *, now: bool = False) -> None:
        """Report that this member is alive, and follow changes of the group. Does nothing between heartbeats.

        Calls `on_revoke` with partitions that are about to be released, while they still belong to this member.
        """
        moment = self._clock.monotonic()
        if moment < self._next_heartbeat and not now:
            return
        self._next_heartbeat = moment + self._heartbeat_s
        if self._lock is None or not self._lock.is_held:
            raise LogClosed(
                f"this member of group {self._group!r} belongs to the parent of this forked process; create a consumer "
                "here"
            )
        try:
            self._files.write(self._lock.number, sign_of_life(self._clock).encode(), 0)
        except OSError as error:
            # The lock still shows that it is alive. Only if polls stop for `max_poll_interval_ms` is it removed.
            logger.warning("group %s: the heartbeat could not be written: %s", self._group, error)
        self._topics.refresh()
        group = self._groups.look(self._group)
        if group is None or self.member_id not in group.state.members:
            # Other members removed this one because it did not poll in time. Its partitions may have new readers.
            self.assignment = frozenset()
            self.join()
            return
        own = group.state.members[self.member_id].assignment
        if not self.assignment <= own:
            # A call that raised had released these partitions, and other members may have read further.
            self.join_count += 1
            self.assignment = own
        # This member is alive even if its file could not be written.
        living = self._groups.living(group) | {self.member_id: group.state.members[self.member_id]}
        wanted = self._plan(living)
        surplus = self.assignment - wanted
        if surplus:
            self._on_revoke(surplus)
        if surplus or len(living) < len(group.state.members) or wanted - _owned(living):
            self._release_and_take(surplus)
        else:
            self._set_assignment(group.state)

    def _release_and_take(self, surplus: frozenset[TopicPartition]) -> None:
        with self._groups.changing(self._group) as change:
            if self.member_id not in change.group.state.members:
                return
            state = self._with_free_partitions(self._groups.living(change.group), mine=self.assignment - surplus)
            if dict(state.members) != dict(change.group.state.members):
                change.put_state(state)
            remove_files_of_dead(self._files, self._groups.directory_of(self._group))
        self._set_assignment(change.group.state)

    def leave(self) -> None:
        """Leave the group. The others take over its partitions at their next heartbeats."""
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

    def _set_assignment(self, state: GroupState) -> None:
        self.assignment = state.members[self.member_id].assignment

    def _plan(self, members: Mapping[str, Member]) -> frozenset[TopicPartition]:
        """Return the partitions that this member should have. The last plan is kept: one of thousands takes long."""
        partitions: dict[str, Collection[int]] = {}
        for topic in {topic for member in members.values() for topic in member.topics}:
            with contextlib.suppress(TopicNotFound):
                partitions[topic] = self._topics.find(topic).partitions
        basis = (dict(members), partitions)
        if basis != self._basis:
            wanted = plan(
                {name: member.topics for name, member in members.items()},
                partitions,
                {name: member.assignment for name, member in members.items()},
            )
            self._basis, self._planned = basis, frozenset(wanted[self.member_id])
        return self._planned

    def _with_free_partitions(self, members: Mapping[str, Member], *, mine: frozenset[TopicPartition]) -> GroupState:
        """Return the group with this member having `mine` and all free partitions that it should have."""
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
