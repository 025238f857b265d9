"""Mutants that nobody can notice, each with the reason. They are left out of the score.

The rule is strict: no call, with any input, on any file, may answer otherwise, or raise otherwise. What only makes a
run slower, or its reads larger, counts as such; what makes memory or files grow without bound does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proof.mutants import Mutant, changed_line


@dataclass(frozen=True, slots=True)
class Equivalent:
    """Changes of one line that change nothing for anybody."""

    function: str
    """The function around it; empty in the module itself."""
    text: str
    """The line, without its indentation."""
    becomes: tuple[str, ...]
    """What it may become."""
    reason: str


def reason_for(mutant: Mutant) -> str:
    """Return why nobody can notice a mutant, or nothing if somebody should."""
    for known in EQUIVALENTS:
        if (known.function, known.text) == (mutant.function, mutant.text):
            changed = " ".join(changed_line(mutant).split())
            if changed in known.becomes:
                return known.reason
    return ""


_SMALL_NUMBER: Final = "both are small numbers, of which CPython has one object each"
_NOT_NEGATIVE: Final = "what a mask leaves is never negative"
_WHERE_TO_BEGIN: Final = "it is where the search begins, not what it finds: only the number of steps changes"
_HOW_MUCH: Final = "it is how much is read at once, not what is taken from it"
_NOT_A_TIME: Final = "it stands for no timestamp, and any number serves that can be none: those begin with -1"

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
        "it narrows what is searched next, and where it does so without need it is to the same end: `low` is at least "
        "1, and then neither the quotient nor the power is above `step` where `low + step` lies behind `high`",
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
        "it is the next place, or the same, whose hash is known to lie below: the search has one step more at most",
    ),
    Equivalent(
        "encode",
        "while wrapped_end < self._slots and load_little_u32(source, wrapped_end * _SLOT + _OFFSET) != 0:",
        ("while wrapped_end >= self._slots and load_little_u32(source, wrapped_end * _SLOT + _OFFSET) != 0:",),
        "it spares moves: every entry is inserted in order, whenever it comes",
    ),
    Equivalent(
        "slot_of",
        "if load_little_u32(p, at + _OFFSET) == 0 or (",
        ("if load_little_u32(p, at ^ _OFFSET) == 0 or (", "if load_little_u32(p, at | _OFFSET) == 0 or ("),
        "a slot has 16 bytes, so the lowest four bits of where it begins are 0",
    ),
    Equivalent(
        "allocate",
        'self._key = BytesColumn(rows, min(16 * rows, data_bytes)) if "key" in self._names else None',
        ('self._key = BytesColumn(rows, min(16 ^ rows, data_bytes)) if "key" in self._names else None',),
        "it is a first guess at how many bytes there will be: the column grows where that is wrong",
    ),
    Equivalent(
        "put",
        "if 4 * self.count >= 3 * self._slots:",
        ("if 4 * self.count == 3 * self._slots:",),
        "the count grows by one and the number of slots is a multiple of four: it is equal before it is above",
    ),
    Equivalent(
        "check_crc",
        "return 0",
        ("return -1", "return 1"),
        "the function returns or raises: nobody looks at the number",
    ),
    Equivalent(
        "_feed",
        "while position < segment.size:",
        ("while position != segment.size:",),
        "whole batches are taken from what lies below the end, so the position comes to the end and never past it",
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
        "more is asked for than there is, and a read ends where the file does",
    ),
)
