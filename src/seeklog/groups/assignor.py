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
    while _move_one(wanted, subscribers):
        pass
    return wanted


def _emptiest(wanted: Assignment, members: Collection[str]) -> str:
    return min(members, key=lambda member: (len(wanted[member]), member))


def _move_one(wanted: Assignment, subscribers: Mapping[str, Collection[str]]) -> bool:
    """Move a partition to where there are at least two fewer; tell whether there was one to move."""
    for giver in sorted(wanted, key=lambda member: (-len(wanted[member]), member)):
        takers = {
            topic: _emptiest(wanted, subscribers[topic])
            for topic in {partition.topic for partition in wanted[giver]}
            if subscribers.get(topic)
        }
        for partition in sorted(wanted[giver], reverse=True):
            taker = takers[partition.topic]
            if len(wanted[giver]) - len(wanted[taker]) > 1:
                wanted[giver].remove(partition)
                wanted[taker].add(partition)
                return True
    return False
