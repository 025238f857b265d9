"""`--where`: a small expression language that selects records. Expressions are parsed here and run no code.

    key  value  topic  partition  offset  timestamp  headers.NAME      fields of a record
    value.items[0].id                                                  a path into a JSON value
    'text'  "text"  7  -1.5  true  false  null                         literals
    = != <> < <= > >=   [not] like 'a%_'   [not] in (1, 2)   is [not] null   and  or  not  ( )

A missing field is null. As in SQL, a comparison with null, or of text with a number, is neither true nor false; but a
key or a header that reads as a number can be compared with numbers. A timestamp can be compared with milliseconds and
with times: '2026-01-02T03:04', '@-15m'. Other names go in brackets: headers['trace-id'].
"""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from seeklog.cli.times import parse_time_ms
from seeklog.clock import Clock
from seeklog.errors import UsageError
from seeklog.record.record import Record

# Nesting of parentheses and `not`; far below the limit of Python's stack.
MAX_DEPTH: Final = 50

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
_KEYWORDS: Final = ("and", "or", "not", "like", "in", "is")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_TESTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUALITY: Final = (operator.eq, operator.ne)
# The types whose values have an order.
_ORDERED: Final = (float, str, bool)


class _Seen:
    """A record whose value is parsed at most once."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @functools.cached_property
    def parsed(self) -> Any:
        """The value as JSON; None if it is not JSON."""
        try:
            return json.loads(self.record.value) if self.record.value is not None else None
        except (ValueError, RecursionError):
            return None


Value = Callable[[_Seen], Any]
Truth = Callable[[_Seen], "bool | None"]


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


_COMPUTED: Final = object()


class _Operand(NamedTuple):
    """One side of a comparison."""

    value: Value
    is_text: bool = False
    """Text that reads as a number may be compared with numbers."""
    is_time: bool = False
    literal: Any = _COMPUTED


def compile_where(text: str, *, utc: bool = False, clock: Clock | None = None) -> Callable[[Record], bool]:
    """Return a predicate on records; `UsageError` names the column of a mistake."""
    truth = _Parser(text, utc=utc, clock=clock).parse()
    return lambda record: truth(_Seen(record)) is True


class _Parser:
    def __init__(self, text: str, *, utc: bool, clock: Clock | None) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._utc = utc
        self._clock = clock

    def parse(self) -> Truth:
        truth = self._disjunction()
        if self._next.kind != "end":
            self._refuse("and, or, or the end")
        return truth

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *wanted: str) -> str | None:
        """Consume and return the next token if it is one of these words or signs."""
        token = self._next
        spelt = token.text.lower()
        if token.kind not in ("word", "sign") or spelt not in wanted:
            return None
        self._at += 1
        return spelt

    def _expect(self, wanted: str) -> None:
        if self._take(wanted) is None:
            self._refuse(wanted)

    def _refuse(self, wanted: str) -> NoReturn:
        token = self._next
        raise _mistake(token.column, f"expected {wanted}, found {token.text or 'the end'}")

    def _deeper(self, parse: Callable[[], Truth]) -> Truth:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _mistake(self._next.column, f"nested more than {MAX_DEPTH} levels deep")
        truth = parse()
        self._depth -= 1
        return truth

    def _disjunction(self) -> Truth:
        return self._parts("or", self._conjunction, decisive=True)

    def _conjunction(self) -> Truth:
        return self._parts("and", self._negated, decisive=False)

    def _parts(self, between: str, parse: Callable[[], Truth], *, decisive: bool) -> Truth:
        parts = [parse()]
        while self._take(between):
            parts.append(parse())
        return _joined(parts, decisive=decisive)

    def _negated(self) -> Truth:
        if self._take("not"):
            return _not(self._deeper(self._negated))
        if self._take("("):
            truth = self._deeper(self._disjunction)
            self._expect(")")
            return truth
        return self._comparison()

    def _comparison(self) -> Truth:
        left = self._operand()
        column = self._next.column
        sign = self._take(*_TESTS)
        if sign is not None:
            return self._compared(left, _TESTS[sign], self._operand(), column)
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
            raise _mistake(token.column, f"expected a pattern such as 'a%', found {token.text}")
        wild = {"%": ".*", "_": "."}
        expression = re.compile("".join(wild.get(letter) or re.escape(letter) for letter in pattern), re.DOTALL)

        def truth(seen: _Seen) -> bool | None:
            found = left.value(seen)
            return expression.fullmatch(found) is not None if isinstance(found, str) else None

        return truth

    def _in(self, left: _Operand) -> Truth:
        self._expect("(")
        parts: list[Truth] = []
        while not parts or self._take(","):
            column = self._next.column
            right = self._operand()
            if right.literal is _COMPUTED:
                raise _mistake(column, "a list takes values, not names")
            parts.append(self._compared(left, operator.eq, right, column))
        self._expect(")")
        return _joined(parts, decisive=True)

    def _operand(self) -> _Operand:
        token = self._next
        word = token.text.lower()
        if token.kind not in ("number", "text", "word") or word in _KEYWORDS:
            self._refuse("a name or a value")
        self._at += 1
        if token.kind == "number":
            return _constant(_number(token.text))
        if token.kind == "text":
            quote = token.text[0]
            return _constant(token.text[1:-1].replace(quote * 2, quote))
        if word in _CONSTANTS:
            return _constant(_CONSTANTS[word])
        if word == "header":
            word = "headers"
        if word not in _FIELDS:
            known = f"unknown field {token.text}; a record has {', '.join(_FIELDS)}"
            raise _mistake(token.column, f"{known}. Put text in quotes")
        return self._field(word)

    def _field(self, word: str) -> _Operand:
        path = self._path()
        if word == "value" and path:
            return _Operand(lambda seen: _at(seen.parsed, path))
        if word == "headers":
            if len(path) != 1 or not isinstance(path[0], str):
                self._refuse("the name of one header, such as headers.source")
            return _Operand(lambda seen: _header(seen.record, path[0]), is_text=True)
        if path:
            raise _mistake(self._next.column, f"{word} has no parts; only value and headers do")
        if word in ("key", "value"):
            get = operator.attrgetter(word)
            return _Operand(lambda seen: _decoded(get(seen.record)), is_text=True)
        if word == "timestamp":
            return _Operand(_timestamp, is_time=True)
        return _Operand(lambda seen: getattr(seen.record, word))

    def _path(self) -> list[str | int]:
        path: list[str | int] = []
        while separator := self._take(".", "["):
            token = self._next
            if separator == ".":
                if token.kind != "word":
                    self._refuse("a name after the dot; put other names in brackets, as in value['a-b']")
                path.append(token.text)
                self._at += 1
                continue
            if token.kind != "text" and not token.text.lstrip("-").isdigit():
                self._refuse("a number or a quoted name in the brackets")
            path.append(self._operand().literal)
            self._expect("]")
        return path

    def _compared(self, left: _Operand, test: Callable[[Any, Any], Any], right: _Operand, column: int) -> Truth:
        left, right = self._as_time(left, right, column), self._as_time(right, left, column)
        first, second = left.value, right.value
        # Text is read as a number if the other side is a number.
        reads_first = left.is_text and not isinstance(right.literal, str)
        reads_second = right.is_text and not isinstance(left.literal, str)

        def truth(seen: _Seen) -> bool | None:
            a, b = first(seen), second(seen)
            if reads_first and isinstance(a, str) and _type(b) is float:
                a = _read_number(a)
            elif reads_second and isinstance(b, str) and _type(a) is float:
                b = _read_number(b)
            if a is None or b is None:
                return None
            if _type(a) is not _type(b) or (test not in _EQUALITY and _type(a) not in _ORDERED):
                return None
            return bool(test(a, b))

        return truth

    def _as_time(self, operand: _Operand, other: _Operand, column: int) -> _Operand:
        """Return text as milliseconds if it is compared with a timestamp."""
        if not other.is_time or not isinstance(operand.literal, str):
            return operand
        try:
            return _constant(parse_time_ms(operand.literal.removeprefix("@"), utc=self._utc, clock=self._clock))
        except UsageError as error:
            raise _mistake(column, str(error)) from None


def _mistake(column: int, text: str) -> UsageError:
    return UsageError(f"--where: column {column}: {text}")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            rest = text[at:].lstrip()
            found = "an unclosed quote" if rest[0] in "'\"" else repr(rest[:10])
            raise _mistake(len(text) - len(rest) + 1, f"{found} is not understood")
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match[kind], match.start(kind) + 1))
        at = match.end()
    return [*tokens, _Token("end", "", len(text) + 1)]


def _constant(value: Any) -> _Operand:
    return _Operand(lambda seen: value, literal=value)


def _decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _timestamp(seen: _Seen) -> int | None:
    found = seen.record.timestamp_ms
    return None if found is None or found < 0 else found


def _header(record: Record, name: str | int) -> str | None:
    """Return the last value of a header, as consumers do if it occurs more than once."""
    return next((_decoded(value) for key, value in reversed(record.headers) if key == name), None)


def _at(found: Any, path: list[str | int]) -> Any:
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


def _type(value: Any) -> type:
    """Return the type for comparisons, the same for all numbers."""
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _number(text: str) -> int | float:
    return float(text) if any(sign in text for sign in ".eE") else int(text)


def _read_number(text: str) -> int | float | None:
    return _number(text) if _NUMBER.match(text) else None


def _not(truth: Truth) -> Truth:
    def negated(seen: _Seen) -> bool | None:
        found = truth(seen)
        return None if found is None else not found

    return negated


def _joined(parts: list[Truth], *, decisive: bool) -> Truth:
    """Join parts by `or`, which True decides, or by `and`, which False decides; otherwise an unknown part wins."""
    if len(parts) == 1:
        return parts[0]

    def truth(seen: _Seen) -> bool | None:
        is_known = True
        for part in parts:
            found = part(seen)
            if found is decisive:
                return decisive
            is_known = is_known and found is not None
        return not decisive if is_known else None

    return truth
