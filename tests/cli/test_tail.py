from __future__ import annotations

import json
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cli.workbench import COMMAND, TIMEOUT_S, Ran, Run, surroundings


def ids(ran: Ran) -> list[int]:
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(json.loads(line)["value"])["id"] for line in ran.lines]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], list(range(10, 20))),
        (["-n", 3], [17, 18, 19]),
        (["-n", 0], []),
        (["-n", 100], list(range(20))),
        (["-n", 2, "--partition", 0], [16, 18]),
        (["-n", 2, "--where", "value.id < 5"], [3, 4]),
        (["--key", "customer_0", "-n", 2], [10, 15]),
        (["--from", "@2026-01-01T00:17"], [17, 18, 19]),
        (["--from", "0:9", "--from", "1:9"], [18, 19]),
    ],
)
def test_newest_records_of_all_partitions_are_ordered_by_time(
    run: Run, store: Path, arguments: list[Any], found: list[int]
) -> None:
    assert ids(run("tail", store, "orders", *arguments)) == found


def test_empty_topic_prints_nothing(run: Run, store: Path) -> None:
    assert ids(run("tail", store, "refunds")) == []


class Followed:
    """`seeklog tail -f` in a pipe, while another process writes."""

    def __init__(self, store: Path, *arguments: str, verb: str = "tail") -> None:
        self.process = subprocess.Popen(
            [*COMMAND, verb, "-f", str(store), "orders", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=surroundings(store),
            text=True,
        )

    def take(self, count: int) -> list[int]:
        assert self.process.stdout is not None
        return [json.loads(json.loads(self.process.stdout.readline())["value"])["id"] for _ in range(count)]

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, err


def append(store: Path, *numbers: int) -> None:
    with seeklog.open(store, background=False) as made:
        for number in numbers:
            with made.writer("orders", number % 2) as log:
                log.append(b'{"id": %d}' % number)


def test_new_records_are_printed_and_ctrl_c_prints_the_resume_command(store: Path) -> None:
    followed = Followed(store, "-n", "2", "--where", "value.id != 21")
    try:
        assert followed.take(2) == [18, 19]
        append(store, 20)
        assert followed.take(1) == [20]
        append(store, 21, 22)
        assert followed.take(1) == [22]
    finally:
        code, err = followed.interrupt()

    assert (code, err.count("\n")) == (130, 1)
    command = err.strip().removeprefix("resume with: ")
    arguments = shlex.split(command)
    assert arguments[:5] == ["seeklog", "tail", "-f", str(store), "orders"]
    assert arguments[5:7] == ["--where", "value.id != 21"]
    assert arguments[7:] in (
        ["--from", "0:12", "--from", "1:11"],
        ["--from", "0:12", "--from", "1:10"],  # the partition of record 21 was not read yet
    )

    append(store, 24)
    again = Followed(store, *arguments[5:])
    try:
        assert again.take(1) == [24]
    finally:
        again.interrupt()


def test_cat_follows_after_the_end_until_its_limit(store: Path) -> None:
    followed = Followed(store, "--from", "8", "-n", "6", verb="cat")
    try:
        assert followed.take(4) == [16, 18, 17, 19]
        append(store, 20)
        assert followed.take(1) == [20]
        append(store, 22, 24)
        assert followed.take(1) == [22]
        _, err = followed.process.communicate(timeout=TIMEOUT_S)
    finally:
        followed.process.kill()

    assert (followed.process.returncode, err) == (0, "")


def test_interrupted_cat_prints_the_call_for_the_rest(store: Path) -> None:
    followed = Followed(store, "--partition", "1", "--from", "8", "-n", "6", verb="cat")
    try:
        assert followed.take(2) == [17, 19]
        append(store, 21)
        assert followed.take(1) == [21]
    finally:
        code, err = followed.interrupt()

    assert (code, err.count("\n")) == (130, 1)
    arguments = shlex.split(err.strip().removeprefix("resume with: "))
    assert arguments[:7] == ["seeklog", "cat", "-f", str(store), "orders", "--partition", "1"]
    # The process may have been interrupted between writing a record and counting it.
    assert arguments[7:9] in (["-n", "3"], ["-n", "4"])
    assert arguments[9:] in (["--from", "1:11"], ["--from", "1:10"])


def test_ctrl_c_on_a_terminal_prints_the_resume_command(run_on_terminal: Run, store: Path) -> None:
    ran = run_on_terminal("tail", "-f", store, "orders", "-n", 1, interrupt_after='"id": 19')

    assert ran.code == 130
    assert "resume with: seeklog tail -f " in ran.text
    assert "Traceback" not in ran.text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["order"], 4, "did you mean 'orders'?"),
        (["orders", "-n", 3, "--from", 5], 2, "-n and --from both choose the first record"),
        (["orders", "-f", "--format", "json"], 2, "use --format jsonl"),
        (["orders", "--from", 99], 4, "offset 99 is out of range"),
        (["orders", "--from", "@x"], 2, "@x is not a time"),
        (["orders", "-n", -1], 2, "-1 is not in the range"),
    ],
)
def test_invalid_call_is_reported_in_one_line(
    run: Run, store: Path, arguments: list[Any], code: int, message: str
) -> None:
    ran = run("tail", store, *arguments)

    assert (ran.code, ran.out, ran.err.count("\n")) == (code, b"", 1)
    assert message in ran.err
