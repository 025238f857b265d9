"""The demo, up to the commands that it suggests."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import seeklog
from cli.workbench import COMMAND, Run, surroundings
from seeklog.cli.demo import tour
from seeklog.cli.demo.payments import arrivals

COUNT = 20_000


def _commands(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("     seeklog ")]


def test_demo_runs_every_step_and_keeps_its_files(run: Run, tmp_path: Path) -> None:
    ran = run("demo", "--no-spark", "--records", COUNT)

    assert (ran.code, ran.err) == (0, "")
    for said in (
        "1. Generate 20,000 payments and append them",
        "2. Kill a writer in the middle of a batch",
        "SIGKILL ended it when",
        "The topic has 20,000 payments: none is missing, and none is duplicated.",
        "3. Seek: by offset, by time, by key",
        "4. Write a report",
        "Every byte was checked: no damage.",
        "Spark: skipped (--no-spark).",
        "5. Summary",
    ):
        assert said in ran.text, said
    assert len(re.findall(r" [\d.]+ (?:µs|ms) ", ran.text)) >= 3
    assert "\x1b" not in ran.text
    assert sorted(each.name for each in (tmp_path / "demo-data").iterdir()) == [
        ".seeklog-demo",
        "report.html",
        "store",
    ]
    assert (tmp_path / "demo-data" / "report.html").read_text().count("<svg") > 8
    commands = _commands(ran.text)
    assert len(commands) == 5
    for arguments in commands:
        tried = run(*arguments)
        assert tried.code == 0, tried
        assert tried.out or tried.err, arguments


def test_recovery_after_the_kill_keeps_every_payment_once(run: Run, tmp_path: Path) -> None:
    """Goal: after the kill and the recovery every payment is in the log exactly once, in order."""
    ran = run("demo", "--no-spark", "--records", 3000)

    (written,) = re.findall(r"([\d,]+) of the [\d,]+ bytes of its next batch", ran.text)
    torn = [path for path in (tmp_path / "demo-data" / "store").rglob("*.torn") if path.stat().st_size]
    assert len(torn) == 1
    assert torn[0].stat().st_size >= int(written.replace(",", ""))
    expected = [record.value for record, _ in zip(arrivals(), range(3000), strict=False)]
    with seeklog.open(tmp_path / "demo-data" / "store", read_only=True) as store:
        found = [record.value for number in range(4) for record in store.log("payments", number).scan()]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_second_demo_removes_only_its_own_files(run: Run, tmp_path: Path) -> None:
    assert run("demo", "here", "--no-spark", "--records", 1000).code == 0
    (tmp_path / "here" / "notes.txt").write_text("mine")

    ran = run("demo", "here", "--no-spark", "--records", 1200)

    assert ran.code == 0
    assert "The topic has 1,200 payments" in ran.text
    assert (tmp_path / "here" / "notes.txt").read_text() == "mine"


def test_directory_with_other_files_is_refused_and_kept(run: Run, tmp_path: Path) -> None:
    (tmp_path / "demo-data").mkdir()
    (tmp_path / "demo-data" / "store").write_text("mine")

    ran = run("demo", "--no-spark")

    assert (ran.code, ran.out) == (2, b"")
    assert ran.err == (
        "seeklog: demo-data is not empty and was not created by a demo; name another directory: seeklog demo DIR\n"
    )
    assert [each.name for each in (tmp_path / "demo-data").iterdir()] == ["store"]


def test_file_instead_of_directory_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "demo-data").write_text("mine")

    assert run("demo").code == 2
    assert (tmp_path / "demo-data").read_text() == "mine"


def test_demo_ignores_seeklog_dir(run: Run, store: Path, tmp_path: Path) -> None:
    ran = run("demo", "--no-spark", "--records", 1000, env={"SEEKLOG_DIR": str(store)})

    assert ran.code == 0
    assert (tmp_path / "demo-data" / "store").is_dir()


def test_missing_spark_is_reported_and_the_demo_continues(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['pyspark'] = None; from seeklog.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "demo", "--records", "1000"],
        capture_output=True,
        cwd=tmp_path,
        env=surroundings(tmp_path),
        check=False,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert 'Skipped: Spark is not installed; run: pip install "seeklog[spark]"' in done.stdout
    assert "And open demo-data/report.html in a browser." in done.stdout


def test_ctrl_c_ends_the_demo(run_on_terminal: Run) -> None:
    ran = run_on_terminal("demo", "--no-spark", interrupt_after="1. Generate")

    assert ran.code == 130
    assert "Traceback" not in ran.text


def test_titles_are_bold_on_a_terminal(run_on_terminal: Run) -> None:
    ran = run_on_terminal("demo", "--no-spark", "--records", 1000)

    assert ran.code == 0
    assert "\x1b[1m2. Kill a writer in the middle of a batch\x1b[0m" in ran.text


def test_killed_writer_waits_in_mid_batch(tmp_path: Path) -> None:
    """Goal: exactly half a batch is on disk when the writer is killed, in every run."""
    with seeklog.open(tmp_path / "store", background=False) as store:
        store.create_topic("payments", partitions=2)
    command = [COMMAND[0], "-m", "seeklog.cli.demo.killed_writer", str(tmp_path / "store"), "2000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=surroundings(tmp_path)) as writer:
        assert writer.stdout is not None
        printed = [json.loads(writer.stdout.readline()) for _ in range(5)]
        writer.kill()

    assert [sorted(each) for each in printed] == [["acknowledged"]] * 4 + [["size", "written"]]
    assert writer.returncode == -9
    with seeklog.open(tmp_path / "store", background=False) as store:
        reports = []
        for number in range(2):
            with store.writer("payments", number) as log:
                reports.append(log.recovery)
        assert sum(report.cut_bytes for report in reports) == printed[-1]["written"]
        assert store.describe_topic("payments").record_count >= printed[-2]["acknowledged"]


@pytest.mark.slow
def test_spark_runs_the_pipeline_over_the_log(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "demo", "--records", str(COUNT)],
        capture_output=True,
        cwd=tmp_path,
        env=surroundings(tmp_path),
        check=False,
        timeout=600,
    )
    text = done.stdout.decode()

    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert "Spark: the payments pipeline, exactly once" in text
    assert f"{COUNT:,}  records in the topic" in text
    assert any((tmp_path / "demo-data" / "output" / "payments").rglob("*.parquet"))


def test_suggested_commands_run_verbatim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "seeklog").touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/seeklog", "demo"])

    monkeypatch.setenv("PATH", str(tmp_path))
    assert tour._program() == "bin/seeklog"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert tour._program() == "seeklog"
