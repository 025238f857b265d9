"""The input of `append`: its options, its format, and the records in it."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Final, cast

import click

from seeklog.cli import options
from seeklog.cli.columns import Columns
from seeklog.cli.formats import ARROW_FORMATS, CONTINUATION, HEAD_BYTES, INPUTS, NAMES, input_format
from seeklog.cli.record_input import NOT_TEXT, Numbered, Reader, read_chunks, split_lines
from seeklog.cli.show.kcat_format import unescape
from seeklog.errors import UsageError
from seeklog.record.arrow import import_pyarrow

_NEWLINE: Final = "\\n"


@dataclass(frozen=True, slots=True)
class Source:
    """The options that say what the input holds."""

    file: str
    form: str | None
    is_json: bool
    is_csv: bool
    key_column: str | None
    value_column: str | None
    time_column: str | None
    key: str | None
    key_sep: str | None
    delimiter: str
    headers: tuple[str, ...]
    empty_is_null: bool

    @property
    def _chosen(self) -> str | None:
        return self.form or ("jsonl" if self.is_json else "csv" if self.is_csv else None)

    def reader(self) -> Reader:
        """Return what reads the input; raise `UsageError` for options that conflict, without the input."""
        if (self.is_json and self._chosen != "jsonl") or (self.is_csv and self._chosen != "csv"):
            raise UsageError("--format, --json and --csv conflict; pass one of them")
        if self.key is not None and self.key_sep is not None:
            raise UsageError("--key and --key-sep conflict; pass one of them")
        pairs = [options.parse_pair(text, option="--header") for text in self.headers]
        reader = Reader(
            key=None if self.key is None else self.key.encode("utf-8", "surrogateescape"),
            key_separator=None if self.key_sep is None else unescape(self.key_sep, option="--key-sep"),
            delimiter=unescape(self.delimiter, option="--delimiter"),
            empty_is_null=self.empty_is_null,
            headers=tuple((name, value.encode("utf-8", "surrogateescape")) for name, value in pairs),
            columns=Columns(self.key_column, self.value_column, self.time_column),
            # A user who names the format, or separates by something else than newlines, knows what a line is.
            allows_nul=self.form == "lines" or self.delimiter != _NEWLINE,
        )
        if self._chosen is not None:
            self._check(self._chosen)
        return reader

    @contextlib.contextmanager
    def open(self) -> Iterator[tuple[BufferedReader, int | None]]:
        """Open the input; yield it with its size, None if that is unknown."""
        if self.file != "-":
            with open(self.file, "rb") as stream:
                yield stream, _size(stream)
            return
        if sys.stdin is None or sys.stdin.closed:
            raise UsageError("stdin is closed; name a file, or pipe records into the command")
        stdin = cast(BufferedReader, sys.stdin.buffer)
        yield stdin, _size(stdin)

    def find_format(self, stream: BufferedReader, reader: Reader) -> str:
        """Return the format of the input; raise `UsageError` if the options or the data do not fit it."""
        # What is typed on a terminal is text; looking at it would wait for the first line.
        head = b"" if stream.isatty() else stream.peek(HEAD_BYTES)[:HEAD_BYTES]
        form = input_format(self.file, head, chosen=self._chosen)
        self._check(form)
        if form == "lines" and not reader.allows_nul and b"\0" in head:
            raise UsageError(f"byte {head.index(0):,} of {_shown(self.file)} is {NOT_TEXT}")
        if form in ARROW_FORMATS:
            import_pyarrow()
            if not (stream.seekable() or head.startswith(CONTINUATION)):
                stream_too = ", or pipe an Arrow stream" if form == "arrow" else ""
                raise UsageError(f"the index of such a file is at its end: name the file instead of a pipe{stream_too}")
        return form

    def _check(self, form: str) -> None:
        """Raise `UsageError` for options that do not apply to a format."""
        lines, columns = (self.key, self.key_sep), (self.key_column, self.value_column, self.time_column)
        if form != "lines" and any(option is not None for option in lines):
            raise UsageError(
                f"--key and --key-sep do not apply to {NAMES[form]}, which contains the keys; "
                "--format lines reads it as lines"
            )
        if form == "lines" and any(option is not None for option in columns):
            raise UsageError("lines have no columns; pass --format for --key-column, --value-column and --time-column")
        if form not in ("lines", "jsonl") and self.delimiter != _NEWLINE:
            raise UsageError(f"--delimiter does not apply to {NAMES[form]}")


def records_in(
    stream: BufferedReader, reader: Reader, *, form: str, size: int | None, advance: Callable[[int], object]
) -> Iterable[Numbered]:
    """Return the records in an input, with the numbers of their lines or rows; pass the bytes read to `advance`."""
    if form in ARROW_FORMATS:
        from seeklog.cli.arrow_input import read_arrow

        drafts = read_arrow(stream, form=form, columns=reader.columns, size=size, read=advance)
    else:
        chunks = read_chunks(stream, read=advance)
        if form == "csv":
            drafts = reader.read_csv(chunks)
        else:
            lines = split_lines(chunks, delimiter=reader.delimiter)
            drafts = reader.read_json(lines) if form == "jsonl" else reader.read_lines(lines)
    return reader.complete(drafts)


source = options.together(
    "source",
    Source,
    click.argument("file", metavar="[FILE|-]", default="-"),
    click.option(
        "--format",
        "form",
        type=click.Choice(INPUTS),
        help="Default: by the ending of FILE or its first bytes, else lines.",
    ),
    click.option("--json", "is_json", is_flag=True, help="Short for --format jsonl."),
    click.option("--csv", "is_csv", is_flag=True, help="Short for --format csv."),
    click.option("--key-column", metavar="NAME", help="The column or JSON field with the key.  [default: key]"),
    click.option("--value-column", metavar="NAME", help="The column or field with the value.  [default: value]"),
    click.option("--time-column", metavar="NAME", help="The column or field with the time.  [default: timestamp]"),
    click.option("--key", metavar="TEXT", help="The key of every line."),
    click.option("--key-sep", metavar="SEP", help="Separator of key and value in a line; \\t is a tab."),
    click.option("--delimiter", metavar="D", default="\\n", show_default=True, help="End of a line; \\0 is NUL."),
    click.option("--header", "headers", multiple=True, metavar="K=V", help="A header of every record. Repeatable."),
    click.option(
        "--null",
        "empty_is_null",
        is_flag=True,
        help="Treat an empty value as null (a tombstone) and the empty key of a line as no key.",
    ),
)


def _size(stream: BufferedReader) -> int | None:
    found = os.fstat(stream.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _shown(file: str) -> str:
    return "stdin" if file == "-" else file
