"""A row of the result: the work, seeklog's figure, a peer's figure, their ratio, and the target if there is one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Unit(Enum):
    """The unit of a figure; `low` means that less is better."""

    RECORDS_PER_SECOND = ("records/s", False)
    GIGABYTES_PER_SECOND = ("GB/s", False)
    ACKNOWLEDGEMENTS_PER_SYNC = ("acks/sync", False)
    MICROSECONDS = ("us", True)
    MILLISECONDS = ("ms", True)
    MEGABYTES = ("MB", True)
    BYTES = ("bytes", True)
    SYNCS = ("syncs", True)
    PERCENT = ("%", True)

    def __init__(self, symbol: str, low: bool) -> None:
        self.symbol = symbol
        self.low = low

    def text(self, figure: float) -> str:
        if self is Unit.RECORDS_PER_SECOND:
            if figure >= 1e6:
                return f"{figure / 1e6:.2f} M/s"
            return f"{figure / 1e3:.1f} k/s" if figure >= 1e3 else f"{figure:.0f} /s"
        return f"{figure:.2f} {self.symbol}" if figure < 100 else f"{figure:,.0f} {self.symbol}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A figure, compared with a peer or with a target.

    `ratio` is above 1 if seeklog is better, whatever the unit. With a peer the target is a minimum of the ratio.
    Without a peer it is a minimum of seeklog's figure, or a maximum if less is better.
    """

    work: str
    figure: float
    unit: Unit
    peer: str = ""
    peer_figure: float | None = None
    target: float | None = None
    target_text: str = ""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if self.peer_figure is None:
            return None
        return self.peer_figure / self.figure if self.unit.low else self.figure / self.peer_figure

    @property
    def reached(self) -> bool | None:
        if self.target is None:
            return None
        if self.ratio is not None:
            return self.ratio >= self.target
        return self.figure <= self.target if self.unit.low else self.figure >= self.target

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table: work, seeklog, peer, ratio, target, reached?"""
        peer = "" if self.peer_figure is None else f"{self.peer} {self.unit.text(self.peer_figure)}"
        ratio = "" if self.ratio is None else f"{self.ratio:,.{2 if self.ratio < 100 else 0}f}x"
        reached = {None: "", True: "yes", False: "NO"}[self.reached]
        return self.work, self.unit.text(self.figure), peer, ratio, self._target_cell(), reached

    def _target_cell(self) -> str:
        if self.target is None or self.target_text:
            return self.target_text
        if self.peer_figure is not None:
            return f"{self.target:g}x"
        return f"{'<=' if self.unit.low else '>='} {self.target:g} {self.unit.symbol}"

    def as_json(self) -> dict[str, Any]:
        return {
            "work": self.work,
            "unit": self.unit.symbol,
            "seeklog": self.figure,
            "peer": self.peer or None,
            "peer_figure": self.peer_figure,
            "ratio": self.ratio,
            "target": self.target,
            "target_is_on": None if self.target is None else "seeklog" if self.ratio is None else "ratio",
            "reached": self.reached,
            "note": self.note or None,
        }


HEADINGS = ("work", "seeklog", "peer", "ratio", "target", "reached?")


def table(rows: list[Row]) -> str:
    """Return rows as a table with aligned columns."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
