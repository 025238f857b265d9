"""What holds for the command as a whole: help, unknown words, surroundings, what it loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.workbench import Run, surroundings
from seeklog.cli.catalogue import VERBS

HEAVY = ("pyspark", "pyarrow", "duckdb", "pandas", "numpy", "matplotlib", "fsspec", "rich")


def test_help_names_every_verb(run: Run) -> None:
    ran = run("--help")

    assert ran.code == 0
    for name in VERBS:
        assert f"\n  {name} " in ran.text


def test_no_words_show_the_help_and_are_a_mistake(run: Run) -> None:
    ran = run()

    assert (ran.code, ran.out) == (2, b"")
    assert "Example: " in ran.err


@pytest.mark.parametrize("name", VERBS)
def test_the_help_of_each_verb_begins_with_its_example(run: Run, name: str) -> None:
    ran = run(name, "-h")

    assert ran.code == 0
    assert ran.text.startswith(f"Example: {VERBS[name].example}\n\nUsage: seeklog {name} ")


@pytest.mark.parametrize("name", VERBS)
def test_an_option_that_no_verb_has_is_one_line(run: Run, name: str) -> None:
    ran = run(name, "--no-such-option")

    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.startswith("seeklog: ")
    assert ran.err.count("\n") == 1


def test_an_unknown_verb_gets_the_nearest(run: Run) -> None:
    ran = run("lst")

    assert (ran.code, ran.err) == (2, "seeklog: unknown command lst; did you mean ls?\n")


def test_the_directory_of_the_surroundings_stands_in_for_one_that_is_left_out(run: Run, store: Path) -> None:
    assert run("ls", env={"SEEKLOG_DIR": str(store)}).out == run("ls", store).out


def test_the_directory_may_stand_in_the_settings(run: Run, store: Path, home: Path) -> None:
    (home / ".config").mkdir()
    (home / ".config" / "seeklog.toml").write_text(f'dir = "{store}"\n')

    assert run("ls").out == run("ls", store).out


def test_a_setting_that_nobody_knows_is_refused(run: Run, store: Path, home: Path) -> None:
    (home / ".config").mkdir()
    (home / ".config" / "seeklog.toml").write_text("colour = true\n")

    ran = run("ls", store)

    assert (ran.code, ran.out) == (2, b"")
    assert "unknown setting colour; known settings: dir, utc" in ran.err


@pytest.mark.parametrize("words", [["--help"], ["ls", "data"], ["ls", "-h"]])
def test_a_quick_verb_loads_nothing_heavy(store: Path, words: list[str]) -> None:
    script = (
        "import sys; from seeklog.cli.main import main; code = main(sys.argv[1:]);"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        cwd=store.parent,
        env=surroundings(store),
        check=False,
    )

    assert done.stderr.decode().splitlines()[-1] == "0 []"


def test_a_reader_that_has_seen_enough_ends_it_quietly(store: Path) -> None:
    command = f"'{sys.executable}' -m seeklog.cli ls data | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, cwd=store.parent, env=surroundings(store), check=False
    )

    assert done.stderr == b""
    assert done.stdout.strip() in (b"0", b"141")
