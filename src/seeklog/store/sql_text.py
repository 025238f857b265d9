"""The text of SQL statements, as far as it must be understood before DuckDB parses it: quotes, comments, arrows.

DuckDB casts a BLOB to JSON as a string of escapes, in which `->` and `->>` find nothing. A macro can stand for an
operator, but not for `->`, so both arrows are written as operators of our own; `store.sql` defines them. They also bind
more tightly: before version 2 of DuckDB, `value->>'a' = 'b'` means `value->>('a' = 'b')`.
"""

from __future__ import annotations

import re
from typing import Final

JSON_ARROW: Final = "~>"
TEXT_ARROW: Final = "~>>"
_OURS: Final = {"->": JSON_ARROW, "->>": TEXT_ARROW}
_PIECE: Final = re.compile(
    r"""
    (?P<literal> [eE]'(?:\\.|''|[^'\\])*' | '(?:''|[^'])*' | \$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?\$(?P=tag)\$ | \d+ )
  | (?P<name> "(?:""|[^"])*" | \w+ )
  | (?P<blank> \s+ | --[^\n]* | /\*.*?\*/ )
  | (?P<open> ' | " | /\* | \$(?:[A-Za-z_]\w*)?\$ )
  | (?P<arrow> ->>? )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def with_our_arrows(query: str) -> str:
    """Return a query with our operators for `->` and `->>`. A `->` before anything but a literal may be a lambda's."""
    pieces = list(_PIECE.finditer(query))
    parts = []
    for at, piece in enumerate(pieces):
        text = piece[0]
        if piece.lastgroup == "arrow" and (text == "->>" or _is_before_literal(pieces, at)):
            text = f" {_OURS[text]} "
        parts.append(text)
    return "".join(parts)


def _is_before_literal(pieces: list[re.Match[str]], at: int) -> bool:
    following = [piece for piece in pieces[at + 1 : at + 6] if piece.lastgroup != "blank"]
    if following and following[0][0] == "-":
        following = following[1:]
    return bool(following) and following[0].lastgroup == "literal"


def with_duckdb_arrows(text: str) -> str:
    """Return a column's name or an error of DuckDB in the words of the query."""
    return text.replace(JSON_ARROW, "->")


def is_complete(text: str) -> bool:
    """Return whether text ends with the semicolon of a statement, outside of quotes and comments."""
    last = ""
    for piece in _PIECE.finditer(text):
        if piece.lastgroup == "open":
            return False
        if piece.lastgroup != "blank":
            last = piece[0]
    return last == ";"


def is_empty(text: str) -> bool:
    """Return whether text is only blanks, comments and semicolons."""
    return all(piece.lastgroup == "blank" or piece[0] == ";" for piece in _PIECE.finditer(text))


def on_one_line(text: str) -> str:
    """Return a statement without comments and line breaks, except for those inside quotes."""
    return "".join(" " if piece.lastgroup == "blank" else piece[0] for piece in _PIECE.finditer(text)).strip()
