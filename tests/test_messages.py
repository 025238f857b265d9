"""A count in a message has the right noun: one thing, several things."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import seeklog
from seeklog.errors import counted

PACKAGE = Path(seeklog.__file__).parent
# What is counted in messages. A count beside one of these nouns goes through `counted`.
NOUNS = "topics|partitions|segments|batches|records|offsets|groups|members|errors|rows|files"
COUNT = re.compile(rf"\{{[^{{}}]*\}} (?:{NOUNS})\b")
# Counts that are never one: limits, sizes of the demo and of `bench`, and branches for several things.
ALLOWED = (
    "{BATCHES_REMEMBERED} batches",
    "{span:,} offsets",
    "{PARTITIONS} partitions",
    "{amounts.count(records)} records",
    "{INT32_MAX:,} rows",
    "{INT32_MAX:,} partitions",
    "{len(group)} segments",
    "{len(segments)} segments",
    "{len(numbers)} partitions",
    "{partitions} partitions",
    "{len(partitions):,} rows",
    "{count} partitions",
    "{rows} rows",
)


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (0, ("record",), "0 records"),
        (1, ("record",), "1 record"),
        (2, ("batch", "batches"), "2 batches"),
        (1, ("entry is", "entries are"), "1 entry is"),
        (12_345, ("byte",), "12,345 bytes"),
    ],
)
def test_noun_follows_its_count(number: int, nouns: tuple[str, ...], text: str) -> None:
    assert counted(number, *nouns) == text


def test_no_message_counts_with_a_fixed_plural() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                text = ast.unparse(node)
                found += [
                    f"{path.relative_to(PACKAGE)}:{node.lineno}: {match[0]}"
                    for match in COUNT.finditer(text)
                    if match[0] not in ALLOWED
                ]
    assert found == []
