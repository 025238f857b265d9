"""The end of each transaction, derived from its batches."""

from __future__ import annotations

from seeklog.config import INT64_MAX
from seeklog.log.side.transaction_index import TransactionHistory, Verdicts
from seeklog.record.control import ABORT, COMMIT
from seeklog.record.layout import CONTROL, TRANSACTIONAL

MARKER = TRANSACTIONAL | CONTROL


def history_of(*batches: tuple[int, int, int, int, int]) -> TransactionHistory:
    found = TransactionHistory(100)
    for batch in batches:
        found.note(*batch)
    return found


def test_transaction_is_open_until_its_marker() -> None:
    batch = (3, 5, TRANSACTIONAL, 7, -1)

    assert history_of(batch).first_unstable_offset == 3
    assert history_of(batch, (6, 6, MARKER, 8, ABORT)).first_unstable_offset == 3
    for kind in (ABORT, COMMIT):
        assert history_of(batch, (6, 6, MARKER, 7, kind)).first_unstable_offset == INT64_MAX


def test_only_batches_of_aborted_transaction_are_aborted() -> None:
    found = history_of((3, 5, TRANSACTIONAL, 7, -1), (6, 6, MARKER, 7, ABORT), (8, 8, TRANSACTIONAL, 7, -1))

    assert [found.find_aborted(7, offset) is not None for offset in (2, 3, 6, 7, 8)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert found.find_aborted(8, 3) is None


def test_transactional_batch_without_producer_opens_no_transaction() -> None:
    """Goal: nothing could ever end it, so readers of committed records would wait forever."""
    found = history_of((3, 3, TRANSACTIONAL, -1, -1), (4, 4, MARKER, -1, ABORT))

    assert found.first_unstable_offset == INT64_MAX
    assert found.find_aborted(-1, 3) is None


def test_marker_of_unknown_transaction_stays_and_is_not_indexed() -> None:
    """Goal: a transaction that began before the first offset of the log has no known start."""
    verdicts = Verdicts(lambda: history_of())

    assert not verdicts.judge(3, 3, TRANSACTIONAL, 7, -1)
    assert not verdicts.judge(4, 4, MARKER, 7, ABORT)
    assert verdicts.take_aborted() == b""
    assert verdicts.judge(5, 5, MARKER, 7, ABORT), "a second marker ends nothing"
