"""Disk failures at any call of a change to a store: the caller gets an error, and the store is as before or after."""

from __future__ import annotations

import errno
import logging
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pytest

from crash.faulty import FaultyFiles
from crash.sim import Detail
from crash.store_promise import GroupFound, StoreOutcome
from crash.store_recorder import StoreRecorder, look_at, reopen_store, seeded_names
from seeklog import names
from seeklog.errors import DiskFull, SeeklogError, TopicExists, TopicNotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHANGES: Final = {"write", "truncate", "sync", "rename", "remove", "make_directory", "remove_directory"}
METHODS: Final = CHANGES | {
    "sync_directory",
    "open",
    "read",
    "read_file",
    "list",
    "kinds",
    "kind",
    "file_size",
    "status",
    "has_broker",
    "map",
    "is_locked",
}
# A sample of the calls by default, all of them in `make test-slow`.
STRIDE: Final = 41


@dataclass(frozen=True, slots=True)
class Case:
    prepare: Callable[[StoreRecorder], None]
    change: Callable[[StoreRecorder], None]


def with_topics(on: StoreRecorder) -> None:
    on.open()
    on.create_topic("orders", partitions=2, flush="batch", retention_bytes=10**6)
    on.create_topic("payments", flush="batch")
    on.send("orders", 2, 1)
    on.send("payments", 2)


def with_offsets(on: StoreRecorder) -> None:
    with_topics(on)
    on.commit("fraud", {("orders", 0): 1, ("payments", 0): 1})
    on.commit("billing", {("orders", 1): 1})


# Two partitions are open for writing during the commit, and one is not.
COUNTS: Final = {("orders", 0): (2,), ("orders", 1): (1, 2), ("payments", 0): (1,)}


def with_transaction(on: StoreRecorder) -> None:
    with_topics(on)
    on.transact("query", 0, {("orders", 0): (1,)})
    on.close()
    on.open()
    on.send("orders", 1, 1)


def with_interrupted_transaction(on: StoreRecorder) -> None:
    """The process was killed after it named its transaction; the next store has not checked for it."""
    faulty = on.files
    assert isinstance(faulty, FaultyFiles)
    with_topics(on)
    on.kill_when(lambda: transact(on), names.transaction_name(names.app_key("query")))
    faulty.inner, on.files = on.sim, faulty
    on.open(finishes=False)


def with_staged_files(on: StoreRecorder) -> None:
    """Discard the files of a failed job, beside an interrupted transaction."""
    with_interrupted_transaction(on)
    on.transaction("failed", 0, COUNTS).stage(on.store)


def transact(on: StoreRecorder) -> None:
    on.transact("query", 1, COUNTS)


def discard(on: StoreRecorder) -> None:
    on.discard("failed")
    on.discard("query")


CASES: Final[dict[str, Case]] = {
    "create_topic": Case(with_topics, lambda on: on.create_topic("audit", partitions=2, flush="batch")),
    "add_partitions": Case(with_topics, lambda on: on.add_partitions("orders", 3)),
    "alter_topic": Case(with_topics, lambda on: on.alter_topic("orders", retention_bytes=10**7)),
    "delete_topic": Case(with_offsets, lambda on: on.delete_topic("orders")),
    "first commit": Case(with_topics, lambda on: on.commit("fraud", {("orders", 0): 2, ("orders", 1): 1})),
    "transaction": Case(with_transaction, transact),
    "interrupted transaction": Case(with_interrupted_transaction, transact),
    "discard": Case(with_staged_files, discard),
    "commit": Case(with_offsets, lambda on: on.commit("fraud", {("orders", 0): 2, ("orders", 1): 1})),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("seeklog").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("seeklog").setLevel(logging.NOTSET)


def prepared(case: Case, error: int) -> tuple[StoreRecorder, FaultyFiles]:
    on = StoreRecorder(chance=random.Random(1))
    on.files = faulty = FaultyFiles(on.sim, methods=METHODS, error=error)
    case.prepare(on)
    faulty.calls = 0
    return on, faulty


def count_calls(case: Case) -> int:
    on, faulty = prepared(case, errno.EIO)
    case.change(on)
    return faulty.calls


@dataclass(slots=True)
class Findings:
    """The failures."""

    store: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Failures that reached the caller as something else than they should."""


def fail_at(case: Case, number: int, error: int, found: Findings, *, lasting: bool, judges: bool) -> None:
    """Make one call of a change fail, or all from it on, and record what is wrong then and after the disk recovers."""
    on, faulty = prepared(case, error)
    faulty.fail_at, faulty.lasting = number, lasting
    has_failed, wrong_error = False, ""
    try:
        case.change(on)
    except SeeklogError as failure:
        has_failed = True
        if error == errno.ENOSPC and faulty.failed_method == "write" and not isinstance(failure, DiskFull):
            wrong_error = f"{type(failure).__name__} for a full disk: {failure}"
    except OSError as failure:
        has_failed = True
        wrong_error = f"a bare {type(failure).__name__}: {failure}"
    where = f"call {number}, {faulty.failed_method} {faulty.failed_path}"
    faulty.heal()
    if wrong_error:
        found.errors.append(f"{where}: {wrong_error}")
    if judges:
        wrong = judge_disk(on) + judge_same_object(on, case, has_failed=has_failed)
        found.store += [f"{where}: {what}" for what in wrong]


def judge_disk(on: StoreRecorder) -> list[str]:
    """Kill the process, or lose power, and open the store on a working disk."""
    promise, wrong = on.promise, []
    states = list(on.sim.crash_states(Detail(prefixes=0, sectors=0, omissions=0, samples=0)))[:2]
    for label, disk in [*states, ("process crash", on.sim.disk())]:
        outcome = reopen_store(disk, now_ms=on.clock.now_ms(), transactions=on.promise.transactions)
        violations = promise.violations(outcome, is_power_loss=label != "process crash")
        wrong += [f"{label}: {what}" for what in violations[:2]]
    return wrong


def judge_same_object(on: StoreRecorder, case: Case, *, has_failed: bool) -> list[str]:
    """Read the store that had the failure, and repeat the change.

    The next open finishes or undoes a started change; until then it may be refused.
    """
    try:
        topics, groups = look_at(on.store)
        if on.promise.going and on.promise.going not in topics:
            # The offsets of a topic are deleted with it.
            groups = {name: _without(group, on.promise.going) for name, group in groups.items()}
        outcome = StoreOutcome(topics=topics, groups=groups, unrecovered=topics)
        wrong = on.promise.violations(outcome, is_power_loss=True)
        if has_failed:
            try:
                case.change(on)
            except (TopicExists, TopicNotFound, UsageError):
                on.close()
                on.open()
        on.close()
    except (SeeklogError, OSError, AssertionError) as failure:
        return [f"the same store, once the disk has healed: {type(failure).__name__}: {failure}"]
    return [f"the same store: {what}" for what in wrong[:2]]


def _without(group: GroupFound, topic: str) -> GroupFound:
    return replace(group, offsets={tp: offset for tp, offset in group.offsets.items() if tp.topic != topic})


def fail_everywhere(name: str, error: int, *, stride: int, lasting: bool = False, judges: bool = True) -> Findings:
    case, found = CASES[name], Findings()
    with seeded_names(name):
        count = count_calls(case)
        numbers = range(1, count + 1, stride)
        for number in numbers:
            fail_at(case, number, error, found, lasting=lasting, judges=judges)
    print(f"{name}: {len(numbers)} of {count} calls failed with {errno.errorcode[error]}")
    return found


# `Store.close` writes the root's checkpoints when its logs are closed; finishing the deletion first needs them.
ERRORS = pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])


@pytest.mark.id("store-disk-fails")
@ERRORS
@pytest.mark.parametrize("name", CASES)
def test_change_on_failing_disk_is_made_completely_or_not_at_all(name: str, error: int) -> None:
    """Goal: for any failing call the store is as before or after, for itself and for the next store."""
    found = fail_everywhere(name, error, stride=STRIDE)

    assert not found.store, "\n".join(found.store[:20])


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@ERRORS
@pytest.mark.parametrize("name", CASES)
def test_a_change_may_fail_at_every_single_call(name: str, error: int, lasting: bool) -> None:
    found = fail_everywhere(name, error, stride=1, lasting=lasting)

    assert not found.store, "\n".join(found.store[:20])


@ERRORS
@pytest.mark.parametrize("name", CASES)
def test_every_failure_reaches_the_caller_as_our_error(name: str, error: int) -> None:
    """Goal: never a bare OSError, and DiskFull for a write on a full disk."""
    found = fail_everywhere(name, error, stride=13, judges=False)

    assert not found.errors, "\n".join(found.errors[:20])
