"""docs/phrases.py refuses the phrases on its list, and docs/claims.py the names of things that do not exist."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "docs"))
import claims
import phrases


@pytest.mark.parametrize(
    "text",
    [
        "The index is made anew.",
        "The index is made\n    # Anew, from the log.",
        "def test_index_is_written_anew() -> None: ...",
        'f"no checkpoint: it "\n    f"is no log"',
        "That file is no segment.",
        "They are no segments.",
        "Where is no room, nothing is written.",
        "Whoever opens the log recovers it.",
        "The log is let go of.",
        "The catalog has it not.",
        "The caller is told the offset.",
        "What lies behind the end is cut.",
    ],
)
def test_refused_phrase_is_found(text: str) -> None:
    assert [*phrases.faults(text)]


@pytest.mark.parametrize(
    "text",
    [
        "There is no index.",
        "If there\n    # are no segments, the log is empty.",
        "The file is no longer read.",
        "It is no more than 4 KB.",
        "def test_there_is_no_index() -> None: ...",
        "The command has told the user so.",
        "A planewalker.",
    ],
)
def test_lawful_phrase_is_let_through(text: str) -> None:
    assert not [*phrases.faults(text)]


def test_fault_names_its_line_and_a_better_word() -> None:
    assert [*phrases.faults("first\nwritten anew\n")] == [(2, '"anew": again; recreated, reopened, rebuilt')]


@pytest.mark.parametrize(
    ("name", "does_exist"), [("seeklog.log.side", True), ("seeklog.open", True), ("seeklog.ended", False)]
)
def test_claimed_module_or_attribute_is_looked_up(name: str, does_exist: bool) -> None:
    assert claims.exists(name) is does_exist


def test_rooms_are_read_from_the_drawn_tree() -> None:
    tree = "  errors  config       ground floor\n  log/   one partition\n    side/  files\n  cli/   commands\n"

    assert claims.drawn_rooms(f"```text\nsrc/seeklog/\n{tree}```\n") == {"log", "log/side", "cli"}
