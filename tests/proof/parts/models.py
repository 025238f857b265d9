"""Target 11: Hypothesis draws steps, which are done to a log, a compacted log or a store, and to a plain model."""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from log.test_compaction_model import CompactedMachine
from log.test_model import LogMachine
from proof.part import Run, part
from store.test_topics_model import TopicsMachine

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 50
# Hypothesis remembers everything that it draws in one run: 2.8 GB for less than twenty thousand histories.
AT_ONCE = 500


@part(
    11,
    "Compare a log with a list over random histories: append, read, roll, delete, truncate, crash, move the clock",
    covers=("log",),
)
def model_of_a_log(run: Run) -> None:
    run_machine(run, LogMachine, full=20_000)


@part(11, "Compare a compacted log with a dict over random histories", covers=("log",))
def model_of_a_compacted_log(run: Run) -> None:
    run_machine(run, CompactedMachine, full=1_500)


@part(11, "Compare a store's topics with a model over random histories", covers=("store", "topics"))
def model_of_topics(run: Run) -> None:
    run_machine(run, TopicsMachine, full=1_000)


def run_machine(run: Run, machine: type[RuleBasedStateMachine], *, full: int) -> None:
    """Draw histories of at most 50 steps. SEEKLOG_MODEL_EXAMPLES overrides their number."""
    examples = 3 if run.is_short else int(os.environ.get("SEEKLOG_MODEL_EXAMPLES", full))

    class Counted(machine):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            run.case()

    for first in range(0, examples, AT_ONCE):
        drawn: Callable[[type[RuleBasedStateMachine]], type[RuleBasedStateMachine]] = seed(f"{run.seed} {first}")
        try:
            run_state_machine_as_test(
                drawn(Counted),
                settings=settings(
                    max_examples=min(AT_ONCE, examples - first),
                    stateful_step_count=STEPS,
                    deadline=None,
                    derandomize=False,
                    database=None,
                    report_multiple_bugs=False,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            steps = " ".join(line for note in getattr(error, "__notes__", ()) for line in note.splitlines())
            run.violation(
                f"seed {run.seed}, from {first}: {error!r} at {where.name}:{where.lineno}: {where.line}: {steps}"
            )
    run.note(f"up to {STEPS} steps each")
