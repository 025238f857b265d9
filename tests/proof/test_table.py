"""The proof keeps one row for each part, and publishes a complete table or none."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from proof.staleness import Age
from proof.table import BEGIN, END, Row, latest, load, objections, publish, record, write_table

ROW = Row(2, "torn", "files are torn", "full", 1, 40, 0, [], [], {}, 3.0, "abc1234")
OTHER = dataclasses.replace(ROW, target=1, name="crash", title="power is lost")
NAMES = ("crash", "torn")
TITLES = {"crash": "power is lost", "torn": "files are torn"}


def age(row: Row) -> Age:
    """Say that the rows of one commit are stale."""
    return Age(("src/seeklog/topics/catalog.py",)) if row.commit == "0ld1234" else Age()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A published page without rows."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "proof.md").write_text(f"before\n{BEGIN}\nold rows\n\n{END}after\n")
    (docs / "proof.json").write_text('{"rows": []}')
    return docs


def test_table_holds_rows_of_separate_runs(tmp_path: Path) -> None:
    record(ROW, directory=tmp_path)
    record(OTHER, directory=tmp_path)
    write_table(NAMES, age=age, directory=tmp_path)

    assert load(NAMES, directory=tmp_path) == [OTHER, ROW]
    assert [row["name"] for row in json.loads((tmp_path / "proof.json").read_text())["rows"]] == ["crash", "torn"]
    assert "| **all** | | 80 | 0 | 6 | 2 of 2 rows are current |" in (tmp_path / "table.md").read_text()


def test_later_run_replaces_row_of_earlier_run(tmp_path: Path) -> None:
    record(ROW, directory=tmp_path)
    record(dataclasses.replace(ROW, violations=1), directory=tmp_path)

    assert [row.violations for row in load(NAMES, directory=tmp_path)] == [1]


def test_part_that_cannot_run_here_keeps_its_earlier_row(tmp_path: Path) -> None:
    record(ROW, directory=tmp_path)
    record(dataclasses.replace(ROW, cases=0, missing="no strace"), directory=tmp_path)

    assert load(NAMES, directory=tmp_path) == [ROW]


def test_table_names_parts_that_were_not_run(tmp_path: Path) -> None:
    record(ROW, directory=tmp_path)
    record(dataclasses.replace(OTHER, missing="no strace"), directory=tmp_path)
    write_table((*NAMES, "bombs"), age=age, directory=tmp_path)

    assert "Not run yet: `bombs`, `crash`." in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize(
    ("row", "objection"),
    [
        (OTHER, None),
        (None, "never run: crash"),
        (dataclasses.replace(OTHER, missing="no strace"), "crash was not run: no strace"),
        (dataclasses.replace(OTHER, violations=2), "crash found 2 violations"),
        (dataclasses.replace(OTHER, commit="abc1234, changed"), "crash was run on changes that are not in a commit"),
    ],
)
def test_only_whole_table_without_violations_is_published(
    row: Row | None, objection: str | None, tmp_path: Path, docs: Path
) -> None:
    record(ROW, directory=tmp_path)
    if row is not None:
        record(row, directory=tmp_path)

    found = list(objections(TITLES, latest(TITLES, age=age, directory=tmp_path, docs=docs)))

    assert len(found) == (objection is not None)
    assert not found or found[0].startswith(str(objection))


def test_publishing_replaces_only_the_table_of_the_page(tmp_path: Path, docs: Path) -> None:
    record(ROW, directory=tmp_path)

    publish(latest(TITLES, age=age, directory=tmp_path, docs=docs), age=age, docs=docs)

    before, _, rest = (docs / "proof.md").read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    assert (before, after) == ("before\n", "after\n")
    assert "files are torn" in table
    assert "old rows" not in table
    assert json.loads((docs / "proof.json").read_text())["rows"] == [dataclasses.asdict(ROW)]


def test_stale_row_is_published_with_a_mark(tmp_path: Path, docs: Path) -> None:
    record(dataclasses.replace(ROW, commit="0ld1234"), directory=tmp_path)
    record(OTHER, directory=tmp_path)
    rows = latest(TITLES, age=age, directory=tmp_path, docs=docs)

    assert not list(objections(TITLES, rows))
    publish(rows, age=age, docs=docs)

    page = (docs / "proof.md").read_text()
    assert "| abc1234 |" in page
    assert "| 0ld1234, before changes in topics |" in page
    assert "| 1 of 2 rows are current |" in page


def test_part_that_was_not_run_since_keeps_its_published_row(tmp_path: Path, docs: Path) -> None:
    publish([OTHER, ROW], age=age, docs=docs)
    later = dataclasses.replace(OTHER, cases=80, commit="def5678")
    record(later, directory=tmp_path)

    rows = latest({**TITLES, "torn": "Tear files"}, age=age, directory=tmp_path, docs=docs)

    assert rows == [later, dataclasses.replace(ROW, title="Tear files")]


NEW = dataclasses.replace(ROW, cases=80)
OLD = dataclasses.replace(NEW, commit="0ld1234")


@pytest.mark.parametrize(
    ("built", "published", "expected"),
    [
        (NEW, ROW, NEW),
        (OLD, dataclasses.replace(ROW, commit="0ld1234"), OLD),
        (OLD, ROW, ROW),
        (dataclasses.replace(NEW, missing="no strace"), OLD, OLD),
        (dataclasses.replace(NEW, violations=1), ROW, dataclasses.replace(NEW, violations=1)),
    ],
)
def test_published_row_counts_if_it_alone_is_current(
    built: Row, published: Row, expected: Row, tmp_path: Path, docs: Path
) -> None:
    publish([published], age=age, docs=docs)
    record(built, directory=tmp_path)

    assert latest({ROW.name: ROW.title}, age=age, directory=tmp_path, docs=docs) == [expected]
