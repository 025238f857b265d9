from __future__ import annotations

import pytest

from seeklog.cli.show.kcat_format import compile_format
from seeklog.errors import UsageError
from seeklog.record.record import make_record

RECORD = make_record(b"a\x1b[2J\xff", b"k%s", (("h", b"1"), ("n", None)), 5, 42, ("orders", 3))
EMPTY = make_record(None, None, (), -1, 0, ("orders", 0))


@pytest.mark.parametrize(
    ("text", "made", "made_of_nulls"),
    [
        ("%s|%v", b"a\x1b[2J\xff|a\x1b[2J\xff", b"|"),
        ("%S %K", b"6 3", b"-1 -1"),
        ("%R", b"\0\0\0\x06", b"\xff\xff\xff\xff"),
        ("%k", b"k%s", b""),
        ("%T %t %p %o", b"5 orders 3 42", b"-1 orders 0 0"),
        ("%h", b"h=1,n=NULL", b""),
        ("100%% \\n\\t\\r\\0\\\\\\xff é", b"100% \n\t\r\0\\\xff \xc3\xa9", b"100% \n\t\r\0\\\xff \xc3\xa9"),
        ("", b"", b""),
    ],
)
def test_each_letter_formats_its_field(text: str, made: bytes, made_of_nulls: bytes) -> None:
    encode = compile_format(text, is_neutral=False)

    assert (encode(RECORD), encode(EMPTY)) == (made, made_of_nulls)


def test_record_data_is_escaped_and_the_template_is_not() -> None:
    assert compile_format("\\t%s\\n", is_neutral=True)(RECORD) == b"\ta\\x1b[2J\\xff\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [("%o %q", "%q at column 4"), ("%", "% at column 1"), ("a\\q", "\\q at column 2"), ("\\", "\\ at column 1")],
)
def test_invalid_format_is_reported_with_its_column(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_format(text, is_neutral=False)

    assert message in str(caught.value)
