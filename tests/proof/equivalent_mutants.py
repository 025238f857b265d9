"""Mutants that no test can notice, each with the reason. They are left out of the score.

The rule is strict: no call, with any input, on any file, may return or raise anything else. A mutant that only makes a
run slower, or its reads larger, is equivalent; one that lets memory or files grow without bound is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proof.mutants import Mutant, changed_line


@dataclass(frozen=True, slots=True)
class Equivalent:
    """Changes of one line that change no behaviour."""

    function: str
    """The function around it; empty in the module itself."""
    text: str
    """The line, without its indentation."""
    becomes: tuple[str, ...]
    """The equivalent lines."""
    reason: str


def reason_for(mutant: Mutant) -> str:
    """Return why no test can notice a mutant, or an empty text if one should."""
    for known in EQUIVALENTS:
        if (known.function, known.text) == (mutant.function, mutant.text):
            changed = " ".join(changed_line(mutant).split())
            if changed in known.becomes:
                return known.reason
    return ""


_SMALL_NUMBER: Final = "CPython has one object for each small number"
_NOT_NEGATIVE: Final = "a masked number is never negative"
_WHERE_TO_BEGIN: Final = "the search begins elsewhere and finds the same: only the number of steps changes"
_HOW_MUCH: Final = "another number of bytes is read at once, and the same bytes are used"
_NOT_A_TIME: Final = "any number that is not a valid timestamp can mark a missing one: valid timestamps begin with -1"

EQUIVALENTS: Final[tuple[Equivalent, ...]] = (
    Equivalent(
        "",
        "UNSET = cython.declare(longlong, -(2**63) + 1)",
        (
            "UNSET = cython.declare(longlong, -(2**63) + 2)",
            "UNSET = cython.declare(longlong, -(2*63) + 1)",
        ),
        _NOT_A_TIME,
    ),
    Equivalent(
        "floor",
        "if high - low > step:",
        ("if high // low > step:", "if high ** low > step:"),
        "it narrows the next search, and narrowing without need has the same result: `low` is at least "
        "1, and then neither the quotient nor the power exceeds `step` where `low + step` is above `high`",
    ),
    Equivalent(
        "floor",
        "guess: Py_ssize_t = cython.cast(Py_ssize_t, ((first >> 32) * cython.cast(ulonglong, self.count)) >> 32)",
        ("guess: Py_ssize_t = cython.cast(Py_ssize_t, ((first >> 32) >> cython.cast(ulonglong, self.count)) >> 32)",),
        _WHERE_TO_BEGIN,
    ),
    Equivalent(
        "floor",
        "low = guess + 1",
        ("low = guess | 1",),
        "it is the next place, or the same, whose hash is known to be smaller: the search takes at most one more step",
    ),
    Equivalent(
        "encode",
        "while wrapped_end < self._slots and load_little_u32(source, wrapped_end * _SLOT + _OFFSET) != 0:",
        ("while wrapped_end >= self._slots and load_little_u32(source, wrapped_end * _SLOT + _OFFSET) != 0:",),
        "it only saves moves: every entry is inserted in order at any time",
    ),
    Equivalent(
        "slot_of",
        "if load_little_u32(p, at + _OFFSET) == 0 or (",
        ("if load_little_u32(p, at ^ _OFFSET) == 0 or (", "if load_little_u32(p, at | _OFFSET) == 0 or ("),
        "a slot has 16 bytes, so the lowest four bits of its position are 0",
    ),
    Equivalent(
        "__init__",
        'self._key = BytesColumn(block, allocate, rows, min(16 * rows, data_bytes)) if "key" in columns else None',
        ('self._key = BytesColumn(block, allocate, rows, min(16 ^ rows, data_bytes)) if "key" in columns else None',),
        "it is a first guess of the number of bytes: the column grows if it is too low",
    ),
    Equivalent(
        "put",
        "if 4 * self.count >= 3 * self._slots:",
        ("if 4 * self.count == 3 * self._slots:",),
        "the count grows by one and the number of slots is a multiple of four, so equality comes first",
    ),
    Equivalent(
        "check_crc",
        "return 0",
        ("return -1", "return 1"),
        "the function returns or raises without reading the number",
    ),
    Equivalent(
        "_feed",
        "while position < segment.size:",
        ("while position != segment.size:",),
        "only whole batches before the end are read, so the position reaches the end and never exceeds it",
    ),
    Equivalent(
        "_try_entries",
        "chunk = gap + 512",
        ("chunk = gap + 513", "chunk = gap + 511"),
        _HOW_MUCH,
    ),
    Equivalent(
        "decode_seal",
        "clean_offset = _CLEAN.unpack_from(data, _BODY.size)[0] if version != VERSION else 0",
        ("clean_offset = _CLEAN.unpack_from(data, _BODY.size)[0] if version is not VERSION else 0",),
        _SMALL_NUMBER,
    ),
    Equivalent(
        "decode_seal",
        "if version == PAGED_VERSION:",
        ("if version is PAGED_VERSION:",),
        _SMALL_NUMBER,
    ),
    Equivalent(
        "read_table",
        "table = files.read(handle.number, max(0, files.size(handle.number) - HEAD_SIZE), HEAD_SIZE)",
        ("table = files.read(handle.number, max(0, files.size(handle.number) | HEAD_SIZE), HEAD_SIZE)",),
        "the read asks for more bytes than exist, and stops at the end of the file",
    ),
)
