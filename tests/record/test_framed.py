"""Text files with a checksum: round trips, refusals, and error messages."""

from __future__ import annotations

import re

import pytest

from cases import for_each
from seeklog.errors import CorruptionError
from seeklog.record.crc import crc32c
from seeklog.record.framed import decode_framed, encode_framed, parse_json, whole_number

FIRST = "seeklog-things 1"
LINES = ["orders 3", "payments 12"]
ADVICE = "Restore it."


def decode(data: bytes) -> list[str]:
    return decode_framed(data, FIRST, subject="the list of things", path="things", advice=ADVICE)


def test_last_line_is_crc_of_all_lines_before() -> None:
    body = b"seeklog-things 1\norders 3\npayments 12\n"

    assert encode_framed(FIRST, LINES) == body + b"crc32c %08x\n" % crc32c(body)


@pytest.mark.parametrize("lines", [[], ["one"], LINES, ["crc32c 00000000"]], ids=len)
def test_lines_round_trip(lines: list[str]) -> None:
    assert decode(encode_framed(FIRST, lines)) == lines


@for_each("size", range(len(encode_framed(FIRST, LINES))))
def test_file_cut_at_any_byte_is_refused_with_advice(size: int) -> None:
    with pytest.raises(CorruptionError, match=r"the list of things fails its CRC\nRestore it\."):
        decode(encode_framed(FIRST, LINES)[:size])


def test_file_with_any_flipped_bit_is_refused() -> None:
    data = encode_framed(FIRST, LINES)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(CorruptionError, match="the list of things fails its CRC"):
            decode(bytes(damaged))


@pytest.mark.parametrize("first", ["seeklog-things 2", "seeklog-other 1"])
def test_whole_file_of_another_type_or_version_is_named(first: str) -> None:
    with pytest.raises(CorruptionError, match=f"the list of things starts with '{first}', not 'seeklog-things 1'"):
        decode(encode_framed(first, LINES))


def test_file_with_only_a_crc_is_of_another_type() -> None:
    with pytest.raises(CorruptionError, match="starts with '', not"):
        decode(b"crc32c %08x\n" % crc32c(b""))


def test_json_nested_too_deep_is_refused() -> None:
    assert parse_json('{"a": [1, null]}') == {"a": [1, None]}
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json("[" * 100_000)
    with pytest.raises(ValueError, match="Expecting value"):
        parse_json(b"nothing")


@pytest.mark.parametrize("value", [0, 1, 2**63 - 1])
def test_whole_number_within_bounds_is_accepted(value: int) -> None:
    assert whole_number(value) == value


@pytest.mark.parametrize("value", [-1, 2**63, -(2**64), True, 1.0, "1", None, [1]])
def test_error_shows_value_that_is_not_a_whole_number(value: object) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(value))} is not a whole number from"):
        whole_number(value)


def test_error_does_not_show_a_number_of_many_digits() -> None:
    """Goal: Python itself refuses to write a number of more than 4,300 digits."""
    with pytest.raises(ValueError, match=r"^a number of more than 64 bits is not a whole number"):
        whole_number(10**5000)


def test_bounds_may_be_passed() -> None:
    assert whole_number(-5, minimum=-5, maximum=-5) == -5
    for value in (-6, -4):
        with pytest.raises(ValueError, match="not a whole number"):
            whole_number(value, minimum=-5, maximum=-5)
