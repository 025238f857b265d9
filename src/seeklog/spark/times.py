"""Times of Arrow columns put into classes: days, or buckets of any length."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow


def floor_divided(numbers: pyarrow.Array, by: int) -> pyarrow.Array:
    """Return whole numbers divided and rounded down. Arrow's own division cuts towards zero: before 1970 that is up."""
    import pyarrow.compute as pc

    cut = pc.divide(numbers, by)
    is_above = pc.less(numbers, pc.multiply(cut, by))
    return pc.subtract(cut, is_above.cast("int64"))
