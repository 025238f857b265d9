"""What `retain`, `compact` and `truncate` share: which partitions, a plan that is shown, and doing it one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from seeklog import names
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import Column
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import LogLocked
from seeklog.names import TopicPartition

if TYPE_CHECKING:
    from seeklog.config import LogConfig
    from seeklog.log import Log, Removal
    from seeklog.store import Store

Done = TypeVar("Done")

REMOVED: Final = (
    Column("topic"),
    Column("partition", is_right=True),
    Column("first_offset", "from offset", shown=amounts.count, is_right=True),
    Column("next_offset", "up to", shown=amounts.count, is_right=True),
    Column("segments", shown=amounts.count, is_right=True),
    Column("size_bytes", "size", shown=amounts.size, is_right=True),
)


def partitions_of(
    store: Store, topic: str | None, *, internal: Iterable[str] = (), wants: Callable[[LogConfig], bool] | None = None
) -> list[TopicPartition]:
    """Return the partitions of a topic, or of all whose configuration `wants` likes, but of Kafka's own only some."""
    there = names.INTERNAL_TOPICS - set(internal)
    chosen = [topic] if topic is not None else [name for name in store.topics(internal=True) if name not in there]
    found = []
    for name in chosen:
        if topic is not None or wants is None or wants(store.topic(name).config):
            found += [TopicPartition(name, number) for number in store.topic(name).partitions]
    return found


def removal_row(partition: TopicPartition, removal: Removal) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "first_offset": removal.first_offset,
        "next_offset": removal.next_offset,
        "segments": removal.segment_count,
        "size_bytes": removal.size_bytes,
    }


def told(removals: Mapping[TopicPartition, Removal]) -> str:
    """Return what goes, in a few words."""
    # Not records: compaction may have left fewer.
    offsets = sum(each.next_offset - each.first_offset for each in removals.values())
    segments = sum(each.segment_count for each in removals.values())
    size = sum(each.size_bytes for each in removals.values())
    return (
        f"{_many(offsets, 'offset')} of {_many(len(removals), 'partition')}: "
        f"{_many(segments, 'whole segment')}, {amounts.size(size)}"
    )


def _many(count: int, what: str) -> str:
    return f"{amounts.count(count)} {what}{'' if count == 1 else 's'}"


def do_each(
    terminal: Terminal, store: Store, partitions: Iterable[TopicPartition], work: Callable[[Log], Done]
) -> tuple[dict[TopicPartition, Done], LogLocked | None]:
    """Do something to partitions one after the other, each held meanwhile.

    Those that another process writes are left out and told of; the caller raises that at its end.
    """
    done: dict[TopicPartition, Done] = {}
    locked: list[LogLocked] = []
    for partition in partitions:
        try:
            with store.writer(partition.topic, partition.partition) as log:
                done[partition] = work(log)
        except LogLocked as error:
            locked.append(error)
            terminal.say(f"{neutral(str(partition))} is left out: {error.owner} writes it")
    return done, locked[0] if locked else None
