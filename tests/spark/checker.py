"""Compares a topic with the rows that were written to it: none lost, none duplicated, each key in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seeklog import Record, names
from store.workbench import open_store

Row = tuple[bytes, bytes]
"""A key, and a value that no other row has."""


@dataclass(slots=True)
class Verdict:
    """The errors found in a topic; falsy if there are none."""

    lost: list[Row] = field(default_factory=list)
    doubled: list[Row] = field(default_factory=list)
    strange: list[Row] = field(default_factory=list)
    """What nobody has written."""
    reordered: list[bytes] = field(default_factory=list)
    """Keys whose rows are all there, but not in the order in which they were written."""

    def __str__(self) -> str:
        errors = []
        for what in ("lost", "doubled", "strange", "reordered"):
            rows = getattr(self, what)
            if rows:
                errors.append(f"{len(rows)} {what}, such as {rows[0]!r}")
        return "; ".join(errors) or "nothing"

    def __bool__(self) -> bool:
        return str(self) != "nothing"


def judge(written: Iterable[Row], found: Mapping[int, Sequence[Row]]) -> Verdict:
    """Return the errors. Rows of one key were written in the given order, and must be in one partition."""
    written = list(written)
    expected, there = Counter(written), Counter(row for rows in found.values() for row in rows)
    verdict = Verdict(
        lost=sorted((expected - there).elements()),
        doubled=sorted(row for row, count in there.items() if count > max(1, expected[row])),
        strange=sorted(row for row in there if row not in expected),
    )
    if not verdict:
        orders = [_by_key(rows) for rows in found.values()]
        verdict.reordered = [
            key
            for key, values in _by_key(written).items()
            if [order[key] for order in orders if key in order] != [values]
        ]
    return verdict


def _by_key(rows: Iterable[Row]) -> dict[bytes, list[bytes]]:
    order: dict[bytes, list[bytes]] = {}
    for key, value in rows:
        order.setdefault(key, []).append(value)
    return order


def rows_of(root: Path, topic: str) -> dict[int, list[Row]]:
    """Return the rows that a reader gets from each partition of a topic."""
    with open_store(root, read_only=True) as store:
        return {
            one.partition: [_row(record) for record in store.log(topic, one.partition).scan()]
            for one in store.describe_topic(topic).partitions
        }


def _row(record: Record) -> Row:
    assert record.key is not None
    assert record.value is not None
    return record.key, record.value


def staged_files(root: Path) -> list[str]:
    """Return the staged files of a store."""
    return sorted(path.name for path in root.glob(f"*/{names.STAGED}*"))


def transaction_states(root: Path) -> list[str]:
    """Return the state of the last transaction of each application."""
    return [
        '"committing"' if b'"state": "committing"' in path.read_bytes() else "done"
        for path in sorted(root.glob(f"{names.TRANSACTION}*"))
        if names.parse_transaction_name(path.name) is not None
    ]
