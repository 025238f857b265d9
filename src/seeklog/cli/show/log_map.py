"""The picture of a log: a box for each segment, as wide as its share, with index points, offsets, times and damage.

       LS ▼                                   HW RP LE ▼
          ┌────────────────┬────────────────┬──────────┐
          │▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│▓▓▓▓▓▓✗✗▓▓▓▓▓▓▓▓│▒▒▒▒▒▒▒▒▒▒│
          │ · · · · · · · ·│ · · · · · · · ·│ · · · · ·│
          └────────────────┴────────────────┴──────────┘
           0                93               190    350

A pure function of a portrait and a width makes it, of pieces of text with a style each; `Ink` turns those into what a
terminal takes: with or without colours, and in ASCII where nothing else can be shown.
"""

from __future__ import annotations

import locale
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.log.check import DamagedBytes, Portrait, SegmentPortrait, Severity

Style: TypeAlias = Literal["plain", "bold", "dim", "sealed", "compacted", "active", "damage", "mark"]
Line: TypeAlias = list[tuple[str, Style]]

WIDTH_LEAST: Final = 30
# A box narrower than that shows nothing but its borders.
BOX_LEAST: Final = 3
DAMAGES_SHOWN: Final = 8
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
_ASCII: Final = str.maketrans(
    {
        _SEALED: "#",
        _COMPACTED: "-",
        _ACTIVE: "=",
        _DAMAGED: "X",
        _DELETED: ".",
        "│": "|",
        "─": "-",
        "┌": "+",
        "┐": "+",
        "└": "+",
        "┘": "+",
        "┬": "+",
        "┴": "+",
        "▼": "v",
        "·": ".",
    }
)


def speaks_unicode() -> bool:
    """Tell whether what is drawn can be shown: the locale is one of UTF-8."""
    encoding = (sys.stdout.encoding or locale.getpreferredencoding(False)).lower().replace("-", "")
    return encoding == "utf8" and locale.setlocale(locale.LC_CTYPE, "").upper().replace("-", "").endswith("UTF8")


@dataclass(frozen=True, slots=True)
class Ink:
    """What a terminal can show."""

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
    """Return the lines of the picture of one partition, at most `width` cells wide."""
    width = max(WIDTH_LEAST, width)
    scale = Scale(portrait, width - 1, by_offsets=by_offsets)
    lines = [_title(portrait, name, width, utc=utc)]
    lines += _marks(portrait, scale)
    lines += _boxes(portrait, scale)
    lines += _axes(portrait, scale, utc=utc)
    lines += _damages(portrait, width)
    lines += _set_aside(portrait, width)
    lines += _legend(portrait, width)
    return [[(" ", "plain"), *line] if number else line for number, line in enumerate(lines)]


# ---------------------------------------------------------------- where things stand


class Span(NamedTuple):
    """The cells of a segment, its left border among them: [start, stop)."""

    start: int
    stop: int


class Scale:
    """Which cell a byte or an offset falls into. The last cell of all is the right border."""

    def __init__(self, portrait: Portrait, width: int, *, by_offsets: bool) -> None:
        self.width = width
        self._by_offsets = by_offsets
        self._segments = portrait.segments
        weights = [
            max(0, each.next_offset - each.base_offset if by_offsets else each.size_bytes) for each in self._segments
        ]
        self.spans = _share(weights, width - 1)
        self.is_crowded = any(span.stop - span.start < BOX_LEAST for span in self.spans)
        if self.is_crowded:
            # Borders between all of them would leave no room: one box, and a mark where each begins.
            self.spans = [Span(start + 1, stop + 1) for start, stop in _share_freely(weights, width - 2)]

    def inner(self, number: int) -> Span:
        """Return the cells between the borders of a segment's box."""
        span = self.spans[number]
        return span if self.is_crowded else Span(span.start + 1, span.stop)

    def at_byte(self, number: int, position: int) -> int:
        """Return the cell of a byte of a segment."""
        segment = self._segments[number]
        if self._by_offsets:
            return self.at_offset_in(number, offset_near(segment, position))
        return self._cell(number, position, segment.size_bytes)

    def at_offset_in(self, number: int, offset: int) -> int:
        segment = self._segments[number]
        if self._by_offsets:
            return self._cell(number, offset - segment.base_offset, segment.next_offset - segment.base_offset)
        return self._cell(number, position_near(segment, offset), segment.size_bytes)

    def at_offset(self, offset: int) -> int:
        """Return the cell of an offset; the border, where it begins a segment or ends the log."""
        if not self._segments:
            return 0
        number = max(0, bisect_right([each.base_offset for each in self._segments], offset) - 1)
        segment = self._segments[number]
        if offset <= segment.base_offset:
            return max(0, self.spans[number].start - self.is_crowded)
        if offset >= segment.next_offset:
            return self.width - 1
        return self.at_offset_in(number, offset)

    def _cell(self, number: int, part: int, whole: int) -> int:
        start, stop = self.inner(number)
        if stop <= start:
            return min(start, self.width - 2)
        share = min(max(part, 0), max(whole - 1, 0)) / max(whole, 1)
        return min(start + int(share * (stop - start)), stop - 1)


def _share(weights: list[int], cells: int) -> list[Span]:
    """Share cells among boxes by weight, a border and a cell to each at least."""
    if not weights:
        return []
    least = 2
    free = max(0, cells - least * len(weights))
    return _in_turn([least] * len(weights), weights, free) if free else [Span(0, 0)] * len(weights)


def _share_freely(weights: list[int], cells: int) -> list[Span]:
    return _in_turn([0] * len(weights), weights, cells)


def _in_turn(least: list[int], weights: list[int], free: int) -> list[Span]:
    total = sum(weights) or 1
    spans, before, at = [], 0, 0
    for minimum, weight in zip(least, weights, strict=True):
        # By the sums and not one by one, so that what is rounded never adds up.
        given = (before + weight) * free // total - before * free // total
        before += weight
        spans.append(Span(at, at + minimum + given))
        at += minimum + given
    if not sum(weights):
        spans[-1] = Span(spans[-1].start, spans[-1].stop + free)
    return spans


def offset_near(segment: SegmentPortrait, position: int) -> int:
    """Return about which offset stands at a byte: what the index points around it tell."""
    known = [(segment.base_offset, 0), *segment.index_points, (segment.next_offset, max(segment.size_bytes, 1))]
    number = max(0, bisect_right([point[1] for point in known], position) - 1)
    return _between(known, number, position, by=1, wanted=0)


def position_near(segment: SegmentPortrait, offset: int) -> int:
    """Return about where an offset stands."""
    known = [(segment.base_offset, 0), *segment.index_points, (segment.next_offset, segment.size_bytes)]
    number = max(0, bisect_right([point[0] for point in known], offset) - 1)
    return _between(known, number, offset, by=0, wanted=1)


def _between(known: list[tuple[int, int]], number: int, value: int, *, by: int, wanted: int) -> int:
    before = known[number]
    if number + 1 == len(known):
        return before[wanted]
    after = known[number + 1]
    share = (value - before[by]) / max(1, after[by] - before[by])
    return before[wanted] + int(share * (after[wanted] - before[wanted]))


# ---------------------------------------------------------------- what is drawn


def _title(portrait: Portrait, name: str, width: int, *, utc: bool) -> Line:
    segments = portrait.segments
    counts = [segment.record_count for segment in segments]
    parts = [f"{len(segments)} segment{'s' if len(segments) != 1 else ''}"]
    if None not in counts:
        total = sum(count or 0 for count in counts)
        parts.append(f"{amounts.count(total)} record{'s' if total != 1 else ''}")
    parts.append(amounts.size(portrait.size_bytes))
    times = [segment.first_timestamp_ms for segment in segments] + [segment.max_timestamp_ms for segment in segments]
    known = [time for time in times if time is not None and time >= 0]
    if known:
        oldest, newest = (amounts.moment(time, utc=utc) or "" for time in (min(known), max(known)))
        parts.append(f"{oldest[:19]} to {newest[:19]}{newest[23:]}")
    while parts and len(name) + 2 + len(text := ", ".join(parts)) > width:
        parts.pop()
    text = ", ".join(parts)
    return [(neutral(name), "bold"), (f"  {text}" if text else "", "plain")]


def _marks(portrait: Portrait, scale: Scale) -> Iterator[Line]:
    """Yield the marks of the log's own offsets, with an arrow above the cell of each."""
    if not portrait.segments:
        return
    cells: dict[int, list[str]] = {}
    for word, offset in (
        ("LS", portrait.log_start_offset),
        ("RP", portrait.recovery_point),
        ("HW", portrait.high_watermark),
        ("LE", portrait.log_end_offset),
    ):
        cells.setdefault(scale.at_offset(offset), []).append(word)
    rows: list[list[str]] = []
    for cell, words in sorted(cells.items()):
        text = " ".join(words)
        is_left = cell >= len(text) + 1 and cell > scale.width // 2
        start = cell - len(text) - 1 if is_left else cell
        label = f"{text} ▼" if is_left else f"▼ {text}"
        for row in rows:
            if all(cell == " " for cell in row[max(0, start - 1) : start + len(label) + 1]):
                break
        else:
            row = [" "] * (scale.width + 16)
            rows.append(row)
        row[start : start + len(label)] = label
    for row in rows:
        yield [("".join(row).rstrip(), "mark")]


def _boxes(portrait: Portrait, scale: Scale) -> Iterator[Line]:
    if not portrait.segments:
        yield [("no segment is there", "damage")]
        return
    starts = {span.start for span in scale.spans} if not scale.is_crowded else {0}
    marks = {span.start for span in scale.spans if span.start < scale.width - 1}
    yield [(_border(scale.width, marks, "┌", "┬", "┐"), "dim")]
    yield list(_joined(_bar(portrait, scale, starts)))
    yield list(_joined(_points(portrait, scale, starts)))
    yield [(_border(scale.width, starts, "└", "┴", "┘"), "dim")]


def _border(width: int, marks: set[int], left: str, between: str, right: str) -> str:
    cells = ["─"] * width
    for mark in marks:
        cells[mark] = between
    cells[0], cells[-1] = left, right
    return "".join(cells)


def _joined(cells: Iterable[tuple[str, Style]]) -> Iterator[tuple[str, Style]]:
    """Put neighbours of one style together."""
    text, before = "", None
    for character, style in cells:
        if style != before and before is not None:
            yield text, before
            text = ""
        text, before = text + character, style
    if before is not None:
        yield text, before


def _bar(portrait: Portrait, scale: Scale, starts: set[int]) -> list[tuple[str, Style]]:
    cells: list[tuple[str, Style]] = [(" ", "plain")] * scale.width
    for number, segment in enumerate(portrait.segments):
        fill = _fill(segment)
        start, stop = scale.inner(number)
        if segment.size_bytes:
            cells[start:stop] = [fill] * (stop - start)
        if segment.base_offset < portrait.log_start_offset:
            gone = scale.at_offset_in(number, min(portrait.log_start_offset, segment.next_offset))
            cells[start:gone] = [(_DELETED, "dim")] * (gone - start)
        if 0 < segment.clean_offset < segment.next_offset:
            dirty = scale.at_offset_in(number, segment.clean_offset)
            cells[dirty:stop] = [(_SEALED, "sealed")] * (stop - dirty)
        for damage in segment.damages:
            first = scale.at_byte(number, damage.start)
            last = scale.at_byte(number, max(damage.start, damage.stop - 1))
            cells[first : last + 1] = [(_DAMAGED, "damage")] * (last + 1 - first)
    bases = {segment.base_offset: number for number, segment in enumerate(portrait.segments)}
    for finding in portrait.findings:
        if finding.severity is Severity.ERROR and finding.path.endswith(".log") and finding.position is not None:
            place = bases.get(finding.segment if finding.segment is not None else -1)
            if place is not None:
                cells[scale.at_byte(place, finding.position)] = (_DAMAGED, "damage")
    for cell in (*starts, scale.width - 1):
        cells[cell] = ("│", "dim")
    return cells


def _fill(segment: SegmentPortrait) -> tuple[str, Style]:
    if segment.is_active:
        return _ACTIVE, "active"
    return (_COMPACTED, "compacted") if segment.clean_offset else (_SEALED, "sealed")


def _points(portrait: Portrait, scale: Scale, starts: set[int]) -> list[tuple[str, Style]]:
    counts = [0] * scale.width
    for number, segment in enumerate(portrait.segments):
        for _, position in segment.index_points:
            counts[scale.at_byte(number, position)] += 1
    cells: list[tuple[str, Style]] = [(" " if not count else "·" if count == 1 else ":", "plain") for count in counts]
    for cell in (*starts, scale.width - 1):
        cells[cell] = ("│", "dim")
    return cells


def _axes(portrait: Portrait, scale: Scale, *, utc: bool) -> Iterator[Line]:
    """Yield the offsets and the times at which segments begin, as many as have room, and the last of all."""
    segments = portrait.segments
    if not segments:
        return
    places = [max(0, span.start - scale.is_crowded) for span in scale.spans]
    offsets = [str(segment.base_offset) for segment in segments]
    yield [(_axis(scale.width, places, offsets, str(portrait.log_end_offset)), "plain")]
    begins = [segment.first_timestamp_ms for segment in segments]
    ends = [segment.max_timestamp_ms for segment in segments]
    known = [time for time in (*begins, *ends) if time is not None and time >= 0]
    if known:
        shape = _time_shape(max(known) - min(known))
        times = [_time(time, shape, utc=utc) for time in begins]
        yield [(_axis(scale.width, places, times, _time(ends[-1], shape, utc=utc)), "dim")]


def _axis(width: int, places: list[int], labels: list[str], last: str) -> str:
    """Return a line of labels, none over another; the first and the last come before those between."""
    cells = [" "] * width
    ends_at = max(0, width - len(last))
    cells[ends_at:] = last[: width - ends_at]
    for place, label in zip(places, labels, strict=True):
        stop = place + len(label)
        before = cells[place - 1] if place else " "
        if label and stop < ends_at and before == " " and all(cell == " " for cell in cells[place : stop + 1]):
            cells[place:stop] = label
    return "".join(cells)


def _time_shape(span_ms: int) -> str:
    if span_ms < 600_000:
        return "%H:%M:%S"
    if span_ms < _DAY_MS:
        return "%H:%M"
    return "%m-%d %H:%M" if span_ms < 14 * _DAY_MS else "%Y-%m-%d"


def _time(timestamp_ms: int | None, shape: str, *, utc: bool) -> str:
    if timestamp_ms is None or timestamp_ms < 0:
        return ""
    try:
        at = datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC)
        return (at if utc else at.astimezone()).strftime(shape)
    except (OverflowError, ValueError, OSError):
        return ""


def _damages(portrait: Portrait, width: int) -> Iterator[Line]:
    found = [(segment, damage) for segment in portrait.segments for damage in segment.damages]
    for segment, damage in found[:DAMAGES_SHOWN]:
        yield [(text, "damage") for text in _fitting(f"✗ {segment.base_offset:020d}.log {_range(damage)}", width)]
    told = {(segment.base_offset, damage.start) for segment, damage in found}
    others = [
        finding
        for finding in portrait.findings
        if finding.severity is Severity.ERROR and (finding.segment, finding.position) not in told
    ]
    for finding in others[:DAMAGES_SHOWN]:
        file = finding.path.rpartition("/")[2]
        at = f" byte {amounts.count(finding.position)}" if finding.position is not None else ""
        text = neutral(f"✗ {file}{at}: {finding.kind.value}: {finding.detail}")
        yield [(part, "damage") for part in _fitting(text, width)]
    more = max(0, len(found) - DAMAGES_SHOWN) + max(0, len(others) - DAMAGES_SHOWN)
    if more:
        yield [(f"✗ and {more} more: seeklog verify tells all", "damage")]


def _range(damage: DamagedBytes) -> str:
    size = amounts.size(damage.stop - damage.start)
    where = f"bytes {amounts.count(damage.start)} to {amounts.count(max(damage.start, damage.stop - 1))} ({size})"
    last = damage.next_offset
    if last is None:
        lost = f"from offset {amounts.count(damage.offset)} on"
    elif last > damage.offset + 1:
        lost = f"offsets {amounts.count(damage.offset)} to {amounts.count(last - 1)}"
    else:
        lost = f"offset {amounts.count(damage.offset)}"
    return f"{where}: {damage.kind}, {lost}"


def _fitting(text: str, width: int) -> list[str]:
    room = width - 1
    return [text if len(text) <= room else f"{text[: room - 3]}..."]


def _set_aside(portrait: Portrait, width: int) -> Iterator[Line]:
    if portrait.torn_files:
        size = amounts.size(sum(portrait.torn_files.values()))
        names = ", ".join(portrait.torn_files)
        yield [(text, "dim") for text in _fitting(f"set aside: {size} in {neutral(names)}", width)]


def _legend(portrait: Portrait, width: int) -> Iterator[Line]:
    shown: list[tuple[str, Style]] = []
    if any(not each.is_active and not each.clean_offset for each in portrait.segments):
        shown.append((f"{_SEALED} sealed", "sealed"))
    if any(each.clean_offset for each in portrait.segments):
        shown.append((f"{_COMPACTED} compacted", "compacted"))
    shown.append((f"{_ACTIVE} active", "active"))
    if any(each.base_offset < portrait.log_start_offset for each in portrait.segments):
        shown.append((f"{_DELETED} deleted", "dim"))
    if any(each.severity is Severity.ERROR for each in portrait.findings):
        shown.append((f"{_DAMAGED} damaged", "damage"))
    shown.append(("· index", "plain"))
    line: Line = []
    used = 0
    for text, style in shown:
        if used + len(text) + 2 > width - 1:
            yield line
            line, used = [], 0
        line += [(text, style), ("  ", "plain")]
        used += len(text) + 2
    if line:
        yield line
