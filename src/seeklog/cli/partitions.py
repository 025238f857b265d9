"""The partitions that a verb is about, and places in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from seeklog.cli.exits import NothingFound
from seeklog.errors import OffsetOutOfRange, TopicNotFound, UsageError

if TYPE_CHECKING:
    from seeklog.cli.times import Place
    from seeklog.store import Store


def partitions_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the option `--partition`, which may be repeated."""
    return click.option(
        "--partition",
        "-p",
        "partitions",
        type=click.IntRange(0),
        multiple=True,
        help="Only this one; may be repeated. By default all of them.",
    )(function)


def chosen(store: Store, topic: str, wanted: Iterable[int]) -> list[int]:
    """Return the partitions of a topic that were asked for, all of them if none was."""
    there = store.topic(topic).partitions
    numbers = sorted(set(wanted)) or list(there)
    for number in numbers:
        if number not in there:
            # Where a broker has shared them out among several disks they need not be all.
            known = ", ".join(map(str, there[:12])) + (", …" if len(there) > 12 else "")
            raise TopicNotFound(f"topic {topic!r} has no partition {number}, only {known}")
    return numbers


def offsets_at(store: Store, topic: str, numbers: Iterable[int], place: Place) -> dict[int, int]:
    """Return the offset of a place in each of some partitions.

    An offset means one record in one partition: where there are several, it takes one that is named.
    """
    numbers = list(numbers)
    if place.kind == "offset" and len(numbers) > 1:
        raise UsageError(
            f"{topic} has {len(numbers)} partitions, each with an offset {place.number} of its own; "
            "say which with --partition, or give -N, start, end or @TIME"
        )
    found = {}
    for number in numbers:
        try:
            found[number] = place.offset_in(store.log(topic, number))
        except OffsetOutOfRange as error:
            raise NothingFound(
                f"{topic}-{number} has no offset {error.offset}; it has {error.log_start_offset} to "
                f"{error.log_end_offset}, the next to come"
            ) from error
    return found
