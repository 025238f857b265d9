"""Text files that prove themselves: what comes back, what is refused, and in which words."""

from __future__ import annotations

import pytest

from seeklog.errors import CorruptionError
from seeklog.record.framed import decode_framed, encode_framed
from seeklog.record.kernel import crc32c

FIRST = "seeklog-things 1"
LINES = ["orders 3", "payments 12"]
ADVICE = "Restore it."


def decode(data: bytes) -> list[str]:
    return decode_framed(data, FIRST, what="the list of things", path="things", advice=ADVICE)


def test_the_last_line_is_the_crc_of_all_before_it() -> None:
    body = b"seeklog-things 1\norders 3\npayments 12\n"

    assert encode_framed(FIRST, LINES) == body + b"crc32c %08x\n" % crc32c(body)


@pytest.mark.parametrize("lines", [[], ["one"], LINES, ["crc32c 00000000"]], ids=len)
def test_lines_come_back(lines: list[str]) -> None:
    assert decode(encode_framed(FIRST, lines)) == lines


@pytest.mark.parametrize("size", range(len(encode_framed(FIRST, LINES))))
def test_a_file_cut_at_any_byte_is_refused_with_the_advice(size: int) -> None:
    with pytest.raises(CorruptionError, match=r"the list of things fails its CRC\nRestore it\."):
        decode(encode_framed(FIRST, LINES)[:size])


def test_a_file_with_any_bit_turned_over_is_refused() -> None:
    data = encode_framed(FIRST, LINES)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(CorruptionError, match="the list of things fails its CRC"):
            decode(bytes(damaged))


@pytest.mark.parametrize("first", ["seeklog-things 2", "seeklog-other 1"])
def test_a_whole_file_of_another_kind_or_version_is_named(first: str) -> None:
    with pytest.raises(CorruptionError, match=f"the list of things begins with '{first}', not 'seeklog-things 1'"):
        decode(encode_framed(first, LINES))


def test_a_file_of_a_crc_alone_is_of_another_kind() -> None:
    with pytest.raises(CorruptionError, match="begins with '', not"):
        decode(b"crc32c %08x\n" % crc32c(b""))
