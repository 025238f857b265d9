"""Every part of the proof in its short size; `make proof` runs them in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proof.edits import SOURCE, EditFailed
from proof.equivalent_mutants import EQUIVALENTS
from proof.part import Missing, Part, Run, load_parts
from proof.seeded_bugs import BUGS, Bug

SEED = 1
# Their short sizes run in `make test-slow`: they repeat suites of `make test`, concern peers, or take minutes.
SLOW = frozenset(
    {
        "address_sanitizer",
        "all_at_once",
        "branch_coverage",
        "crash_states_of_a_log",
        "crash_states_of_a_store",
        "crash_states_of_compaction_and_retention",
        "failing_calls_of_a_log",
        "failing_calls_of_a_store",
        "failing_syncs_of_a_process",
        "failing_syncs_of_a_store",
        "flips_read_by_peers",
        "full_at_each_write_of_a_process",
        "kills_around_changes_of_a_log",
        "kills_around_changes_of_topics",
        "kills_around_changes_of_transactions",
        "kills_in_system_calls_of_a_log",
        "kills_in_system_calls_of_a_store",
        "model_of_a_compacted_log",
        "model_of_a_log",
        "model_of_topics",
        "mutation",
        "peer_flips",
        "peers_on_full_disks",
        "peers_whose_sync_fails",
        "random_kills_of_a_log",
        "random_kills_of_any_work",
    }
)


def as_parameter(one: Part) -> Any:
    return pytest.param(one, id=f"{one.target}-{one.name}", marks=[pytest.mark.slow] if one.name in SLOW else [])


@pytest.mark.id("proof-in-short")
@pytest.mark.parametrize("one", list(map(as_parameter, load_parts())))
def test_no_promise_is_broken(one: Part, tmp_path: Path) -> None:
    run = Run("short", SEED, tmp_path)
    try:
        one.work(run)
    except Missing as missing:
        pytest.skip(str(missing))
    assert run.samples == []
    assert run.violations == 0
    assert run.cases > 0


def test_every_seeded_bug_matches_the_source() -> None:
    """Goal: a short run plants only some bugs, but a change of the source must not invalidate any."""
    assert [said for bug in BUGS if (said := objection_to(bug))] == []


def objection_to(bug: Bug) -> str:
    try:
        assert bug.seeded()
        assert bug.tests
    except (EditFailed, KeyError, AssertionError) as error:
        return f"{bug.breaks}: {error}"
    return ""


def test_every_equivalent_mutant_matches_a_line() -> None:
    """Goal: if its line was rewritten, a mutant counts again and must be judged again."""
    lines = {line.strip() for path in SOURCE.rglob("*.py") for line in path.read_text().splitlines()}

    assert [known.text for known in EQUIVALENTS if known.text not in lines] == []
