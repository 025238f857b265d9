"""Names that no topic may have: paths, control characters, lookalikes of ASCII, and names that are too long."""

from __future__ import annotations

HOSTILE = [
    "",
    " ",
    "  ",
    ".",
    "..",
    "/",
    "//",
    "a/b",
    "/a",
    "a/",
    "../a",
    "a/../b",
    "../../etc/passwd",
    "./a",
    "~/a",
    "a\\b",
    "..\\a",
    "\0",
    "a\0",
    "\0a",
    "a\0/../b",
    "a\n",
    "\na",
    "a\nb",
    "a\r",
    "a\r\nb",
    "a\t",
    " a",
    "a ",
    "a b",
    "a:b",
    "a,b",
    "a;b",
    "a*",
    "a?",
    "$a",
    "a|b",
    "a'b",
    'a"b',
    "a=b",
    "a@b",
    "a+b",
    "a%2fb",
    "a#b",
    "{a}",
    "-\u2044-",  # a fraction slash
    "a\u2215b",  # a division slash
    "\u0430bc",  # a Cyrillic a
    "\uff41bc",  # a fullwidth a
    "a\u2024b",  # a one dot leader
    "\u2025",  # a two dot leader
    "a\uff0eb",  # a fullwidth full stop
    "a\u2010b",  # a hyphen that is not ASCII's
    "a\u2011b",
    "a\u2013b",
    "a\uff3fb",  # a fullwidth low line
    "\u0661",  # an Arabic digit
    "a\u200b",  # a zero width space
    "\u202ea",  # right to left
    "a\u0301",  # a combining accent
    "\u00e4",
    "\u0131",  # a dotless i
    "\u212a",  # the Kelvin sign, whose lower case is an ASCII k
    "\U0001f600",
    "\ud800",  # half of a surrogate pair
    "a\x7f",
    "\x1b[31m",
    "a" * 250,
    "a" * 100_000,
    "." * 250,
]
