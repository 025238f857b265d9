"""Which member of a group should read which partition: a pure decision.

Members keep what they have; what nobody has goes to those with the fewest; then single partitions move from the
fullest to the emptiest while that makes them more even. So one who comes or goes moves as few as can be, and
everybody who decides over the same state decides the same.
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
    """Return the partitions that each member should have, each one at exactly one of its subscribers."""
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
    """Move partitions one by one to where there are at least two fewer, until there is none to move."""
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
    """Return a topic that the giver has too much of and who should have one more of it, or None."""
    for topic in sorted(held[giver], reverse=True):
        if held[giver][topic] and subscribers.get(topic):
            taker = _emptiest(wanted, subscribers[topic])
            if len(wanted[giver]) - len(wanted[taker]) > 1:
                return topic, taker
    return None
