"""The soak's check of compacted topics: which records may be missing from a read."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.ledger import KEYS, REST, Ledger, WrongAnswer, key_number, key_of

NEWEST = 2 * REST - 1


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Return a ledger after records of all keys; the first half of the keys pauses."""
    ledger = Ledger(tmp_path / "ledger", create=True)
    for number in range(NEWEST + 1):
        ledger.send_key(key_number(key_of(number)), number)
        ledger.acknowledge_key(key_number(key_of(number)), number)
    return ledger


def acked(ledger: Ledger) -> list[int]:
    return [ledger.acked_of_key(key) for key in range(KEYS)]


def test_read_with_newest_record_of_each_key_is_right(ledger: Ledger) -> None:
    before = acked(ledger)
    assert min(before) >= 0
    assert ledger.check_newest(before, before) == KEYS


def test_missing_newest_record_of_a_key_is_wrong(ledger: Ledger) -> None:
    before = acked(ledger)
    for key in range(KEYS):
        found = [-1 if number == key else newest for number, newest in enumerate(before)]
        with pytest.raises(WrongAnswer, match=f"the newest of key {key} is -1 acknowledged: {before[key]}"):
            ledger.check_newest(before, found)


def test_missing_superseded_record_is_lawful(ledger: Ledger) -> None:
    before = acked(ledger)
    key = key_number(key_of(NEWEST))
    found = [-1 if number == key else newest for number, newest in enumerate(before)]
    ledger.send_key(key, NEWEST + 1)
    assert ledger.check_newest(before, found) == KEYS - 1


def test_missing_record_below_the_last_one_read_is_wrong(ledger: Ledger) -> None:
    before = acked(ledger)
    found = [NEWEST + 2, -1, *before[2:]]
    ledger.send_key(1, NEWEST + 1)
    with pytest.raises(WrongAnswer, match="key 1"):
        ledger.check_newest(before, found)
