"""The command as a whole: help, unknown arguments, settings, and imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.workbench import Run, surroundings
from seeklog.cli.catalogue import VERBS

HEAVY = ("pyspark", "pyarrow", "duckdb", "pandas", "numpy", "matplotlib", "fsspec", "rich")


def test_help_names_every_command(run: Run) -> None:
    ran = run("--help")

    assert ran.code == 0
    for name in VERBS:
        assert f"\n  {name} " in ran.text


def test_no_arguments_print_help_and_are_a_usage_error(run: Run) -> None:
    ran = run()

    assert (ran.code, ran.out) == (2, b"")
    assert "Example: " in ran.err


@pytest.mark.parametrize("name", VERBS)
def test_help_of_each_command_begins_with_its_example(run: Run, name: str) -> None:
    ran = run(name, "-h")

    assert ran.code == 0
    assert ran.text.startswith(f"Example: {VERBS[name].example}\n\nUsage: seeklog {name} ")


@pytest.mark.parametrize("name", VERBS)
def test_unknown_option_is_reported_in_one_line(run: Run, name: str) -> None:
    ran = run(name, "--no-such-option")

    assert (ran.code, ran.out) == (2, b"")
    assert ran.err.startswith("seeklog: ")
    assert ran.err.count("\n") == 1


def test_unknown_command_gets_a_suggestion(run: Run) -> None:
    ran = run("lst")

    assert (ran.code, ran.err) == (2, "seeklog: unknown command lst; did you mean ls?\n")


def test_seeklog_dir_is_the_default_of_dir(run: Run, store: Path) -> None:
    assert run("ls", env={"SEEKLOG_DIR": str(store)}).out == run("ls", store).out


def test_settings_file_has_the_default_of_dir(run: Run, store: Path, home: Path) -> None:
    (home / ".config").mkdir()
    (home / ".config" / "seeklog.toml").write_text(f'dir = "{store}"\n')

    assert run("ls").out == run("ls", store).out


def test_unknown_setting_in_the_file_is_refused(run: Run, store: Path, home: Path) -> None:
    (home / ".config").mkdir()
    (home / ".config" / "seeklog.toml").write_text("colour = true\n")

    ran = run("ls", store)

    assert (ran.code, ran.out) == (2, b"")
    assert "unknown setting colour; known settings: dir, utc" in ran.err


@pytest.mark.parametrize("arguments", [["--help"], ["ls", "data"], ["ls", "-h"]])
def test_quick_command_imports_nothing_heavy(store: Path, arguments: list[str]) -> None:
    script = (
        "import sys; from seeklog.cli.main import main; code = main(sys.argv[1:]);"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        cwd=store.parent,
        env=surroundings(store),
        check=False,
    )

    assert done.stderr.decode().splitlines()[-1] == "0 []"


def test_closed_pipe_ends_the_command_quietly(store: Path) -> None:
    command = f"'{sys.executable}' -m seeklog.cli ls data | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, cwd=store.parent, env=surroundings(store), check=False
    )

    assert done.stderr == b""
    assert done.stdout.strip() in (b"0", b"141")
