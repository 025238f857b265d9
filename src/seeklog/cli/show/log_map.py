"""The map of a log: a box for each segment, to scale, with index points, offsets, times and damage.

       LS ▼                                   HW RP LE ▼
          ┌────────────────┬────────────────┬──────────┐
          │▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│▓▓▓▓▓▓✗✗▓▓▓▓▓▓▓▓│▒▒▒▒▒▒▒▒▒▒│
          │ · · · · · · · ·│ · · · · · · · ·│ · · · · ·│
          └────────────────┴────────────────┴──────────┘
           0                93               190    350

`draw_map` is a pure function from a portrait and a width to pieces of styled text. `Ink` renders them for a terminal:
with or without colours, and in ASCII if necessary.
"""

from __future__ import annotations

import locale
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Final, Literal, TypeAlias

from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.log.check import Damage, Portrait, SegmentPortrait, Severity

Style: TypeAlias = Literal["plain", "bold", "dim", "sealed", "compacted", "active", "damage", "mark"]
Line: TypeAlias = list[tuple[str, Style]]

MIN_WIDTH: Final = 30
# A narrower box is nothing but borders.
MIN_BOX: Final = 3
MAX_DAMAGES: Final = 8
_SEALED, _COMPACTED, _ACTIVE, _DAMAGED, _DELETED = "▓", "░", "▒", "✗", "╌"
_DAY_MS: Final = 86_400_000
_COLORS: Final[dict[Style, str]] = {
    "bold": "1",
    "dim": "2",
    "sealed": "34",
    "compacted": "32",
    "active": "33",
    "damage": "1;31",
    "mark": "1;36",
}
_ASCII: Final = str.maketrans(f"{_SEALED}{_COMPACTED}{_ACTIVE}{_DAMAGED}{_DELETED}│─┌┐└┘┬┴▼·", "#-=X.|-++++++v.")


def has_unicode() -> bool:
    """Return whether the map can be shown in Unicode: the locale and stdout use UTF-8."""
    encoding = (sys.stdout.encoding or locale.getpreferredencoding(False)).lower().replace("-", "")
    return encoding == "utf8" and locale.setlocale(locale.LC_CTYPE, "").upper().replace("-", "").endswith("UTF8")


@dataclass(frozen=True, slots=True)
class Ink:
    """The capabilities of a terminal."""

    is_ascii: bool
    has_colors: bool

    def render(self, line: Line) -> str:
        """Return a line as text."""
        parts = []
        for text, style in line:
            shown = text.translate(_ASCII).encode("ascii", "replace").decode() if self.is_ascii else text
            parts.append(f"\x1b[{_COLORS[style]}m{shown}\x1b[0m" if self.has_colors and style in _COLORS else shown)
        return "".join(parts).rstrip()


def draw_map(portrait: Portrait, *, name: str, width: int, by_offsets: bool, utc: bool) -> list[Line]:
    """Return the map of a partition, at most `width` cells wide."""
    width = max(MIN_WIDTH, width)
    scale = Scale(portrait, width - 1, by_offsets=by_offsets)
    lines: list[Line] = [[("no segments", "damage")]]
    if portrait.segments:
        lines = [*_marks(portrait, scale), *_boxes(portrait, scale), *_axes(portrait, scale, utc=utc)]
    lines += [*_damages(portrait, width), *_quarantined(portrait, width), *_legend(portrait, width)]
    return [_title(portrait, name, width, utc=utc), *([(" ", "plain"), *line] for line in lines)]


# ---------------------------------------------------------------- positions


class Scale:
    """Maps bytes and offsets to cells. The last cell is the right border."""

    def __init__(self, portrait: Portrait, width: int, *, by_offsets: bool) -> None:
        self.width = width
        self._by_offsets = by_offsets
        self._segments = portrait.segments
        weights = [
            max(0, segment.next_offset - segment.base_offset if by_offsets else segment.size_bytes)
            for segment in self._segments
        ]
        self.spans = _share(weights, width - 1, minimum=2)
        """The cells of each segment, including its left border."""
        self.is_crowded = any(len(span) < MIN_BOX for span in self.spans)
        if self.is_crowded:
            # No room for borders between segments: one box, with a mark at the start of each segment.
            self.spans = [range(span.start + 1, span.stop + 1) for span in _share(weights, width - 2, minimum=0)]

    def inner(self, number: int) -> range:
        """Return the cells between the borders of a segment's box."""
        return self.spans[number] if self.is_crowded else self.spans[number][1:]

    def at_byte(self, number: int, position: int) -> int:
        """Return the cell of a byte of a segment."""
        segment = self._segments[number]
        if not self._by_offsets:
            return self._cell(number, position, segment.size_bytes)
        ends = (0, segment.base_offset), (max(segment.size_bytes, 1), segment.next_offset)
        points = [(where, offset) for offset, where in segment.index_points]
        return self.at_offset_in(number, _interpolate([ends[0], *points, ends[1]], position))

    def at_offset_in(self, number: int, offset: int) -> int:
        """Return the cell of an offset in a segment."""
        segment = self._segments[number]
        if self._by_offsets:
            return self._cell(number, offset - segment.base_offset, segment.next_offset - segment.base_offset)
        ends = (segment.base_offset, 0), (segment.next_offset, segment.size_bytes)
        position = _interpolate([ends[0], *segment.index_points, ends[1]], offset)
        return self._cell(number, position, segment.size_bytes)

    def at_offset(self, offset: int) -> int:
        """Return the cell of an offset; it is a border if the offset starts a segment or ends the log."""
        number = max(0, bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1)
        segment = self._segments[number]
        if offset <= segment.base_offset:
            return max(0, self.spans[number].start - self.is_crowded)
        if offset >= segment.next_offset:
            return self.width - 1
        return self.at_offset_in(number, offset)

    def _cell(self, number: int, part: int, whole: int) -> int:
        cells = self.inner(number)
        if not cells:
            return min(cells.start, self.width - 2)
        share = min(max(part, 0), max(whole - 1, 0)) / max(whole, 1)
        return cells[min(int(share * len(cells)), len(cells) - 1)]


def _share(weights: list[int], cells: int, *, minimum: int) -> list[range]:
    """Divide cells by weight, with a minimum for each weight; all spans are empty if there is no room."""
    free, total = cells - minimum * len(weights), sum(weights) or 1
    if free <= 0:
        return [range(0)] * len(weights)
    # From cumulative sums, so that rounding errors do not add up.
    sums = accumulate(weights, initial=0)
    edges = [minimum * number + before * free // total for number, before in enumerate(sums)]
    edges[-1] = cells
    return [range(*edge) for edge in pairwise(edges)]


def _interpolate(points: list[tuple[int, int]], x: int) -> int:
    """Interpolate y at x between points in the order of x."""
    number = max(0, bisect_right(points, x, key=lambda point: point[0]) - 1)
    x0, y0 = points[number]
    if number + 1 == len(points):
        return y0
    x1, y1 = points[number + 1]
    return y0 + int((x - x0) / max(1, x1 - x0) * (y1 - y0))


# ---------------------------------------------------------------- drawing

_BORDER: Final[tuple[str, Style]] = ("│", "dim")


def _known_times(portrait: Portrait) -> list[int]:
    times = [time for segment in portrait.segments for time in (segment.first_timestamp_ms, segment.max_timestamp_ms)]
    return [time for time in times if time is not None and time >= 0]


def _title(portrait: Portrait, name: str, width: int, *, utc: bool) -> Line:
    segments = portrait.segments
    counts = [segment.record_count for segment in segments if segment.record_count is not None]
    parts = [amounts.counted(len(segments), "segment")]
    if len(counts) == len(segments):
        parts.append(amounts.counted(sum(counts), "record"))
    parts.append(amounts.size(portrait.size_bytes))
    if known := _known_times(portrait):
        oldest, newest = (amounts.moment(time, utc=utc) or "" for time in (min(known), max(known)))
        parts.append(f"{oldest[:19]} to {newest[:19]}{newest[23:]}")
    while parts and len(name) + 2 + len(", ".join(parts)) > width:
        parts.pop()
    return [(neutral(name), "bold"), (f"  {', '.join(parts)}" if parts else "", "plain")]


def _marks(portrait: Portrait, scale: Scale) -> Iterator[Line]:
    """Yield the marks of the log's offsets, with an arrow above each cell."""
    cells: dict[int, str] = {}
    for label, offset in (
        ("LS", portrait.log_start_offset),
        ("RP", portrait.recovery_point),
        ("HW", portrait.high_watermark),
        ("LE", portrait.log_end_offset),
    ):
        cell = scale.at_offset(offset)
        cells[cell] = f"{cells[cell]} {label}" if cell in cells else label
    rows: list[list[str]] = []
    for cell, labels in sorted(cells.items()):
        is_left = cell > max(len(labels), scale.width // 2)
        start = cell - len(labels) - 1 if is_left else cell
        stop = start + len(labels) + 2
        row = next((row for row in rows if set(row[max(0, start - 1) : stop + 1]) == {" "}), None)
        if row is None:
            row = [" "] * (scale.width + 16)
            rows.append(row)
        row[start:stop] = f"{labels} ▼" if is_left else f"▼ {labels}"
    for row in rows:
        yield [("".join(row).rstrip(), "mark")]


def _boxes(portrait: Portrait, scale: Scale) -> Iterator[Line]:
    starts = {span.start for span in scale.spans} if not scale.is_crowded else {0}
    marks = {span.start for span in scale.spans if span.start < scale.width - 1}
    yield [(_border(scale.width, marks, "┌", "┬", "┐"), "dim")]
    for cells in (_bar(portrait, scale), _points(portrait, scale)):
        for cell in (*starts, scale.width - 1):
            cells[cell] = _BORDER
        yield [
            ("".join(character for character, _ in group), style)
            for style, group in groupby(cells, key=lambda cell: cell[1])
        ]
    yield [(_border(scale.width, starts, "└", "┴", "┘"), "dim")]


def _border(width: int, marks: set[int], left: str, between: str, right: str) -> str:
    return left + "".join(between if cell in marks else "─" for cell in range(1, width - 1)) + right


def _bar(portrait: Portrait, scale: Scale) -> Line:
    cells: Line = [(" ", "plain")] * scale.width
    for number, segment in enumerate(portrait.segments):
        start, stop = scale.inner(number).start, scale.inner(number).stop
        if segment.size_bytes:
            cells[start:stop] = [_fill(segment)] * (stop - start)
        if segment.base_offset < portrait.log_start_offset:
            gone = scale.at_offset_in(number, min(portrait.log_start_offset, segment.next_offset))
            cells[start:gone] = [(_DELETED, "dim")] * (gone - start)
        if 0 < segment.clean_offset < segment.next_offset:
            dirty = scale.at_offset_in(number, segment.clean_offset)
            cells[dirty:stop] = [(_SEALED, "sealed")] * (stop - dirty)
    # Drawn last, because segments may share cells and damage must be visible.
    for number, segment in enumerate(portrait.segments):
        damaged = [(damage.start, max(damage.start, damage.stop - 1)) for damage in segment.damages]
        damaged += [
            (finding.position, finding.position)
            for finding in portrait.findings
            if finding.severity is Severity.ERROR
            and finding.path.endswith(".log")
            and finding.position is not None
            and finding.segment == segment.base_offset
        ]
        for first, last in damaged:
            for cell in range(scale.at_byte(number, first), scale.at_byte(number, last) + 1):
                cells[cell] = (_DAMAGED, "damage")
    return cells


def _fill(segment: SegmentPortrait) -> tuple[str, Style]:
    if segment.is_active:
        return _ACTIVE, "active"
    return (_COMPACTED, "compacted") if segment.clean_offset else (_SEALED, "sealed")


def _points(portrait: Portrait, scale: Scale) -> Line:
    counts = [0] * scale.width
    for number, segment in enumerate(portrait.segments):
        for _, position in segment.index_points:
            counts[scale.at_byte(number, position)] += 1
    return [(" ·:"[min(count, 2)], "plain") for count in counts]


def _axes(portrait: Portrait, scale: Scale, *, utc: bool) -> Iterator[Line]:
    """Yield the first offsets and times of segments, as many as fit, and the end of the log."""
    segments = portrait.segments
    starts = [max(0, span.start - scale.is_crowded) for span in scale.spans]
    offsets = [str(segment.base_offset) for segment in segments]
    yield [(_axis(scale.width, starts, offsets, str(portrait.log_end_offset)), "plain")]
    if known := _known_times(portrait):
        span_ms = max(known) - min(known)
        times = [_time(segment.first_timestamp_ms, span_ms, utc=utc) for segment in segments]
        yield [(_axis(scale.width, starts, times, _time(segments[-1].max_timestamp_ms, span_ms, utc=utc)), "dim")]


def _axis(width: int, starts: list[int], labels: list[str], last: str) -> str:
    """Return a line of labels that do not overlap; the last label has priority."""
    cells = [" "] * width
    last_start = max(0, width - len(last))
    cells[last_start:] = last[: width - last_start]
    for start, label in zip(starts, labels, strict=True):
        stop = start + len(label)
        if label and stop < last_start and set(cells[max(0, start - 1) : stop + 1]) == {" "}:
            cells[start:stop] = label
    return "".join(cells)


def _time(timestamp_ms: int | None, span_ms: int, *, utc: bool) -> str:
    """Return a time as precisely as a span of this length needs."""
    day, _, rest = (amounts.moment(timestamp_ms, utc=utc) or "").partition("T")
    if not rest:
        return ""  # no timestamp, or after the year 9999
    if span_ms < _DAY_MS:
        return rest[:8] if span_ms < 600_000 else rest[:5]
    return f"{day[5:]} {rest[:5]}" if span_ms < 14 * _DAY_MS else day


def _damages(portrait: Portrait, width: int) -> Iterator[Line]:
    found = [(segment, damage) for segment in portrait.segments for damage in segment.damages]
    drawn = {(segment.base_offset, damage.start) for segment, damage in found}
    others = [
        finding
        for finding in portrait.findings
        if finding.severity is Severity.ERROR and (finding.segment, finding.position) not in drawn
    ]
    for segment, damage in found[:MAX_DAMAGES]:
        yield [(_fitted(f"✗ {segment.base_offset:020d}.log {_range(damage)}", width), "damage")]
    for finding in others[:MAX_DAMAGES]:
        file = finding.path.rpartition("/")[2]
        at = f" byte {amounts.count(finding.position)}" if finding.position is not None else ""
        yield [(_fitted(neutral(f"✗ {file}{at}: {finding.kind.value}: {finding.detail}"), width), "damage")]
    more = len(found[MAX_DAMAGES:]) + len(others[MAX_DAMAGES:])
    if more:
        yield [(f"✗ and {more} more; run: seeklog verify", "damage")]


def _range(damage: Damage) -> str:
    size = amounts.size(damage.stop - damage.start)
    where = f"bytes {damage.start:,} to {max(damage.start, damage.stop - 1):,} ({size})"
    if damage.next_offset is None:
        lost = f"from offset {damage.offset:,} on"
    elif damage.next_offset > damage.offset + 1:
        lost = f"offsets {damage.offset:,} to {damage.next_offset - 1:,}"
    else:
        lost = f"offset {damage.offset:,}"
    return f"{where}: {damage.kind}, {lost}"


def _fitted(text: str, width: int) -> str:
    return text if len(text) < width else f"{text[: width - 4]}..."


def _quarantined(portrait: Portrait, width: int) -> Iterator[Line]:
    if portrait.torn_files:
        size = amounts.size(sum(portrait.torn_files.values()))
        names = neutral(", ".join(portrait.torn_files))
        yield [(_fitted(f"quarantined: {size} in {names}", width), "dim")]


def _legend(portrait: Portrait, width: int) -> Iterator[Line]:
    segments = portrait.segments
    kinds: Iterable[tuple[str, Style, bool]] = (
        (f"{_SEALED} sealed", "sealed", any(not part.is_active and not part.clean_offset for part in segments)),
        (f"{_COMPACTED} compacted", "compacted", any(part.clean_offset for part in segments)),
        (f"{_ACTIVE} active", "active", True),
        (f"{_DELETED} deleted", "dim", any(part.base_offset < portrait.log_start_offset for part in segments)),
        (f"{_DAMAGED} damaged", "damage", any(finding.severity is Severity.ERROR for finding in portrait.findings)),
        ("· index", "plain", True),
    )
    line: Line = []
    used = 0
    for text, style, is_shown in kinds:
        if not is_shown:
            continue
        if used + len(text) + 2 > width - 1:
            yield line
            line, used = [], 0
        line += [(text, style), ("  ", "plain")]
        used += len(text) + 2
    yield line
