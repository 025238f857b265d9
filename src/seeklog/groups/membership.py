"""A consumer's membership in a group: who is in it, who is alive, and which partitions are whose.

The members and their partitions are a record in `__consumer_offsets`; every change of it is made under that
partition's lock (`Groups.changing`). Nobody rules. Each member compares what it has with what `plan` says it should
have, gives up its own surplus after it has committed it, and takes from what is free. It never touches the
partitions of another that lives, so a partition has one reader at any time; and because all decide by the same
plan, they come to agree.

A member is alive while it holds the lock of its own file, `seeklog-member-<uuid>`, beside the records: the lock goes
with the process, however it ends. The file holds when the member last polled; one that has not for
`max_poll_interval_ms` counts as gone too.

    0   pid of the process, blank, milliseconds of the machine's monotonic clock, both in decimal
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import uuid
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from seeklog import names
from seeklog.clock import Clock
from seeklog.errors import TopicNotFound
from seeklog.files import Files
from seeklog.groups.assignor import plan
from seeklog.groups.groups import Groups
from seeklog.groups.records import GroupState, Member
from seeklog.names import TopicPartition
from seeklog.topics.layout import partition_path
from seeklog.topics.topics import Topics

PROTOCOL = "cooperative-sticky"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")

_open_memberships: weakref.WeakSet[Membership] = weakref.WeakSet()


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
        self._handle = -1
        self._member = Member(
            member_id=f"{client_id}-{uuid.uuid4()}",
            client_id=client_id,
            client_host=f"/{socket.gethostname()}",
            rebalance_timeout_ms=max_poll_interval_ms,
            session_timeout_ms=max_poll_interval_ms,
            topics=frozenset(subscribed),
        )
        self.generation = -1
        self.assignment: frozenset[TopicPartition] = frozenset()

    @property
    def member_id(self) -> str:
        return self._member.member_id

    def join(self) -> None:
        """Become a member, with the partitions that are free and should be this one's."""
        with self._groups.changing(self._group) as change:
            # The lock before the record: whoever finds this member in the group finds it alive.
            path = self._path(self.member_id)
            assert path is not None
            if self._handle < 0:
                self._handle = self._files.lock(path, self._sign_of_life())
                _open_memberships.add(self)
            members = self._living(change.group.state) | {self.member_id: self._member}
            change.put_state(self._taking(members, mine=frozenset()))
        self._settle(change.group.state)

    def heartbeat(self, *, now: bool = False) -> None:
        """Show that this member lives, and take part in what came and went; costs nothing between heartbeats.

        Calls `on_revoke` with partitions that are about to be given up, while they are still this member's.
        """
        moment = self._clock.monotonic()
        if moment < self._next_heartbeat and not now:
            return
        self._next_heartbeat = moment + self._heartbeat_s
        self._files.write(self._handle, self._sign_of_life().encode(), 0)
        self._topics.refresh()
        group = self._groups.look(self._group)
        state = group.state if group is not None else GroupState()
        if self.member_id not in state.members:
            # Others took this one for gone: it has not polled for too long. What it had is theirs.
            self.assignment = frozenset()
            self.join()
            return
        living = self._living(state)
        wanted = self._plan(living)
        giving = self.assignment - wanted
        if giving:
            self._on_revoke(giving)
        if giving or len(living) < len(state.members) or wanted - _owned(living):
            self._take_part(giving)
        else:
            self._settle(state)

    def _take_part(self, giving: frozenset[TopicPartition]) -> None:
        with self._groups.changing(self._group) as change:
            if self.member_id not in change.group.state.members:
                return
            living = self._living(change.group.state)
            state = self._taking(living, mine=self.assignment - giving)
            if dict(state.members) != dict(change.group.state.members):
                change.put_state(state)
            self._remove_files_of_dead()
        self._settle(change.group.state)

    def leave(self) -> None:
        """Give everything up; the others share it among them at their next heartbeat."""
        if self._handle < 0:
            return
        try:
            with self._groups.changing(self._group) as change:
                members = dict(self._living(change.group.state))
                if members.pop(self.member_id, None) is not None:
                    change.put_state(self._state_of(members))
                self._remove_files_of_dead()
        finally:
            path = self._path(self.member_id)
            with contextlib.suppress(OSError):
                self._files.remove(path or "")
            self._files.close(self._handle)
            self._handle = -1
            self.assignment = frozenset()

    def abandon(self) -> None:
        """Forget the membership in a forked child: its copy of the lock would keep the parent alive for others."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1

    # ------------------------------------------------------------ deciding

    def _settle(self, state: GroupState) -> None:
        self.generation = state.generation
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

    # ------------------------------------------------------------ who is alive

    def _sign_of_life(self) -> str:
        return f"{os.getpid():10d} {int(self._clock.monotonic() * 1000):20d}"

    def _path(self, member_id: str) -> str | None:
        """Return the file of a member, or None if its id is none that a seeklog gave: a broker's member is gone."""
        found = _UUID.search(member_id)
        if found is None:
            return None
        directory = partition_path(self._topics.root, self._groups.partition_of(self._group))
        return f"{directory}/{names.MEMBER}{found[0]}"

    def _living(self, state: GroupState) -> dict[str, Member]:
        return {name: member for name, member in state.members.items() if self._is_alive(member)}

    def _is_alive(self, member: Member) -> bool:
        if member.member_id == self.member_id:
            return True
        path = self._path(member.member_id)
        if path is None:
            return False
        try:
            words = self._files.read_file(path).split()
            self._files.close(self._files.lock(path, ""))
        except FileNotFoundError:
            return False
        except BlockingIOError:
            # It holds its lock. A sign of life that is just being written is as good as one.
            polled_ms = int(words[1]) if len(words) == 2 and words[1].isdigit() else None
            silent_ms = 0 if polled_ms is None else self._clock.monotonic() * 1000 - polled_ms
            return silent_ms <= member.rebalance_timeout_ms
        return False

    def _remove_files_of_dead(self) -> None:
        """Remove the files that no member holds any more. The partition's lock is held: nobody joins meanwhile."""
        directory = partition_path(self._topics.root, self._groups.partition_of(self._group))
        mine = self._path(self.member_id)
        for name in self._files.list(directory):
            path = f"{directory}/{name}"
            if name.startswith(names.MEMBER) and path != mine:
                with contextlib.suppress(OSError):
                    handle = self._files.lock(path, "")
                    self._files.remove(path)
                    self._files.close(handle)


def _owned(members: Mapping[str, Member]) -> frozenset[TopicPartition]:
    return frozenset[TopicPartition]().union(*(member.assignment for member in members.values()))


def _abandon_all() -> None:
    for membership in list(_open_memberships):
        membership.abandon()


os.register_at_fork(after_in_child=_abandon_all)
