"""The tree of errors in the docstring of `seeklog.errors`."""

from __future__ import annotations

import pickle

import pytest

from seeklog import errors


def drawn(kind: type, depth: int = 0) -> list[tuple[int, str]]:
    """Return the names of the subclasses, each with its depth."""
    children = [each for each in vars(errors).values() if isinstance(each, type) and each.__bases__[0] is kind]
    return [(depth, kind.__name__), *(row for child in children for row in drawn(child, depth + 1))]


def test_docstring_shows_each_error_below_its_base() -> None:
    rows = []
    for line in (errors.__doc__ or "").splitlines():
        branch, _, rest = line.rpartition("── ")
        if branch:
            rows.append(((len(branch) - 1) // 4, rest.split()[0]))

    assert sorted(rows) == sorted(drawn(errors.SeeklogError)[1:])


def test_each_error_has_a_line_of_advice() -> None:
    for line in (errors.__doc__ or "").splitlines():
        if "── " in line:
            assert len(line.rpartition("── ")[2].split()) > 2, line


@pytest.mark.parametrize(
    "error",
    [
        errors.UsageError("wrong"),
        errors.ProducerFenced("fenced", producer_id=1, epoch=2, current_epoch=3),
        errors.DuplicateSequence("again", producer_id=1, epoch=2, sequence=3, expected=4),
        errors.OffsetOutOfRange(5, log_start_offset=0, log_end_offset=3, what="position"),
        errors.DataLoss("START_OFFSET_RESET", "gone"),
        errors.LogLocked("/data", 7, owner="a broker", advice="stop it"),
        errors.CorruptBatch("stored CRC", path="/data/0.log", position=9, advice="verify"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_survives_pickling_with_its_attributes(error: errors.SeeklogError) -> None:
    again = pickle.loads(pickle.dumps(error))

    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
