"""The assignment of partitions to the members of a group, as a pure function.

Members keep their partitions. Free partitions go to the members with the fewest. Then single partitions move from the
fullest member to the emptiest while that evens them out. So a member that joins or leaves moves as few partitions as
possible, and all members compute the same assignment from the same state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from seeklog.names import TopicPartition

Assignment = dict[str, set[TopicPartition]]


def plan(
    subscriptions: Mapping[str, Collection[str]],
    partitions: Mapping[str, Collection[int]],
    current: Mapping[str, Collection[TopicPartition]],
) -> Assignment:
    """Return the partitions that each member should have. Each partition goes to exactly one of its subscribers."""
    wanted: Assignment = {member: set() for member in sorted(subscriptions)}
    everything = {TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers}
    taken: set[TopicPartition] = set()
    for member, kept in wanted.items():
        kept |= {
            partition
            for partition in current.get(member, ())
            if partition in everything and partition.topic in subscriptions[member] and partition not in taken
        }
        taken |= kept
    subscribers = {
        topic: [member for member in wanted if topic in subscriptions[member]]
        for topic in {partition.topic for partition in everything}
    }
    for partition in sorted(everything - taken):
        if subscribers[partition.topic]:
            wanted[_emptiest(wanted, subscribers[partition.topic])].add(partition)
    _balance(wanted, subscribers)
    return wanted


def _emptiest(wanted: Assignment, members: Collection[str]) -> str:
    return min(members, key=lambda member: (len(wanted[member]), member))


def _balance(wanted: Assignment, subscribers: Mapping[str, Collection[str]]) -> None:
    """Move partitions one by one to members with at least two fewer, until no move is left."""
    held: dict[str, dict[str, list[TopicPartition]]] = {member: {} for member in wanted}
    for member, partitions in wanted.items():
        for partition in sorted(partitions):
            held[member].setdefault(partition.topic, []).append(partition)
    while True:
        for giver in sorted(wanted, key=lambda member: (-len(wanted[member]), member)):
            taker = _find_taker(giver, held, wanted, subscribers)
            if taker is not None:
                break
        else:
            return
        topic, member = taker
        partition = held[giver][topic].pop()
        held[member].setdefault(topic, []).append(partition)
        wanted[giver].remove(partition)
        wanted[member].add(partition)


def _find_taker(
    giver: str,
    held: Mapping[str, Mapping[str, list[TopicPartition]]],
    wanted: Assignment,
    subscribers: Mapping[str, Collection[str]],
) -> tuple[str, str] | None:
    """Return a topic of which the giver has too many partitions, and the member to get one; or None."""
    for topic in sorted(held[giver], reverse=True):
        if held[giver][topic] and subscribers.get(topic):
            taker = _emptiest(wanted, subscribers[topic])
            if len(wanted[giver]) - len(wanted[taker]) > 1:
                return topic, taker
    return None
