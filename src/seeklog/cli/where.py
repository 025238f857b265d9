"""`--where`: a small language that says which records are wanted. It is parsed here and runs no code.

    key  value  topic  partition  offset  timestamp  headers.NAME      what a record has
    value.items[0].id                                                  a place in a value that is JSON
    'text'  "text"  7  -1.5  true  false  null                         values
    = != <> < <= > >=   [not] like 'a%_'   [not] in (1, 2)   is [not] null   and  or  not  ( )

What is not there is null, and a comparison with null, or of text with a number, is neither true nor false, as in SQL;
but a key or a header that reads as a number compares with one. A timestamp compares with milliseconds and with times:
'2026-01-02T03:04', '@-15m'. A word that a name cannot hold stands in brackets: headers['trace-id'].
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from seeklog.cli.times import parse_time_ms
from seeklog.clock import Clock
from seeklog.errors import UsageError
from seeklog.record.record import Record

# Parentheses and `not` within each other: far below what Python's stack takes.
DEPTH_MOST: Final = 50

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>-?(?:\d{1,300}(?:\.\d{1,300})?|\.\d{1,300})(?:[eE][+-]?\d{1,3})?)(?![\w.])
      | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<word>[^\W\d]\w*)
      | (?P<sign><=|>=|!=|<>|==|[=<>().,\[\]])
    )""",
    re.VERBOSE,
)
_NUMBER: Final = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?\Z", re.ASCII)
_FIELDS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_SIGNS: Final = {"==": "=", "<>": "!="}

Value = Callable[["_Seen"], Any]
Truth = Callable[["_Seen"], "bool | None"]


class _Missing:
    """What stands for the parsed value until somebody wants it."""


_UNPARSED: Final = _Missing()


class _Seen:
    """A record with its value parsed at most once."""

    __slots__ = ("_parsed", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self._parsed: Any = _UNPARSED

    @property
    def parsed(self) -> Any:
        """The value as JSON; None if it is none."""
        if self._parsed is _UNPARSED:
            try:
                self._parsed = json.loads(self.record.value) if self.record.value is not None else None
            except (ValueError, RecursionError):
                self._parsed = None
        return self._parsed


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


class _Operand(NamedTuple):
    """One side of a comparison."""

    value: Value
    is_text: bool = False
    """Text that reads as a number may be compared with one."""
    is_time: bool = False
    literal: Any = _UNPARSED


def compile_where(text: str, *, utc: bool = False, clock: Clock | None = None) -> Callable[[Record], bool]:
    """Return what tells whether a record is wanted; `UsageError` names the column of a mistake."""
    truth = _Parser(text, utc=utc, clock=clock).parse()
    return lambda record: truth(_Seen(record)) is True


class _Parser:
    def __init__(self, text: str, *, utc: bool, clock: Clock | None) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0
        self._utc = utc
        self._clock = clock

    def parse(self) -> Truth:
        truth = self._either()
        if self._next.kind != "end":
            self._refuse("and, or, or the end")
        return truth

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *wanted: str) -> _Token | None:
        """Step over the next token if it is one of these words or signs."""
        token = self._next
        spelt = token.text.lower() if token.kind == "word" else token.text
        if token.kind in ("word", "sign") and spelt in wanted:
            self._at += 1
            return token._replace(text=_SIGNS.get(spelt, spelt))
        return None

    def _expect(self, wanted: str) -> None:
        if self._take(wanted) is None:
            self._refuse(wanted)

    def _refuse(self, wanted: str) -> NoReturn:
        token = self._next
        found = "the end" if token.kind == "end" else token.text
        raise UsageError(f"--where: column {token.column}: expected {wanted}, found {found}")

    def _deeper(self, parse: Callable[[], Truth]) -> Truth:
        self._depth += 1
        if self._depth > DEPTH_MOST:
            raise UsageError(f"--where: column {self._next.column}: nested more than {DEPTH_MOST} deep")
        truth = parse()
        self._depth -= 1
        return truth

    def _either(self) -> Truth:
        parts = [self._all()]
        while self._take("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else _any_of(parts)

    def _all(self) -> Truth:
        parts = [self._negated()]
        while self._take("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else _all_of(parts)

    def _negated(self) -> Truth:
        if self._take("not"):
            return _not(self._deeper(self._negated))
        if self._take("("):
            truth = self._deeper(self._either)
            self._expect(")")
            return truth
        return self._comparison()

    def _comparison(self) -> Truth:
        left = self._operand()
        sign = self._take("=", "==", "!=", "<>", "<", "<=", ">", ">=")
        if sign is not None:
            return self._compared(left, sign, self._operand())
        if self._take("is"):
            wants_null = self._take("not") is None
            self._expect("null")
            return lambda seen: (left.value(seen) is None) is wants_null
        is_negated = self._take("not") is not None
        if self._take("like"):
            truth = self._like(left)
        elif self._take("in"):
            truth = self._in(left)
        else:
            self._refuse("like or in" if is_negated else "a comparison, such as = 7, like 'a%', in (1, 2), is null")
        return _not(truth) if is_negated else truth

    def _like(self, left: _Operand) -> Truth:
        token = self._next
        pattern = self._operand().literal
        if not isinstance(pattern, str):
            raise UsageError(f"--where: column {token.column}: expected a pattern such as 'a%', found {token.text}")
        expression = re.compile("".join(_like_piece(letter) for letter in pattern), re.DOTALL)

        def truth(seen: _Seen) -> bool | None:
            found = left.value(seen)
            return expression.fullmatch(found) is not None if isinstance(found, str) else None

        return truth

    def _in(self, left: _Operand) -> Truth:
        self._expect("(")
        parts = []
        while True:
            column = self._next.column
            right = self._operand()
            if right.literal is _UNPARSED:
                raise UsageError(f"--where: column {column}: a list holds values, not names")
            parts.append(self._compared(left, _Token("sign", "=", column), right))
            if not self._take(","):
                break
        self._expect(")")
        return _any_of(parts)

    def _operand(self) -> _Operand:
        token = self._next
        if token.kind == "number":
            self._at += 1
            return _constant(float(token.text) if any(sign in token.text for sign in ".eE") else int(token.text))
        if token.kind == "text":
            self._at += 1
            quote = token.text[0]
            return _constant(token.text[1:-1].replace(quote * 2, quote))
        word = token.text.lower()
        if token.kind != "word" or word in ("and", "or", "not", "like", "in", "is"):
            self._refuse("a name or a value")
        self._at += 1
        if word in ("true", "false", "null"):
            return _constant({"true": True, "false": False, "null": None}[word])
        if word == "header":
            word = "headers"
        if word not in _FIELDS:
            raise UsageError(
                f"--where: column {token.column}: there is no {token.text}; a record has {', '.join(_FIELDS)}, and "
                "text stands in quotes"
            )
        return self._field(word)

    def _field(self, word: str) -> _Operand:
        path = self._path()
        if word == "value":
            return _Operand(lambda seen: _at(seen.parsed, path)) if path else _Operand(_value_text, is_text=True)
        if word == "headers":
            if len(path) != 1 or not isinstance(path[0], str):
                self._refuse("the name of one header, such as headers.source")
            name = path[0]
            return _Operand(lambda seen: _header(seen.record, name), is_text=True)
        if path:
            raise UsageError(f"--where: column {self._next.column}: only value and headers have parts, not {word}")
        if word == "key":
            return _Operand(lambda seen: _decoded(seen.record.key), is_text=True)
        if word == "timestamp":
            return _Operand(_timestamp, is_time=True)
        return _Operand(lambda seen: getattr(seen.record, word))

    def _path(self) -> tuple[str | int, ...]:
        path: list[str | int] = []
        while True:
            if self._take("."):
                if self._next.kind != "word":
                    self._refuse("a name behind the dot; others stand in brackets, as in value['a-b']")
                path.append(self._next.text)
                self._at += 1
            elif self._take("["):
                token = self._next
                if token.kind == "text":
                    path.append(str(self._operand().literal))
                elif token.kind == "number" and token.text.lstrip("-").isdigit():
                    path.append(int(token.text))
                    self._at += 1
                else:
                    self._refuse("a number or a quoted name in the brackets")
                self._expect("]")
            else:
                return tuple(path)

    def _compared(self, left: _Operand, sign: _Token, right: _Operand) -> Truth:
        left, right = self._as_time(left, right, sign), self._as_time(right, left, sign)
        test = _TESTS[sign.text]
        first, second = left.value, right.value
        reads_numbers = (left.is_text and not isinstance(right.literal, str)) or (
            right.is_text and not isinstance(left.literal, str)
        )

        def truth(seen: _Seen) -> bool | None:
            one, other = first(seen), second(seen)
            if reads_numbers:
                one, other = _alike(one, other, left.is_text, right.is_text)
            if one is None or other is None:
                return None
            if _family(one) is not _family(other):
                return None
            return test(one, other)

        return truth

    def _as_time(self, operand: _Operand, other: _Operand, sign: _Token) -> _Operand:
        """Return text that is compared with a timestamp as its milliseconds."""
        if not other.is_time or not isinstance(operand.literal, str):
            return operand
        try:
            return _constant(parse_time_ms(operand.literal.removeprefix("@"), utc=self._utc, clock=self._clock))
        except UsageError as error:
            raise UsageError(f"--where: column {sign.column}: {error}") from None


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            rest = text[at:].lstrip()
            column = len(text) - len(rest) + 1
            what = "a quote that is not closed" if rest[0] in "'\"" else repr(rest[:10])
            raise UsageError(f"--where: column {column}: {what} is not understood")
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match[kind], match.start(kind) + 1))
        at = match.end()
    tokens.append(_Token("end", "", len(text) + 1))
    return tokens


def _constant(value: Any) -> _Operand:
    return _Operand(lambda seen: value, literal=value)


def _decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _value_text(seen: _Seen) -> str | None:
    return _decoded(seen.record.value)


def _timestamp(seen: _Seen) -> int | None:
    found = seen.record.timestamp_ms
    return None if found is None or found < 0 else found


def _header(record: Record, name: str) -> str | None:
    """Return the last value of a header: what consumers take where it is given more than once."""
    return next((_decoded(value) for key, value in reversed(record.headers) if key == name), None)


def _at(found: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        if isinstance(step, str):
            if not isinstance(found, dict):
                return None
            found = found.get(step)
        elif isinstance(found, list) and -len(found) <= step < len(found):
            found = found[step]
        else:
            return None
    return found


def _like_piece(letter: str) -> str:
    return ".*" if letter == "%" else "." if letter == "_" else re.escape(letter)


def _family(value: Any) -> type:
    """Return what a value compares with: numbers with numbers, text with text."""
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _alike(one: Any, other: Any, one_is_text: bool, other_is_text: bool) -> tuple[Any, Any]:
    """Read text as a number where the other side is one."""
    if one_is_text and isinstance(one, str) and _family(other) is float:
        return _number(one), other
    if other_is_text and isinstance(other, str) and _family(one) is float:
        return one, _number(other)
    return one, other


def _number(text: str) -> int | float | None:
    if not _NUMBER.match(text):
        return None
    return float(text) if any(sign in text for sign in ".eE") else int(text)


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other)


def _below(one: Any, other: Any) -> bool | None:
    return bool(one < other) if isinstance(one, int | float | str) else None


def _negated_or_none(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


_TESTS: Final[dict[str, Callable[[Any, Any], bool | None]]] = {
    "=": _equal,
    "!=": lambda one, other: not _equal(one, other),
    "<": _below,
    ">": lambda one, other: _below(other, one),
    "<=": lambda one, other: _negated_or_none(_below(other, one)),
    ">=": lambda one, other: _negated_or_none(_below(one, other)),
}


def _not(truth: Truth) -> Truth:
    return lambda seen: _negated_or_none(truth(seen))


def _any_of(parts: list[Truth]) -> Truth:
    def truth(seen: _Seen) -> bool | None:
        is_unknown = False
        for part in parts:
            found = part(seen)
            if found:
                return True
            is_unknown = is_unknown or found is None
        return None if is_unknown else False

    return truth


def _all_of(parts: list[Truth]) -> Truth:
    def truth(seen: _Seen) -> bool | None:
        is_unknown = False
        for part in parts:
            found = part(seen)
            if found is False:
                return False
            is_unknown = is_unknown or found is None
        return None if is_unknown else True

    return truth
