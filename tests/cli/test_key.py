from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cli.workbench import Run


@pytest.fixture
def keyed(store: Path) -> Path:
    with seeklog.open(store, background=False) as made:
        with made.producer() as producer:
            for number in range(9):
                producer.send("orders", b"%d" % number, key=b"k%d" % (number % 3))
            producer.send("orders", b"odd", key=b"\xff\0")
            producer.send("orders", None, key=b"k2")
        with made.writer("orders", 0) as log:
            log.append(b"elsewhere", key=b"placed by hand")
    return store


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["k0"], "6"),
        (["k1"], "7"),
        (["/wA=", "--base64"], "odd"),
        (["ff00", "--hex"], "odd"),
        (["placed by hand", "--partition", "all"], "elsewhere"),
        (["placed by hand", "--partition", "0"], "elsewhere"),
    ],
)
def test_newest_record_of_a_key_is_printed(run: Run, keyed: Path, arguments: list[str], value: str) -> None:
    ran = run("key", keyed, "orders", *arguments)

    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.text)["value"] == value


def test_tombstone_is_reported(run: Run, keyed: Path) -> None:
    ran = run("key", keyed, "orders", "k2")

    assert ran.code == 0
    assert json.loads(ran.text)["value"] is None
    assert ran.err == '"k2" was deleted: its newest record is a tombstone\n'


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["orders", "none"], 4, 'no record of orders has the key "none"; --partition all searches every partition'),
        (["orders", "none", "--partition", "all"], 4, 'no record of orders has the key "none"'),
        (["orders", "\x1b[2J"], 4, 'the key "\\x1b[2J"'),
        (["order", "k0"], 4, "did you mean 'orders'?"),
        (["orders", "zz", "--hex"], 2, "'zz' is not hexadecimal"),
        (["orders", "!", "--base64"], 2, "'!' is not base64"),
        (["orders", "ff", "--base64", "--hex"], 2, "--base64 and --hex conflict"),
        (["orders", "k0", "--partition", "some"], 2, "is not a number or all"),
        (["orders", "k0", "--partition", "9"], 4, "has no partition 9"),
    ],
)
def test_invalid_call_is_reported_in_one_line(
    run: Run, keyed: Path, arguments: list[Any], code: int, message: str
) -> None:
    ran = run("key", keyed, *arguments)

    assert (ran.code, ran.out, ran.err.count("\n")) == (code, b"", 1)
    assert message in ran.err
