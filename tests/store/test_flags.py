"""Booleans that callers pass: anything but True and False is refused, because the text "false" counts as true."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cases import for_each
from seeklog import Log, LogReader, LogWriter, Producer, Store, Topic
from seeklog.clients.consumer import ConsumerBase
from seeklog.errors import UsageError
from seeklog.log import check
from seeklog.store import transactions_of
from seeklog.topics.transactions import Transactions
from store.workbench import append, open_store, snapshot

NOT_FLAGS = ("false", "False", "", 0, 1, None, [])
FLAGS: dict[str, Callable[[Store, Any], object]] = {
    "open.read_only": lambda store, flag: seeklog.open(store.path, read_only=flag),
    "open.background": lambda store, flag: seeklog.open(store.path, background=flag),
    "restore.dry_run": lambda store, flag: seeklog.restore(store.path, store.path.with_name("new"), dry_run=flag),
    "Store.topics.internal": lambda store, flag: store.topics(internal=flag),
    "Store.producer.idempotence": lambda store, flag: store.producer(idempotence=flag),
    "Store.producer.resume": lambda store, flag: store.producer(name="p", resume=flag),
    "Store.consumer.enable_auto_commit": lambda store, flag: store.consumer(["t"], group="g", enable_auto_commit=flag),
    "Store.archive.allow_gaps": lambda store, flag: store.archive(store.path.with_name("new"), allow_gaps=flag),
    "Store.archive.repair": lambda store, flag: store.archive(store.path.with_name("new"), repair=flag),
    "Store.archive.include_active": lambda store, flag: store.archive(store.path.with_name("new"), include_active=flag),
    "Transactions.commit.keep": lambda store, flag: transactions_of(store).commit("app", 0, [], keep=flag),
    "Store.metrics.by_topic": lambda store, flag: store.metrics(by_topic=flag),
    "Store.metrics.by_partition": lambda store, flag: store.metrics(by_partition=flag),
    "Store.metrics.by_group": lambda store, flag: store.metrics(by_group=flag),
    "ConsumerBase.close.commit": lambda store, flag: store.consumer(["t"]).close(commit=flag),
    "Log.__init__.background": lambda store, flag: Log(store.path / "t-0", background=flag),
    "Log.append_encoded.wait": lambda store, flag: with_log(store, lambda log: log.append_encoded([], wait=flag)),
    "Log.append_batches.wait": lambda store, flag: with_log(store, lambda log: log.append_batches(b"", wait=flag)),
    "Log.append_many.wait": lambda store, flag: with_log(store, lambda log: log.append_many([], wait=flag)),
    "LogReader.read_batches.uncommitted": lambda store, flag: store.log("t", 0).read_batches(0, uncommitted=flag),
    "LogReader.read_ranges.uncommitted": lambda store, flag: store.log("t", 0).read_ranges(0, uncommitted=flag),
    "repair.from_torn": lambda store, flag: check.repair(store.path / "t-0", from_torn=flag),
    "plan_repair.from_torn": lambda store, flag: check.plan_repair(store.path / "t-0", from_torn=flag),
    "plan_repair.is_locked_here": lambda store, flag: check.plan_repair(store.path / "t-0", is_locked_here=flag),
}
CLASSES = (Store, Topic, Transactions, Producer, ConsumerBase, Log, LogReader, LogWriter)
FUNCTIONS = (seeklog.open, seeklog.restore, check.repair, check.plan_repair)
# Created by `Store`, which passes on what callers gave it.
MADE_BY_STORE = {"Store.__init__", "Transactions.__init__", "Producer.__init__", "ConsumerBase.__init__"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"0"])
        yield store


def with_log(store: Store, call: Callable[[Log], object]) -> None:
    with store.writer("t", 0) as log:
        call(log)


def flags_of(name: str, function: Callable[..., object]) -> Iterator[str]:
    """Yield the names of a function's boolean parameters."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.annotation in ("bool", "bool | None"):
            yield f"{name}.{parameter.name}"


def test_every_boolean_parameter_of_the_public_api_is_in_the_table() -> None:
    found = {flag for function in FUNCTIONS for flag in flags_of(function.__name__.removesuffix("_store"), function)}
    for owner in CLASSES:
        for name, method in vars(owner).items():
            whole = f"{owner.__name__}.{name}"
            if inspect.isfunction(method) and whole not in MADE_BY_STORE and (name == "__init__" or name[0] != "_"):
                found.update(flags_of(whole, method))

    assert found == set(FLAGS)


@for_each("flag", FLAGS)
def test_anything_but_true_and_false_is_refused(store: Store, flag: str) -> None:
    before = snapshot(store.path.parent)
    for value in NOT_FLAGS:
        if value is None and flag == "open.read_only":
            continue  # a directory is opened for writing, a URL for reading
        with pytest.raises(UsageError) as caught:
            FLAGS[flag](store, value)
        assert str(caught.value) == f"{flag.rpartition('.')[2]} must be True or False, not {value!r}"
    assert snapshot(store.path.parent) == before


def test_text_false_does_not_switch_automatic_commits_on(store: Store) -> None:
    with pytest.raises(UsageError, match="enable_auto_commit must be True or False, not 'false'"):
        store.consumer(["t"], group="g", enable_auto_commit="false")  # type: ignore[arg-type]
    assert store.groups() == []
