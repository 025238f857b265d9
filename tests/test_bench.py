"""The options of `python -m bench`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
Parse = Callable[[Sequence[str]], argparse.Namespace]


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Parse:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.run import parse_arguments

    return parse_arguments


@pytest.mark.parametrize(
    "words",
    [
        ["--only", "scan", "append"],
        ["--only", "scan,append"],
        ["--only", "scan", "--only", "append", "--quick"],
        ["--only", "scan,", "append,scan"],
    ],
)
def test_only_accepts_several_names(words: list[str], parse: Parse) -> None:
    assert parse(words).only == ["scan", "append"]


def test_every_family_is_measured_without_only(parse: Parse) -> None:
    assert parse([]).only == []


def test_unknown_name_is_refused_with_list_of_known_names(parse: Parse, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(["--only", "scan", "sacn"])

    assert caught.value.code == 2
    errors = capsys.readouterr().err
    assert "unknown family sacn; choose from append, durable, read, scan" in errors
