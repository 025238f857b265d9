"""Runs the blocks of a page, in this Python or in another one. Imports nothing but the standard library.

The `python` and `console` blocks of a page share their names and run in order, in one process, in an empty directory. A
shell runs each line after `$ ` of a `console` block. The command must succeed unless the expected output is an error,
and its output must match the lines below it, where `…` matches any text.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^( *)(```+)(\S*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)

# A page that waits for something it will never get must not hang the check. Those that start Spark take half a minute.
PAGE_SECONDS = 300

# Runs before the blocks of a page and defines what `console` blocks call.
SHELL = (
    "import fnmatch as _f, subprocess as _s\n"
    "def _shell(command, expected):\n"
    "    done = _s.run(['bash', '-c', command], stdin=_s.DEVNULL, stdout=_s.PIPE, stderr=_s.STDOUT, text=True)\n"
    "    printed = done.stdout.rstrip()\n"
    "    pattern = ''.join(f'[{c}]' if c in '*?[' else c for c in expected.rstrip()).replace('…', '*')\n"
    "    failed = done.returncode != 0 and not expected.startswith('seeklog: ')\n"
    "    if failed or (expected.strip() and not _f.fnmatchcase(printed, pattern)):\n"
    "        raise SystemExit(f'$ {command}\\nprinted:\\n{printed}\\nbut the page shows:\\n{expected}')\n"
)


def pages() -> list[Path]:
    """Return every page: those in the root and those under docs/."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def line_of(text: str, position: int) -> int:
    """Return the number of the line that a position is in, from 1."""
    return text.count("\n", 0, position) + 1


def program_of(text: str) -> str:
    """Return the blocks of a page as a program, each at its line in the page, so that a traceback points there."""
    program = ""
    for block in FENCE.finditer(text):
        first_line = line_of(text, block.start(4))
        if block[3] == "python":
            program += "\n" * (first_line - 1 - program.count("\n")) + block[4]
        elif block[3] == "console":
            for index, command, expected in commands_of(block[4]):
                program += (
                    "\n" * (first_line + index - 1 - program.count("\n")) + f"_shell({command!r}, {expected!r})\n"
                )
    return program


def commands_of(block: str) -> Iterator[tuple[int, str, str]]:
    """Yield each command of a `console` block with its line, from 0, and its expected output."""
    index, command, expected = 0, "", ""
    for number, line in enumerate(block.splitlines()):
        if line.startswith("$ "):
            if command:
                yield index, command, expected
            index, command, expected = number, line[2:], ""
        else:
            expected += line + "\n"
    if command:
        yield index, command, expected


def run(
    text: str, *, name: str, python: str = sys.executable, surroundings: Mapping[str, str] | None = None
) -> str | None:
    """Run the blocks of a page and return what failed, or None.

    `surroundings` are the environment variables, by default those of this process, without the user's settings.
    """
    program = program_of(text)
    if not program:
        return None
    runner = (
        f"names = {{'__name__': '__main__'}}\nexec({SHELL!r}, names)\n"
        f"exec(compile({program!r}, {name!r}, 'exec'), names)"
    )
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as tools:
        # The command of this Python's seeklog, installed or not.
        command = Path(tools) / "seeklog"
        command.write_text(f'#!/bin/sh\nexec "{python}" -m seeklog.cli "$@"\n')
        command.chmod(0o755)
        given = os.environ if surroundings is None else surroundings
        environment = {name: value for name, value in given.items() if not name.startswith("SEEKLOG_")}
        environment |= {"PATH": f"{tools}:{given['PATH']}", "HOME": tools, "COLUMNS": "110", "TZ": "UTC"}
        environment["CHECKOUT"] = str(ROOT)  # where a page finds test data
        try:
            done = subprocess.run(
                [python, "-c", runner],
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=PAGE_SECONDS,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return f"its blocks took more than {PAGE_SECONDS} s"
    return f"its blocks failed:\n{done.stderr.rstrip()}" if done.returncode != 0 else None
