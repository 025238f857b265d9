"""Target 10: one writer at a time."""

from __future__ import annotations

from faults.locking import fork_of_a_writer, two_writers_of_a_log, two_writers_of_a_store
from proof.part import Run, part

ROUNDS = 500
ROUNDS_PER_LOG = 50  # then a new log, so that reading all of it stays quick


@part(
    10,
    "Open a second writer, kill a writer, fork a writer, read beside a writer: a log and a store",
    covers=("log", "store"),
)
def one_writer(run: Run) -> None:
    for number in range(1 if run.is_short else ROUNDS):
        for harm in (two_writers_of_a_log, two_writers_of_a_store, fork_of_a_writer):
            run.case()
            for violation in harm(run.scratch / f"{harm.__name__}-{number // ROUNDS_PER_LOG}"):
                run.violation(f"{harm.__name__}, round {number}: {violation}")
    run.note("LogLocked names the pid; a kill frees the lock")
