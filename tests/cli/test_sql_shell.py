"""The shell of `seeklog sql` on a real pseudo-terminal, and the query from a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import seeklog
from cli.workbench import COMMAND, TIMEOUT_S, Run, surroundings

pytest.importorskip("duckdb")

CTRL_C, CTRL_D, CTRL_P = "\x03", "\x04", "\x10"
PROMPT = "seeklog> "


class Shell:
    """A command on a pseudo-terminal that is its controlling terminal, so that Ctrl-C is a signal."""

    def __init__(self, home: Path, cwd: Path, arguments: tuple[object, ...]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, "sql", *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=surroundings(home, TERM="dumb"),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._unread = ""

    def expect(self, text: str) -> str:
        """Return what is shown up to and including `text`."""
        ends = time.monotonic() + TIMEOUT_S
        while text not in self._unread:
            assert time.monotonic() < ends, self._unread
            if not select.select([self._master], [], [], 0.1)[0]:
                continue
            try:
                chunk = os.read(self._master, 65536)
            except OSError:
                chunk = b""  # Linux raises this when the command has ended
            assert chunk, f"ended before {text!r}: {self._unread}"
            self._unread += chunk.decode().replace("\r\n", "\n")
        shown, _, self._unread = self._unread.partition(text)
        return shown + text

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def ask(self, text: str) -> list[str]:
        """Type a line at the prompt, and return the lines that are shown before the next prompt, without the echo."""
        self.type(f"{text}\n")
        return self.expect(PROMPT).removesuffix(PROMPT).splitlines()[1 + text.count("\n") :]

    def end(self) -> int:
        """Return the exit code of a command that is about to end."""
        ends = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None and time.monotonic() < ends:
            if select.select([self._master], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    os.read(self._master, 65536)
        return self.process.wait(timeout=TIMEOUT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


Start = Callable[..., Shell]


@pytest.fixture
def start(home: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a shell and wait for its first prompt."""
    shells = []

    def start_shell(*arguments: object) -> Shell:
        shell = Shell(home, tmp_path, arguments)
        shells.append(shell)
        shell.expect(PROMPT)
        return shell

    yield start_shell
    for shell in shells:
        shell.close()


def test_statement_ends_with_a_semicolon_and_may_have_lines(start: Start, store: Path) -> None:
    shell = start(store, "--format", "jsonl")

    shell.type("select count(*) as n, -- a ; in a comment\n")
    shell.expect("...> ")
    shell.type("';' as s\n")
    shell.expect("...> ")
    assert shell.ask("from orders;") == ['{"n": 20, "s": ";"}']

    assert shell.ask("select 1 as a;") == ['{"a": 1}']
    assert shell.ask("select 1 as a; select 2 as b;") == ['{"a": 1}', '{"b": 2}']


def test_result_is_a_table_on_a_terminal(start: Start, store: Path) -> None:
    assert start(store, "--no-color").ask("select 12 as a, 'x' as b;") == [" A  B", "12  x"]


def test_error_does_not_end_the_shell(start: Start, store: Path) -> None:
    shell = start(store, "--json")

    assert shell.ask("select * from order_s;") == ['seeklog: there is no topic order_s; did you mean "orders"?']
    assert "syntax error" in " ".join(shell.ask("selec;"))
    assert shell.ask("select count(*) n from orders;") == ['{"n": 20}']


def test_tables_of_one_statement_are_there_for_the_next(start: Start, store: Path) -> None:
    shell = start(store, "--json")
    shell.ask("create table ids as select (value->>'id')::int as id from orders where partition = 1;")

    assert shell.ask("select max(id) as m from ids;") == ['{"m": 19}']


def test_new_records_and_topics_appear_while_the_shell_is_open(start: Start, store: Path) -> None:
    shell = start(store, "--json")
    assert shell.ask("select count(*) n from refunds;") == ['{"n": 0}']

    with seeklog.open(store, background=False) as writing:
        writing.create_topic("new", partitions=1)
        for topic in ("refunds", "new"):
            with writing.writer(topic, 0) as log:
                log.append(b"{}")

    assert shell.ask("select count(*) n from refunds;") == ['{"n": 1}']
    assert shell.ask("select count(*) n from new;") == ['{"n": 1}']


def test_dot_commands_list_tables_and_columns(start: Start, store: Path) -> None:
    shell = start(store, "--json")

    assert shell.ask(".tables") == ['{"name": "orders"}', '{"name": "refunds"}']
    columns = [json.loads(line) for line in shell.ask(".schema orders")]
    assert {"column": "value", "type": "BLOB"} in columns
    assert [column["column"] for column in columns][:3] == ["key", "value", "topic"]
    assert {json.loads(line)["table"] for line in shell.ask(".schema")} == {"orders", "refunds"}
    assert "did you mean" in " ".join(shell.ask(".schema order"))
    assert any(line.startswith(".schema [TABLE]") for line in shell.ask(".help"))
    assert shell.ask(".drop x") == ["seeklog: unknown command .drop x; .help lists the commands"]


@pytest.mark.parametrize("word", [".quit", ".exit", "quit", "exit;", CTRL_D])
def test_shell_ends_with_the_usual_words(start: Start, store: Path, word: str) -> None:
    shell = start(store)

    shell.type(word if word == CTRL_D else f"{word}\n")

    assert shell.end() == 0


def test_query_typed_for_a_pipe_is_asked_for(home: Path, store: Path) -> None:
    """Goal: the command does not seem to hang."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "sql", str(store)],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=surroundings(home),
    ) as process:
        os.close(slave)
        os.write(master, f"select 1 as a\n{CTRL_D}".encode())
        out, err = process.communicate(timeout=TIMEOUT_S)
    os.close(master)

    assert (process.returncode, out) == (0, b'{"a": 1}\n')
    assert err == b"reading the query from the terminal; end with Ctrl-D\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to see the query run")
def test_ctrl_c_cancels_the_query_and_not_the_shell(start: Start, store: Path) -> None:
    shell = start(store, "--json")
    before = _ticks(shell.process.pid)
    shell.type("select count(*) from range(100000000) a, range(100000) b;\n")
    ends = time.monotonic() + TIMEOUT_S
    while _ticks(shell.process.pid) < before + 30 and time.monotonic() < ends:
        assert shell.process.poll() is None

    shell.type(CTRL_C)

    assert "cancelled" in shell.expect(PROMPT)
    assert shell.ask("select 1 as a;") == ['{"a": 1}']
    shell.type(CTRL_D)
    assert shell.end() == 0


def _ticks(pid: int) -> int:
    """Return the processor time that a process has used, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


def test_ctrl_c_at_the_prompt_discards_the_statement(start: Start, store: Path) -> None:
    shell = start(store, "--json")
    shell.type("select nonsense,\n")
    shell.expect("...> ")

    shell.type(CTRL_C)
    shell.expect(PROMPT)

    assert shell.ask("select 1 as a;") == ['{"a": 1}']


def test_history_is_kept_for_the_user_alone(start: Start, store: Path, home: Path) -> None:
    first = start(store, "--json")
    first.type("select 41 -- why\n")
    first.expect("...> ")
    first.ask("+ 1 as a;")
    first.process.send_signal(signal.SIGKILL)
    file = home / ".local" / "state" / "seeklog" / "sql_history"
    assert re.findall(r"select 41 +\+ 1 as a;", file.read_text()) != []
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) & 0o077 == 0

    second = start(store, "--json")
    second.type(CTRL_P + "\n")

    assert '{"a": 42}' in second.expect(PROMPT)


def test_shell_works_where_no_history_can_be_kept(start: Start, store: Path, home: Path) -> None:
    (home / ".local").write_text("a file, not a directory")

    assert start(store, "--json").ask("select 1 as a;") == ['{"a": 1}']


def test_query_is_read_from_a_pipe(run: Run, store: Path) -> None:
    ran = run("sql", store, "--format", "csv", stdin="-- how many\nselect count(*) as n\nfrom orders;\n")

    assert (ran.code, ran.text, ran.err) == (0, "n\n20\n", "")


def test_directory_may_be_preset_for_the_shell_and_a_query(run: Run, store: Path) -> None:
    preset = {"SEEKLOG_DIR": str(store)}

    assert run("sql", "select 6/2 as a", env=preset).lines == ['{"a": 3.0}']
    assert run("sql", stdin="select 1 as a", env=preset).lines == ['{"a": 1}']
