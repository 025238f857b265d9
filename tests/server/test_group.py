"""The state machine of a consumer group, with time that passes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from seeklog.server.coordinator.group import Group, Joined, Joining, Refused, State
from seeklog.wire.error_code import ErrorCode
from server.fast_loop import run_fast

SESSION_S = 10.0
REBALANCE_S = 60.0
Test = Callable[[], Awaitable[None]]


def new_group(*, initial_delay_s: float = 0.0, saved: list[State] | None = None) -> Group:
    def save(group: Group) -> asyncio.Future[None]:
        if saved is not None:
            saved.append(group.state)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    return Group("group", initial_delay_s, save)


def joining(
    member_id: str = "",
    *,
    client: str = "c",
    instance: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    metadata: bytes = b"topics",
    knows_id: bool = True,
    kind: str = "consumer",
) -> Joining:
    return Joining(
        member_id=member_id,
        instance_id=instance,
        client_id=client,
        host="/127.0.0.1",
        session_timeout_s=SESSION_S,
        rebalance_timeout_s=REBALANCE_S,
        protocol_type=kind,
        protocols=tuple((name, metadata) for name in protocols),
        needs_known_id=not knows_id,
    )


async def sync(group: Group, joined: Joined, assignments: dict[str, bytes] | None = None) -> bytes:
    return await group.sync(
        joined.member_id, None, joined.generation, assignments or {}, protocol_type=None, protocol=None
    )


async def form(group: Group, count: int) -> list[Joined]:
    """Let members join and sync; return what each got. The first is the leader."""
    joins = [asyncio.ensure_future(group.join(joining(client=f"c{number}"))) for number in range(count)]
    await asyncio.sleep(0)
    done: list[Joined] = []
    while len(done) < count:
        # Each newcomer starts a rebalance, in which those before it have to join again.
        done = [join.result() for join in joins if join.done()]
        stale = [one for one in done if one.generation < group.generation or group.state is State.PREPARING]
        for one in stale:
            at = next(at for at, join in enumerate(joins) if join.done() and join.result() is one)
            joins[at] = asyncio.ensure_future(group.join(joining(one.member_id, client=f"c{at}")))
        await asyncio.sleep(0)
        done = [join.result() for join in joins if join.done() and join.result().generation == group.generation]
    leader = next(one for one in done if one.leader == one.member_id)
    plan = {one.member_id: one.member_id.encode() for one in done}
    results = await asyncio.gather(*(sync(group, one, plan if one is leader else None) for one in done))
    assert list(results) == [one.member_id.encode() for one in done]
    assert group.state is State.STABLE
    return sorted(done, key=lambda one: one is not leader)


async def refusal(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(Refused) as raised:
        await work
    return raised.value.code


def test_members_share_a_generation_and_only_the_leader_sees_them() -> None:
    async def test() -> None:
        group = new_group()
        leader, *others = await form(group, 3)
        assert {len(one.members) for one in others} == {0}
        assert [member_id for member_id, _, _ in leader.members] == list(group.members)
        assert {one.generation for one in (leader, *others)} == {group.generation}

    run_fast(test())


def test_client_takes_an_id_before_it_joins() -> None:
    async def test() -> None:
        group = new_group()
        with pytest.raises(Refused) as raised:
            await group.join(joining(knows_id=False))
        assert raised.value.code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await group.join(joining(raised.value.member_id, knows_id=False))
        assert joined.member_id == raised.value.member_id

    run_fast(test())


def test_id_that_never_joins_is_forgotten() -> None:
    async def test() -> None:
        group = new_group()
        with pytest.raises(Refused) as raised:
            await group.join(joining(knows_id=False))
        await asyncio.sleep(SESSION_S + 1)
        assert await refusal(group.join(joining(raised.value.member_id))) == ErrorCode.UNKNOWN_MEMBER_ID

    run_fast(test())


def test_first_member_waits_for_others() -> None:
    async def test() -> None:
        group = new_group(initial_delay_s=3)
        loop = asyncio.get_running_loop()
        first = asyncio.ensure_future(group.join(joining(client="a")))
        await asyncio.sleep(1)
        second = asyncio.ensure_future(group.join(joining(client="b")))
        joined = await asyncio.gather(first, second)
        assert loop.time() == pytest.approx(3)
        assert [one.generation for one in joined] == [1, 1]

    run_fast(test())


def test_member_that_is_silent_is_dropped_and_the_others_rebalance() -> None:
    async def test() -> None:
        group = new_group()
        leader, other = await form(group, 2)
        for _ in range(4):
            await asyncio.sleep(SESSION_S / 3)
            group.heartbeat(leader.member_id, None, leader.generation) if group.state is State.STABLE else None
        assert group.state is State.PREPARING
        assert list(group.members) == [leader.member_id]
        with pytest.raises(Refused) as raised:
            group.heartbeat(leader.member_id, None, leader.generation)
        assert raised.value.code == ErrorCode.REBALANCE_IN_PROGRESS
        again = await group.join(joining(leader.member_id, client="c0"))
        assert again.generation == leader.generation + 1
        with pytest.raises(Refused) as raised:
            group.heartbeat(other.member_id, None, other.generation)
        assert raised.value.code == ErrorCode.UNKNOWN_MEMBER_ID

    run_fast(test())


def test_member_that_does_not_rejoin_in_time_is_dropped() -> None:
    async def test() -> None:
        group = new_group()
        leader, other = await form(group, 2)
        newcomer = asyncio.ensure_future(group.join(joining(client="new")))
        await asyncio.sleep(0)
        rejoined = asyncio.ensure_future(group.join(joining(leader.member_id, client="c0")))
        # The other one lives, but never joins again.
        for _ in range(12):
            await asyncio.sleep(SESSION_S / 2)
            if other.member_id in group.members:
                with pytest.raises(Refused):
                    group.heartbeat(other.member_id, None, other.generation)
        joined = await asyncio.gather(newcomer, rejoined)
        assert {one.member_id for one in joined} == set(group.members)

    run_fast(test())


def test_member_that_does_not_sync_in_time_is_dropped() -> None:
    async def test() -> None:
        group = new_group(initial_delay_s=1)
        joined = await asyncio.gather(group.join(joining(client="a")), group.join(joining(client="b")))
        leader, follower = sorted(joined, key=lambda one: one.member_id != one.leader)
        waiting = asyncio.ensure_future(sync(group, follower))
        while group.state is State.COMPLETING:
            await asyncio.sleep(SESSION_S / 2)
            if leader.member_id in group.members:
                group.heartbeat(leader.member_id, None, leader.generation)
        assert asyncio.get_running_loop().time() == pytest.approx(1 + REBALANCE_S, abs=SESSION_S)
        assert list(group.members) == [follower.member_id]
        assert await refusal(waiting) == ErrorCode.REBALANCE_IN_PROGRESS

    run_fast(test())


def test_static_member_that_restarts_takes_its_place_without_a_rebalance() -> None:
    async def test() -> None:
        group = new_group()
        first = await group.join(joining(instance="i1"))
        await sync(group, first, {first.member_id: b"all"})
        second = await group.join(joining(instance="i1"))
        assert (second.generation, second.skips_assignment) == (first.generation, True)
        assert second.member_id != first.member_id
        assert await sync(group, second) == b"all"
        with pytest.raises(Refused) as raised:
            group.heartbeat(first.member_id, "i1", first.generation)
        assert raised.value.code == ErrorCode.FENCED_INSTANCE_ID

    run_fast(test())


def test_leaving_members_make_the_group_empty() -> None:
    async def test() -> None:
        saved: list[State] = []
        group = new_group(saved=saved)
        leader, other = await form(group, 2)
        assert group.leave(other.member_id, None) == other.member_id
        assert group.state is State.PREPARING
        group.leave(leader.member_id, None)
        assert (group.state, saved[-1]) == (State.EMPTY, State.EMPTY)
        with pytest.raises(Refused) as raised:
            group.leave(leader.member_id, None)
        assert raised.value.code == ErrorCode.UNKNOWN_MEMBER_ID

    run_fast(test())


def test_protocol_that_most_prefer_among_those_all_know_is_chosen() -> None:
    async def test() -> None:
        group = new_group(initial_delay_s=1)
        joins = [
            group.join(joining(client="a", protocols=("sticky", "range"))),
            group.join(joining(client="b", protocols=("range", "sticky", "own"))),
            group.join(joining(client="c", protocols=("own", "range", "sticky"))),
        ]
        assert {one.protocol for one in await asyncio.gather(*joins)} == {"range"}
        other_kind = group.join(joining(client="d", kind="connect"))
        assert await refusal(other_kind) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        unknown = group.join(joining(client="d", protocols=("mine",)))
        assert await refusal(unknown) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    run_fast(test())


def test_member_of_an_older_generation_is_refused() -> None:
    async def test() -> None:
        group = new_group()
        (only,) = await form(group, 1)
        stale = only._replace(generation=only.generation - 1)
        assert await refusal(sync(group, stale)) == ErrorCode.ILLEGAL_GENERATION
        with pytest.raises(Refused) as raised:
            group.heartbeat(only.member_id, None, only.generation + 1)
        assert raised.value.code == ErrorCode.ILLEGAL_GENERATION

    run_fast(test())


def test_assignment_that_cannot_be_saved_is_refused_and_the_group_rebalances() -> None:
    async def test() -> None:
        def fail(_: Group) -> asyncio.Future[None]:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_exception(OSError("the disk is full"))
            return done

        group = Group("group", 0.0, fail)
        joined = await group.join(joining())
        assert await refusal(sync(group, joined, {})) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert group.state is State.PREPARING

    run_fast(test())
