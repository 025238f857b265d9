from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seeklog
from cli.workbench import Run, surroundings
from seeklog.cli.catalogue import VERBS
from seeklog.names import TopicPartition


def completed(run: Run, line: str, **env: str) -> list[str]:
    """Return the completions that bash would offer for a line, each with its type before a comma."""
    arguments = line.split(" ")
    asked = {"_SEEKLOG_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(arguments) - 1)}
    ran = run(env=asked | env)
    assert (ran.code, ran.err) == (0, "")
    return [line for line in ran.lines if line]


def test_commands_are_completed_without_importing_them(run: Run) -> None:
    assert sorted(completed(run, "seeklog l")) == ["plain,lag", "plain,ls"]
    assert len(completed(run, "seeklog ")) >= len(VERBS)


def test_options_are_completed(run: Run) -> None:
    assert completed(run, "seeklog delete data orders --d") == ["plain,--dry-run"]


def test_directories_are_left_to_the_shell(run: Run) -> None:
    assert completed(run, "seeklog ls da") == ["dir,da"]


def test_topics_of_the_store_are_completed(run: Run, store: Path) -> None:
    assert completed(run, "seeklog delete data ") == ["plain,orders", "plain,refunds"]
    assert completed(run, "seeklog delete data or") == ["plain,orders"]
    assert completed(run, "seeklog delete or", SEEKLOG_DIR=str(store)) == ["plain,orders"]


def test_groups_of_the_store_are_completed(run: Run, store: Path) -> None:
    with seeklog.open(store, background=False) as opened:
        opened.commit_offsets("billing", {TopicPartition("orders", 0): 1})

    assert completed(run, "seeklog groups data b") == ["plain,billing"]
    assert completed(run, "seeklog reset data billing o") == ["plain,orders"]


def test_unreadable_store_completes_nothing(run: Run, tmp_path: Path) -> None:
    assert completed(run, "seeklog delete nowhere o") == []
    (tmp_path / "data").write_text("no store")
    assert completed(run, "seeklog delete data o") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_passes_the_shells_syntax_check(run: Run, shell: str) -> None:
    ran = run("completion", shell)

    assert (ran.code, ran.err) == (0, "")
    assert run("completion", env={"SHELL": f"/usr/bin/{shell}"}).out == ran.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=ran.out, check=True)


def test_unknown_shell_is_refused(run: Run) -> None:
    assert run("completion", "tcsh").code == 2
    ran = run("completion", env={"SHELL": "/bin/dash"})
    assert (ran.code, ran.err) == (2, "seeklog: unknown shell; pass bash, zsh or fish\n")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("arguments", "reply"), [(["seeklog", "comp"], "completion"), (["seeklog", "config", "data", "ref"], "refunds")]
)
def test_bash_completes_with_the_script(
    run: Run, store: Path, home: Path, tmp_path: Path, arguments: list[str], reply: str
) -> None:
    command = tmp_path / "bin" / "seeklog"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m seeklog.cli "$@"\n')
    command.chmod(0o755)
    (tmp_path / "script").write_bytes(run("completion", "bash").out)
    asks = (
        f"PATH={command.parent}:$PATH; shopt -s progcomp; source ./script; "
        f"COMP_WORDS=({' '.join(arguments)}); COMP_CWORD={len(arguments) - 1}; "
        '_seeklog_completion seeklog; printf "%s\\n" "${COMPREPLY[@]}"'
    )

    done = subprocess.run(
        ["bash", "-c", asks], capture_output=True, text=True, cwd=tmp_path, env=surroundings(home), check=False
    )

    assert reply in done.stdout.split()
