"""The words of `python -m bench`."""

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
def test_only_takes_several_names(words: list[str], parse: Parse) -> None:
    assert parse(words).only == ["scan", "append"]


def test_without_only_every_family_is_measured(parse: Parse) -> None:
    assert parse([]).only == []


def test_an_unknown_name_is_refused_with_the_known_ones(parse: Parse, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--only", "scan", "sacn"])

    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "no family is called sacn; choose from append, durable, read, scan" in said
