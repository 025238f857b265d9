"""The assignment of partitions: the plan, and members that follow it without a coordinator."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log.workbench import FakeClock
from seeklog import TopicPartition
from seeklog.errors import TopicNotFound
from seeklog.groups.assignor import plan
from seeklog.groups.groups import Group, GroupChange
from seeklog.groups.liveness import living
from seeklog.groups.membership import Membership
from seeklog.groups.records import GroupState, Member

TOPICS = ("a", "b", "c")

topics = st.dictionaries(st.sampled_from(TOPICS), st.sets(st.integers(0, 12), max_size=9), max_size=3)
members = st.sampled_from([f"member-{number}" for number in range(7)])
all_topics = st.just(frozenset(TOPICS))
subscriptions = st.dictionaries(members, st.frozensets(st.sampled_from(TOPICS), max_size=3), max_size=6)
same_subscriptions = st.dictionaries(members, all_topics, min_size=1, max_size=6)
# The current assignment. It may name deleted members, topics and partitions, and a partition twice.
holdings = st.dictionaries(
    members, st.sets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 14)), max_size=9), max_size=6
)

Subscriptions = Mapping[str, frozenset[str]]
Partitions = Mapping[str, set[int]]
Holdings = Mapping[str, set[TopicPartition]]


def everything(partitions: Partitions) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers}


@given(subscriptions, topics, holdings)
def test_every_partition_goes_to_exactly_one_subscriber(
    subscribed: Subscriptions, partitions: Partitions, current: Holdings
) -> None:
    planned = plan(subscribed, partitions, current)

    given_out = [partition for of_member in planned.values() for partition in of_member]
    read = frozenset().union(*subscribed.values())
    assert set(planned) == set(subscribed)
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {partition for partition in everything(partitions) if partition.topic in read}


@given(subscriptions, topics, holdings)
def test_only_subscribers_of_topic_get_its_partitions(
    subscribed: Subscriptions, partitions: Partitions, current: Holdings
) -> None:
    for member, of_member in plan(subscribed, partitions, current).items():
        assert {partition.topic for partition in of_member} <= subscribed[member]


@given(same_subscriptions, topics, holdings)
def test_members_with_same_topics_get_equal_shares(
    subscribed: Subscriptions, partitions: Partitions, current: Holdings
) -> None:
    sizes = [len(of_member) for of_member in plan(subscribed, partitions, current).values()]

    assert max(sizes) - min(sizes) <= 1


@given(subscriptions, topics, holdings)
def test_no_single_move_would_balance_plan_better(
    subscribed: Subscriptions, partitions: Partitions, current: Holdings
) -> None:
    planned = plan(subscribed, partitions, current)

    for giver, of_giver in planned.items():
        for partition in of_giver:
            takers = [member for member in subscribed if partition.topic in subscribed[member]]
            assert all(len(of_giver) - len(planned[taker]) <= 1 for taker in takers), (giver, partition)


@given(same_subscriptions, topics, holdings)
def test_as_few_partitions_as_possible_move(
    subscribed: Subscriptions, partitions: Partitions, current: Holdings
) -> None:
    """Goal: a member with at most its even share keeps all of it, and a member with more gives only the surplus."""
    planned = plan(subscribed, partitions, current)

    total = len(everything(partitions))
    share, left_over = divmod(total, len(subscribed))
    taken: set[TopicPartition] = set()
    held = []
    for member in sorted(subscribed):
        mine = (current.get(member, set()) & everything(partitions)) - taken
        taken |= mine
        held.append(len(mine))
        kept = len(mine & planned[member])
        assert kept >= min(len(mine), share)
    # Of the members above the even share, as many as there are partitions left over keep one more.
    surplus = sorted((min(size, share + 1) for size in held), reverse=True)
    most_kept = sum(min(size, share) for size in held) + min(left_over, sum(size > share for size in surplus))
    kept_in_all = sum(len(planned[member] & current.get(member, set())) for member in sorted(subscribed))
    # A partition that two members held is kept by one of them. If it went to the other, it counts for that one.
    assert kept_in_all >= most_kept


@given(subscriptions, topics, holdings)
def test_applied_plan_is_stable(subscribed: Subscriptions, partitions: Partitions, current: Holdings) -> None:
    planned = plan(subscribed, partitions, current)

    assert plan(subscribed, partitions, planned) == planned


@given(subscriptions, topics, holdings, st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_order_of_input(
    subscribed: Subscriptions, partitions: Partitions, current: Holdings, draw: random.Random
) -> None:
    def shuffled(mapping: Mapping[str, Any]) -> dict[str, Any]:
        items = list(mapping.items())
        draw.shuffle(items)
        return dict(items)

    assert plan(shuffled(subscribed), shuffled(partitions), shuffled(current)) == plan(subscribed, partitions, current)


@given(st.integers(1, 40), st.integers(1, 7))
def test_new_member_gets_its_share_and_nothing_else_moves(count: int, size: int) -> None:
    partitions = {"a": set(range(count))}
    before = plan({f"member-{number}": frozenset("a") for number in range(size)}, partitions, {})
    after = plan({f"member-{number}": frozenset("a") for number in range(size + 1)}, partitions, before)

    moved = [tp for member, of_member in before.items() for tp in of_member if tp not in after[member]]
    assert set(moved) == after[f"member-{size}"]
    assert len(moved) == count // (size + 1)


@given(st.integers(1, 40), st.integers(2, 7), st.data())
def test_only_partitions_of_leaving_member_move(count: int, size: int, data: st.DataObject) -> None:
    partitions = {"a": set(range(count))}
    subscribed = {f"member-{number}": frozenset("a") for number in range(size)}
    before = plan(subscribed, partitions, {})
    gone = data.draw(st.sampled_from(sorted(subscribed)))
    after = plan({member: own for member, own in subscribed.items() if member != gone}, partitions, before)

    assert all(before[member] <= after[member] for member in after)


def test_plans_without_members_or_partitions_are_empty() -> None:
    assert plan({}, {"a": {0, 1}}, {}) == {}
    assert plan({"member": frozenset("a")}, {}, {"member": {TopicPartition("a", 0)}}) == {"member": set()}


# ---------------------------------------------------------------- members with groups, topics, and files in memory


class World:
    """The parts of groups, topics and files that members use. Every record of the group is checked when it is put."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.partitions = dict(partitions)
        self.clock = FakeClock()
        self.group = Group("group")
        self.locks: dict[int, str] = {}
        self.files: dict[str, bytes] = {}
        self.members: dict[int, Membership] = {}
        self.meanwhile: Callable[[], object] = lambda: None
        self._numbers = iter(range(10**9))
        self._is_changing = False

    # groups

    def directory_of(self, _name: str) -> str:
        return "/world/__consumer_offsets-0"

    def living(self, group: Group) -> dict[str, Member]:
        world: Any = self
        return living(world, self.clock, self.directory_of(group.name), group.state)

    def look(self, _name: str) -> Group:
        return Group("group", self.group.state)

    @contextlib.contextmanager
    def changing(self, _name: str) -> Iterator[GroupChange]:
        assert not self._is_changing
        self._is_changing = True
        change = GroupChange("group", Group("group", self.group.state), 0)
        try:
            yield change
        finally:
            self._is_changing = False
        self.group = Group("group", change.group.state)
        self.check_no_partition_has_two()

    # topics

    def refresh(self) -> bool:
        return False

    def find(self, name: str) -> Any:
        if name not in self.partitions:
            raise TopicNotFound(name)

        class Found:
            partitions = tuple(range(self.partitions[name]))

        return Found

    # files

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if path in self.locks.values():
            raise BlockingIOError
        handle = next(self._numbers)
        self.locks[handle] = path
        return handle

    def lock(self, handle: int, path: str, owner: str) -> str:
        self.files[path] = owner.encode()
        return ""

    def is_locked(self, path: str) -> bool:
        if path not in self.files:
            raise FileNotFoundError(path)
        return path in self.locks.values()

    def close(self, handle: int) -> None:
        del self.locks[handle]

    def write(self, handle: int, data: bytes, position: int) -> None:
        assert position == 0
        self.files[self.locks[handle]] = data

    def read_file(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def list(self, directory: str) -> list[str]:
        return [path.removeprefix(f"{directory}/") for path in self.files]

    def remove(self, path: str) -> None:
        if self.files.pop(path, None) is None:
            raise FileNotFoundError(path)

    # events

    def join(self, subscribed: frozenset[str]) -> int:
        number = next(self._numbers)
        world: Any = self
        member = Membership(
            world,
            world,
            files=world,
            clock=self.clock,
            group="group",
            subscribed=subscribed,
            client_id=f"client-{number}",
            heartbeat_interval_ms=1,
            max_poll_interval_ms=10_000,
            # Anything may happen between a member's read and its action.
            on_revoke=lambda _: self.meanwhile(),
        )
        member.join()
        self.members[number] = member
        return number

    def leave(self, number: int) -> None:
        self.members.pop(number).leave()

    def die(self, number: int) -> None:
        """End a member like a kill: its lock is released, and nothing else happens."""
        lock = self.members.pop(number)._lock
        assert lock is not None
        lock.close()

    def check_no_partition_has_two(self) -> None:
        """Check that the partitions of living members are disjoint, in their own view and in the record."""
        recorded = [tp for member in self.group.state.members.values() for tp in member.assignment]
        assert len(recorded) == len(set(recorded)), self.group.state
        held = [tp for member in self.members.values() for tp in member.assignment]
        assert len(held) == len(set(held)), self.group.state

    def settle(self) -> int:
        """Heartbeat all members in turn until a round changes nothing. Return the number of rounds."""
        self.meanwhile = lambda: None
        for rounds in range(100):
            before = self.group.state
            for member in list(self.members.values()):
                member.heartbeat(now=True)
                self.check_no_partition_has_two()
            if self.group.state == before:
                return rounds
        raise AssertionError("the members do not come to agree")

    def check_agreement(self) -> None:
        held = {member.member_id: set(member.assignment) for member in self.members.values()}
        state: GroupState = self.group.state
        assert held == {name: set(member.assignment) for name, member in state.members.items()}
        subscribed = {name: member.topics for name, member in state.members.items()}
        partitions = {topic: set(range(count)) for topic, count in self.partitions.items()}
        assert plan(subscribed, partitions, held) == held


def agree(seed: int, *, interleaved: bool) -> None:
    draw = random.Random(seed)
    world = World({topic: draw.randrange(1, 9) for topic in TOPICS})
    alike = draw.random() < 0.5

    def subscription() -> frozenset[str]:
        return frozenset(TOPICS) if alike else frozenset(draw.sample(TOPICS, draw.randrange(1, 4)))

    def happen(depth: int) -> None:
        event = draw.random()
        numbers = list(world.members)
        busy = sorted(set(numbers) - beating)
        if event < 0.25 and len(numbers) < 8:
            world.join(subscription())
        elif event < 0.33 and busy:
            world.leave(draw.choice(busy))
        elif event < 0.41 and busy:
            world.die(draw.choice(busy))
        elif event < 0.45:
            world.partitions[draw.choice(TOPICS)] += 1
        elif busy:
            number = draw.choice(busy)
            if interleaved and depth < 3:
                world.meanwhile = lambda: happen(depth + 1)
            beating.add(number)
            try:
                world.members[number].heartbeat(now=True)
            finally:
                beating.discard(number)
        world.check_no_partition_has_two()

    beating: set[int] = set()
    for _ in range(60):
        happen(0)
        if draw.random() < 0.1 and world.members:
            world.settle()
            world.check_agreement()
    if not world.members:
        world.join(frozenset(TOPICS))
    world.settle()
    world.check_agreement()


@pytest.mark.parametrize("seed", range(60))
def test_members_that_join_leave_and_die_converge_without_sharing_partition(seed: int) -> None:
    agree(seed, interleaved=False)


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_members_converge_although_others_act_between_read_and_write(seed: int) -> None:
    agree(seed, interleaved=True)


def test_members_converge_in_few_rounds() -> None:
    """Goal: a join or leave costs each other member a heartbeat or two, not a storm of generations."""
    world = World({"a": 12})
    for size in range(1, 7):
        world.join(frozenset("a"))
        assert world.settle() <= 3
        assert sorted(len(member.assignment) for member in world.members.values()) == sorted(
            12 // size + (place < 12 % size) for place in range(size)
        )
    while len(world.members) > 1:
        world.die(next(iter(world.members)))
        assert world.settle() <= 3
    assert [len(member.assignment) for member in world.members.values()] == [12]


def test_member_files_of_dead_members_are_removed() -> None:
    world = World({"a": 4})
    numbers = [world.join(frozenset("a")) for _ in range(4)]
    world.die(numbers[0])
    world.leave(numbers[1])
    world.settle()

    assert len(world.files) == 2
    assert sorted(world.locks.values()) == sorted(world.files)
