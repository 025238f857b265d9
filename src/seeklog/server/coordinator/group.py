"""One consumer group of the classic protocol: its members, and the rebalances that share partitions among them.

    EMPTY <- no member left - PREPARING <- a member joins, leaves or is late - any other state
                              PREPARING - all have joined -> COMPLETING - the leader has assigned -> STABLE

A rebalance waits for every known member to join again, as long as the largest rebalance timeout among them. The first
member of an empty group waits a moment for others. All of it runs in the event loop; a request that waits is a future.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from seeklog.wire.error_code import ErrorCode

NO_GENERATION: Final = -1
CONSUMER: Final = "consumer"


class State(Enum):
    """The value is Kafka's name."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Refused(Exception):
    """A request of a member is answered with an error code."""

    def __init__(self, code: ErrorCode, member_id: str = "") -> None:
        super().__init__(code.name)
        self.code = code
        self.member_id = member_id


class Joining(NamedTuple):
    """What a member says when it joins."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_id: bool
    """The client takes an id before it joins (KIP-394)."""
    reason: str = ""


class Joined(NamedTuple):
    """The group as a member joins it. Only the leader gets the members."""

    generation: int
    protocol: str
    leader: str
    member_id: str
    members: tuple[tuple[str, str | None, bytes], ...]
    skips_assignment: bool = False


@dataclass(slots=True, eq=False)
class Member:
    """A member, and the request of it that waits."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    joining: asyncio.Future[Joined] | None = None
    syncing: asyncio.Future[bytes] | None = None
    expiry: asyncio.TimerHandle | None = None

    def metadata(self, protocol: str) -> bytes:
        return dict(self.protocols).get(protocol, b"")


@dataclass(slots=True, eq=False)
class Group:
    """A group. It is saved when its leader has assigned the partitions, and when its last member has left."""

    name: str
    initial_delay_s: float
    save: Callable[[Group], asyncio.Future[None]]
    """Makes the members and their assignment durable. Its future may fail."""
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """The member of each instance id."""
    pending: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    """Ids that were given out and have not joined yet."""
    rebalance: asyncio.TimerHandle | None = None
    gathers_until: float = 0.0
    """Until then the first rebalance of an empty group waits for members that may come."""

    # ------------------------------------------------------------ joining

    async def join(self, asked: Joining) -> Joined:
        """Add a member, or let it join the next generation; return when that generation begins."""
        self._check_protocols(asked)
        if asked.member_id:
            member = self._rejoining(asked)
        elif asked.instance_id is not None and asked.instance_id in self.static:
            member = self._replaced(asked)
        elif asked.needs_known_id and asked.instance_id is None:
            raise Refused(ErrorCode.MEMBER_ID_REQUIRED, self._promised_id(asked))
        else:
            member = self._added(asked, f"{asked.instance_id or asked.client_id}-{uuid.uuid4()}")
        if isinstance(member, Joined):
            return member
        if member.joining is None or member.joining.done():
            member.joining = asyncio.get_running_loop().create_future()
        self._stop_expiry(member)
        waiting = member.joining
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        else:
            self._prepare()
        return await asyncio.shield(waiting)

    def _check_protocols(self, asked: Joining) -> None:
        if not asked.protocols or not asked.protocol_type:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        others = [member for member in self.members.values() if member.member_id != asked.member_id]
        if others and (
            asked.protocol_type != self.protocol_type
            or not set.intersection({name for name, _ in asked.protocols}, *map(_names_of, others))
        ):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _promised_id(self, asked: Joining) -> str:
        member_id = f"{asked.client_id}-{uuid.uuid4()}"
        loop = asyncio.get_running_loop()
        self.pending[member_id] = loop.call_later(asked.session_timeout_s, self._forget_pending, member_id)
        return member_id

    def _forget_pending(self, member_id: str) -> None:
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()
            self._complete_if_all_joined()

    def _added(self, asked: Joining, member_id: str) -> Member:
        if not self.members:
            self.protocol_type = asked.protocol_type
        member = Member(
            member_id,
            asked.instance_id,
            asked.client_id,
            asked.host,
            asked.session_timeout_s,
            asked.rebalance_timeout_s,
            asked.protocols,
        )
        self.members[member_id] = member
        if asked.instance_id is not None:
            self.static[asked.instance_id] = member_id
        return member

    def _rejoining(self, asked: Joining) -> Member | Joined:
        """Return a member that joins the next generation, or the present one if nothing changes for it."""
        self._check_instance(asked.instance_id, asked.member_id)
        if asked.member_id in self.pending:
            self.pending.pop(asked.member_id).cancel()
            return self._added(asked, asked.member_id)
        member = self.members.get(asked.member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        is_changed = member.protocols != asked.protocols
        self._update(member, asked)
        if is_changed or self.state is State.PREPARING:
            return member
        if self.state is State.COMPLETING or (self.state is State.STABLE and member.member_id != self.leader):
            # It has missed the answer to its last request.
            self.touch(member)
            return self._joined(member)
        return member

    def _update(self, member: Member, asked: Joining) -> None:
        member.protocols = asked.protocols
        member.session_timeout_s = asked.session_timeout_s
        member.rebalance_timeout_s = asked.rebalance_timeout_s
        member.client_id, member.host = asked.client_id, asked.host

    def _replaced(self, asked: Joining) -> Member | Joined:
        """Let a restarted static member take the place of its earlier self, which is fenced (KIP-345)."""
        assert asked.instance_id is not None
        old = self.members.pop(self.static[asked.instance_id])
        self._stop_expiry(old)
        _fail(old, Refused(ErrorCode.FENCED_INSTANCE_ID))
        member = self._added(asked, f"{asked.instance_id}-{uuid.uuid4()}")
        member.assignment = old.assignment
        is_leader = self.leader == old.member_id
        if is_leader:
            self.leader = member.member_id
        if self.state is State.STABLE and old.metadata(self.protocol) == member.metadata(self.protocol):
            self.touch(member)
            joined = self._joined(member)
            # The leader gets the members, but what it assigned still holds.
            return joined._replace(skips_assignment=is_leader)
        return member

    def _prepare(self) -> None:
        """Begin a rebalance: every member has to join again."""
        if self.state is State.COMPLETING:
            for member in self.members.values():
                if member.syncing is not None:
                    _fail_future(member.syncing, Refused(ErrorCode.REBALANCE_IN_PROGRESS))
                    member.syncing = None
                    self.touch(member)
        loop = asyncio.get_running_loop()
        timeout_s = self._rebalance_timeout_s()
        if self.state is State.EMPTY:
            timeout_s = min(self.initial_delay_s, timeout_s)
            self.gathers_until = loop.time() + timeout_s
        self.state = State.PREPARING
        if self.rebalance is not None:
            self.rebalance.cancel()
        self.rebalance = loop.call_later(timeout_s, self._complete_join)
        self._complete_if_all_joined()

    def _rebalance_timeout_s(self) -> float:
        return max((member.rebalance_timeout_s for member in self.members.values()), default=0.0)

    def _complete_if_all_joined(self) -> None:
        if (
            self.state is State.PREPARING
            and asyncio.get_running_loop().time() >= self.gathers_until
            and not self.pending
            and all(member.joining is not None for member in self.members.values())
        ):
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin the next generation, with the members that have joined and the static ones that are expected back."""
        if self.rebalance is not None:
            self.rebalance.cancel()
            self.rebalance = None
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._drop(member)
        self.generation += 1
        if not any(member.joining is not None for member in self.members.values()):
            if not self.members:
                self._become_empty()
                return
            # Only static members that have not come back yet: wait for them once more.
            self.rebalance = asyncio.get_running_loop().call_later(self._rebalance_timeout_s(), self._complete_join)
            return
        self.protocol = self._voted_protocol()
        leader = self.members.get(self.leader)
        if leader is None or leader.joining is None:
            self.leader = next(one.member_id for one in self.members.values() if one.joining is not None)
        self.state = State.COMPLETING
        for member in self.members.values():
            if member.joining is not None:
                joining, member.joining = member.joining, None
                if not joining.done():
                    joining.set_result(self._joined(member))
            self.touch(member)
        # Members that do not sync in time are dropped, so that the others need not wait for them.
        self.rebalance = asyncio.get_running_loop().call_later(self._rebalance_timeout_s(), self._drop_unsynced)

    def _drop_unsynced(self) -> None:
        if self.state is State.COMPLETING:
            for member in [one for one in self.members.values() if one.syncing is None]:
                self._drop(member)
            self._rebalance_without_some()

    def _become_empty(self) -> None:
        self.state = State.EMPTY
        self.leader = self.protocol = ""
        self.save(self)

    def _joined(self, member: Member) -> Joined:
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.member_id == self.leader:
            members = tuple(
                (one.member_id, one.instance_id, one.metadata(self.protocol)) for one in self.members.values()
            )
        return Joined(self.generation, self.protocol, self.leader, member.member_id, members)

    def _voted_protocol(self) -> str:
        """Return the protocol that all members know and most of them prefer."""
        known = set.intersection(*map(_names_of, self.members.values()))
        votes = Counter(next(name for name, _ in member.protocols if name in known) for member in self.members.values())
        return votes.most_common(1)[0][0]

    # ------------------------------------------------------------ syncing

    async def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        *,
        protocol_type: str | None,
        protocol: str | None,
    ) -> bytes:
        """Return a member's assignment once the leader has made it. The leader brings all of them."""
        member = self.checked(member_id, instance_id, generation)
        if (protocol_type is not None and protocol_type != self.protocol_type) or (
            protocol is not None and protocol != self.protocol
        ):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is State.PREPARING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        if self.state is State.STABLE:
            self.touch(member)
            return member.assignment
        if self.state is not State.COMPLETING:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        member.syncing = asyncio.get_running_loop().create_future()
        waiting = member.syncing
        self._stop_expiry(member)
        if member_id == self.leader:
            await self._assign(assignments)
        return await asyncio.shield(waiting)

    async def _assign(self, assignments: Mapping[str, bytes]) -> None:
        generation = self.generation
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        failure: Exception | None = None
        try:
            await self.save(self)
        except Exception as error:  # whatever it is, the group must go on
            failure = error
        if self.state is not State.COMPLETING or self.generation != generation:
            return  # a rebalance has begun meanwhile, and has refused the requests that wait
        if failure is not None:
            for member in self.members.values():
                member.assignment = b""
                if member.syncing is not None:
                    _fail_future(member.syncing, Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                    member.syncing = None
            self._prepare()
            return
        self.state = State.STABLE
        if self.rebalance is not None:
            self.rebalance.cancel()
            self.rebalance = None
        for member in self.members.values():
            syncing, member.syncing = member.syncing, None
            if syncing is not None and not syncing.done():
                syncing.set_result(member.assignment)
            self.touch(member)

    # ------------------------------------------------------------ staying, leaving

    def checked(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return a member of this generation, or raise what Kafka answers."""
        self._check_instance(instance_id, member_id)
        member = self.members.get(member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            raise Refused(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _check_instance(self, instance_id: str | None, member_id: str) -> None:
        if instance_id is None:
            return
        current = self.static.get(instance_id)
        if current is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        if current != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Keep a member alive. Tells it by an error that it must join again."""
        if self.state in (State.EMPTY, State.DEAD):
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.checked(member_id, instance_id, generation)
        self.touch(member)
        if self.state is State.PREPARING:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)

    def touch(self, member: Member) -> None:
        """Restart the session of a member. A member whose request waits is alive as long as it waits."""
        self._stop_expiry(member)
        if member.joining is None and member.syncing is None:
            loop = asyncio.get_running_loop()
            member.expiry = loop.call_later(member.session_timeout_s, self._expired, member)

    def _stop_expiry(self, member: Member) -> None:
        if member.expiry is not None:
            member.expiry.cancel()
            member.expiry = None

    def _expired(self, member: Member) -> None:
        if self.members.get(member.member_id) is member:
            self._drop(member)
            self._rebalance_without_some()

    def leave(self, member_id: str, instance_id: str | None) -> str:
        """Remove a member, which a static one may name by its instance; return its id."""
        if instance_id is not None and not member_id:
            if instance_id not in self.static:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
            member_id = self.static[instance_id]
        self._check_instance(instance_id, member_id)
        if member_id in self.pending:
            self._forget_pending(member_id)
            return member_id
        member = self.members.get(member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        self._drop(member)
        self._rebalance_without_some()
        return member_id

    def _drop(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        self._stop_expiry(member)
        _fail(member, Refused(ErrorCode.UNKNOWN_MEMBER_ID))

    def _rebalance_without_some(self) -> None:
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare()
        if self.state is State.PREPARING:
            if self.members:
                self._complete_if_all_joined()
            else:
                self._complete_join()

    def close(self) -> None:
        """End every wait and every timer: the server stops, or unloads the group."""
        self.state = State.DEAD
        for member in self.members.values():
            self._stop_expiry(member)
            _fail(member, Refused(ErrorCode.NOT_COORDINATOR))
        for timer in (*self.pending.values(), *([self.rebalance] if self.rebalance is not None else [])):
            timer.cancel()


def _names_of(member: Member) -> set[str]:
    return {name for name, _ in member.protocols}


def _fail(member: Member, error: Refused) -> None:
    for future in (member.joining, member.syncing):
        if future is not None:
            _fail_future(future, error)
    member.joining = member.syncing = None


def _fail_future(future: asyncio.Future[Joined] | asyncio.Future[bytes], error: Refused) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # seen, if nobody waits any more
