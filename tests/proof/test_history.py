"""The checker of histories finds each kind of anomaly, and accepts a correct history."""

from __future__ import annotations

import dataclasses

import pytest

from proof.history import History, Identity, Reading, Sent, check

PLACE = "events-0"


def sent(number: int, *, offset: int | None = None, key: bytes = b"", began: float | None = None) -> Sent:
    """Return the record that a writer sends at second `number`, taking half a second, with an offset."""
    at = float(number if began is None else began)
    where = number if offset is None else offset
    return Sent(PLACE, Identity(1, number), where, key or b"%d" % number, at, at + 0.5)


def reading(*offsets: int, start: int = 0, end: int | None = None, began: float = 100.0) -> Reading:
    seen = [(offset, Identity(1, offset)) for offset in offsets]
    return Reading("reader", PLACE, began, start, max(offsets) + 1 if end is None else end, began + 10, seen)


def kinds(history: History, **words: object) -> set[str]:
    return {anomaly.split(": ")[1] for anomaly in check(history, **words)}  # type: ignore[arg-type]


def test_correct_history_has_no_anomaly() -> None:
    history = History([sent(number) for number in range(5)], [reading(0, 1, 2, 3, 4), reading(2, 3, 4, start=2)])
    history.readings[1].began = 120.0

    assert list(check(history)) == []


def test_reader_may_stop_before_records_acknowledged_after_it_began() -> None:
    history = History([sent(number) for number in range(5)], [reading(0, 1, began=2.0)])

    assert list(check(history)) == []


@pytest.mark.parametrize(
    ("kind", "readings"),
    [
        ("lost", [reading(0, 2, 3)]),
        ("stale", [reading(0, 1, 2)]),
        ("non-monotonic", [reading(0, 2, 1, 3)]),
        ("non-monotonic", [reading(0, 1, 2, 3), reading(0, 1, 2, 3, end=2, began=120.0)]),
        ("non-monotonic", [reading(1, 2, 3, start=1), reading(0, 1, 2, 3, began=120.0)]),
        ("invented", [dataclasses.replace(reading(0, 1, 2, 3), seen=[(9, Identity(2, 9))])]),
        ("inconsistent", [dataclasses.replace(reading(0, 1, 2, 3), seen=[(0, Identity(1, 1))])]),
        ("duplicate", [dataclasses.replace(reading(0, 1, 2, 3), seen=[(7, Identity(1, 1))])]),
    ],
)
def test_reads_are_compared_with_acknowledgements(kind: str, readings: list[Reading]) -> None:
    assert kind in kinds(History([sent(number) for number in range(4)], readings))


def test_record_before_an_earlier_acknowledged_one_is_reordered() -> None:
    first = dataclasses.replace(sent(0, offset=1), identity=Identity(2, 0))

    assert kinds(History([first, sent(1, offset=0)])) == {"reordered"}


def test_records_of_one_writer_keep_its_order() -> None:
    assert kinds(History([sent(0, offset=1, began=0.0), sent(1, offset=0, began=0.0)])) == {"reordered"}


def test_records_sent_at_the_same_time_have_no_order() -> None:
    other = dataclasses.replace(sent(0, offset=0), identity=Identity(2, 0))

    assert list(check(History([sent(0, offset=1), other]))) == []


def test_offset_is_given_once() -> None:
    assert "inconsistent" in kinds(History([sent(0), sent(1, offset=0)]))


def test_records_deleted_by_retention_and_reported_are_not_lost() -> None:
    read = reading(3, start=0)
    read.gone.append(range(3))

    assert list(check(History([sent(number) for number in range(4)], [read]))) == []


def test_compaction_removes_only_records_with_a_later_one() -> None:
    history = History([sent(0, key=b"a"), sent(1, key=b"b"), sent(2, key=b"a")], [reading(1, 2)])

    assert list(check(history, compacted=[PLACE])) == []
    assert kinds(history) == {"lost"}
    assert kinds(dataclasses.replace(history, readings=[reading(0, 2)]), compacted=[PLACE]) == {"lost"}
    # The later record was not sent yet.
    assert kinds(dataclasses.replace(history, readings=[reading(1, end=2, began=-20.0)]), compacted=[PLACE]) == {"lost"}


def test_copy_may_lack_records_but_adds_none() -> None:
    copy = dataclasses.replace(reading(0, 3), is_whole=False)

    assert list(check(History([sent(number) for number in range(4)], [copy]))) == []
    copy.seen.append((4, Identity(1, 9)))
    assert kinds(History([sent(number) for number in range(4)], [copy])) == {"invented"}
