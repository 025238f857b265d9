"""`append` takes back what `export` writes, byte for byte, in every format of both."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seeklog
from cli.workbench import MORNING_MS, Run
from seeklog.cli.record_input import Reader
from seeklog.cli.show.record_json import Draft
from seeklog.cli.show.record_output import writer_of
from seeklog.cli.verbs.export import FORMATS
from seeklog.record.record import Record, make_record

# What formats confuse: null and empty, quotes and separators, newlines, NUL, bytes that are not UTF-8, spaces at ends.
PIECES = (None, b"", b"a", b' ",\n', b"a\rb", b"\r\n", b"\0", b"\xff\xfe", "é\u2028".encode(), b"null", b"\\N")
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("a", b"1"), ("a", b"2"), ("", None), ("a", b"")),
    (("caf\u00e9", b"\xff"), ("\udcff", b"key that is not UTF-8"), ("\ufffd", b"text of a replacement")),
)
TIMES = (-1, 0, MORNING_MS + 7, 2**53 + 1, 2**63 - 1)

Found = tuple[bytes | None, bytes | None, Any, int | None, int]


def found_in(path: Path, topic: str) -> list[Found]:
    with seeklog.open(path, read_only=True) as store:
        return [
            (record.value, record.key, record.headers, record.timestamp_ms, number)
            for number in store.topic(topic).partitions
            for record in store.log(topic, number).scan()
        ]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every combination of the pieces above in two partitions."""
    path = tmp_path_factory.mktemp("round-trip") / "data"
    pairs = itertools.product(PIECES, PIECES, HEADERS, TIMES)
    with seeklog.open(path, background=False) as store:
        store.create_topic("full", partitions=2)
        with store.writer("full", 0) as log:
            log.append_many(
                [Record(value, key=key, headers=headers, timestamp_ms=time) for value, key, headers, time in pairs]
            )
        with store.writer("full", 1) as log:
            log.append(b"the only one", key=b"in partition 1", timestamp_ms=MORNING_MS)
    return path


@pytest.mark.id("append-reads-what-export-writes")
@pytest.mark.parametrize("form", FORMATS)
def test_append_takes_back_what_export_wrote(run: Run, full: Path, tmp_path: Path, form: str) -> None:
    if form.startswith(("arrow", "parquet")):
        pytest.importorskip("pyarrow")
    with seeklog.open(tmp_path / "again", background=False) as store:
        store.create_topic("full", partitions=2)

    exported = run("export", full, "full", "-o", f"full.{form}")
    appended = run("append", "again", "full", f"full.{form}", "--keep-partition")

    expected = found_in(full, "full")
    assert (exported.code, appended.code, appended.out) == (0, 0, b""), exported.err + appended.err
    assert appended.err.startswith(f"appended {len(expected):,} records to full (")
    assert found_in(tmp_path / "again", "full") == expected


some_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
header_keys = st.binary(max_size=8).map(lambda data: data.decode("utf-8", "surrogateescape"))


@given(
    st.lists(
        st.builds(
            Draft,
            value=some_bytes,
            key=some_bytes,
            headers=st.lists(st.tuples(header_keys, some_bytes), max_size=3).map(tuple),
            timestamp_ms=st.integers(-1, 2**63 - 1) | st.integers(0, 4_102_444_800_000),
            partition=st.integers(0, 2**31 - 1),
        )
    ),
    st.booleans(),
)
def test_records_round_trip_through_csv(drafts: list[Draft], utc: bool) -> None:
    writer = writer_of("csv", utc=utc)
    rows = writer.encode(
        [
            make_record(each.value, each.key, each.headers, each.timestamp_ms or 0, 7, ("orders", each.partition))
            for each in drafts
        ]
    )

    assert [draft for _, draft in Reader().read_csv([writer.head + rows])] == drafts
