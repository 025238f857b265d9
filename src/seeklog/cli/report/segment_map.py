"""The map of a partition: its segments in a row, as wide as their bytes, and what lies where in them.

The picture is stretched to the width of its place, so it has no text: names stand beside it, in HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from seeklog.cli.report.facts import PartitionFacts, SegmentFacts
from seeklog.cli.report.markup import Markup, joined, lines_of, tag
from seeklog.cli.show import amounts

WIDTH = 1000.0
HEIGHT = 46.0
BAR_TOP, BAR_HEIGHT = 8.0, 22.0
INDEX_TOP, INDEX_HEIGHT = 33.0, 8.0
# Narrower ones are drawn as one with their neighbours: nobody could point at them.
NARROWEST: Final = 3.0
# Index points nearer to each other than this are one line to the eye.
POINT_ROOM: Final = 2.0
MARKS: Final = {"log start": "start", "recovery point": "recovery", "high watermark": "hw", "log end": "leo"}


def draw(partition: PartitionFacts, *, most_bytes: int, utc: bool) -> Markup:
    """Draw a partition on the scale of the largest one of its topic."""
    segments = partition.segments
    ends = list(accumulate((segment.size for segment in segments), initial=0))
    scale = WIDTH / max(1, most_bytes)
    bars = [
        _bar(segments[first:stop], ends[first] * scale, ends[stop] * scale, utc=utc)
        for first, stop in _groups(segments, scale)
    ]
    total = ends[-1]
    return tag(
        "svg",
        tag("rect", x=0.0, y=BAR_TOP, width=WIDTH, height=BAR_HEIGHT, class_="lane"),
        joined(bars),
        _index_points(segments, ends, scale),
        _damage(segments, ends, scale),
        _marks(partition, ends, scale),
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        preserveAspectRatio="none",
        class_="map",
        role="img",
        aria_label=f"partition {partition.partition}: {len(segments)} segments, {amounts.size(total)}",
    )


def _groups(segments: Sequence[SegmentFacts], scale: float) -> list[tuple[int, int]]:
    """Return ranges of segments, each wide enough to be seen; damaged and active ones stand alone."""
    groups: list[tuple[int, int]] = []
    first, width = 0, 0.0
    for number, segment in enumerate(segments):
        alone = segment.is_active or bool(segment.damage)
        if alone and number > first:
            groups.append((first, number))
            first, width = number, 0.0
        width += segment.size * scale
        if alone or width >= NARROWEST:
            groups.append((first, number + 1))
            first, width = number + 1, 0.0
    if first < len(segments):
        groups.append((first, len(segments)))
    return groups


def _bar(segments: Sequence[SegmentFacts], start: float, end: float, *, utc: bool) -> Markup:
    gap = 1.0 if end - start > NARROWEST else 0.0
    kinds = ["bar"]
    if segments[-1].is_active:
        kinds.append("active")
    elif all(segment.is_sealed for segment in segments):
        kinds.append("sealed")
    if any(segment.damage or segment.problem for segment in segments):
        kinds.append("hurt")
    return tag(
        "rect",
        tag("title", lines_of(_told(segments, utc=utc))),
        x=start,
        y=BAR_TOP,
        width=max(0.8, end - start - gap),
        height=BAR_HEIGHT,
        class_=" ".join(kinds),
    )


def _told(segments: Sequence[SegmentFacts], *, utc: bool) -> list[str]:
    first, last = segments[0], segments[-1]
    size = sum(segment.size for segment in segments)
    records = sum(segment.records for segment in segments)
    state = "active" if last.is_active else "sealed" if all(each.is_sealed for each in segments) else "not sealed"
    named = f"segment {first.base_offset}" if len(segments) == 1 else f"{len(segments)} segments"
    lines = [
        f"{named} ({state})",
        f"offsets {first.base_offset:,} to {last.next_offset - 1:,}" if size else "empty",
        f"{records:,} records in {sum(each.batches for each in segments):,} batches, {amounts.size(size)}",
        f"{sum(each.index_entries for each in segments):,} index entries",
    ]
    firsts = [each.first_ms for each in segments if each.first_ms is not None]
    lasts = [each.last_ms for each in segments if each.last_ms is not None]
    if firsts and lasts:
        lines.append(f"{amounts.moment(min(firsts), utc=utc)} to {amounts.moment(max(lasts), utc=utc)}")
    return (
        lines
        + [f"damage at byte {at:,}" if at >= 0 else "a damaged side file" for each in segments for at in each.damage][
            :5
        ]
    )


def _index_points(segments: Sequence[SegmentFacts], ends: Sequence[int], scale: float) -> Markup:
    places = sorted(
        (start + position) * scale
        for segment, start in zip(segments, ends, strict=False)
        for position in segment.index_positions
    )
    kept: list[float] = []
    for place in places:
        if not kept or place - kept[-1] >= POINT_ROOM:
            kept.append(place)
    if not kept:
        return Markup("")
    return tag("path", d="".join(f"M{x:.1f},{INDEX_TOP:g}v{INDEX_HEIGHT:g}" for x in kept), class_="points")


def _damage(segments: Sequence[SegmentFacts], ends: Sequence[int], scale: float) -> Markup:
    return joined(
        tag(
            "rect",
            tag("title", f"damage in segment {segment.base_offset}, byte {at:,}"),
            x=max(0.0, (start + at) * scale - 1.5),
            y=BAR_TOP - 4,
            width=3.0,
            height=BAR_HEIGHT + 8,
            class_="damage",
        )
        for segment, start in zip(segments, ends, strict=False)
        for at in segment.damage
        if at >= 0
    )


def _marks(partition: PartitionFacts, ends: Sequence[int], scale: float) -> Markup:
    lines = []
    for name, kind in MARKS.items():
        place = partition.places.get(name)
        if place is None or not partition.segments:
            continue
        number, position = place
        x = min(WIDTH - 0.5, max(0.5, (ends[max(0, number)] + position) * scale))
        lines.append((x, tag("line", x1=x, x2=x, y1=2.0, y2=HEIGHT - 3, class_=f"edge {kind}")))
    return joined(line for _, line in lines)


def is_crowded(segments: Sequence[SegmentFacts], *, most_bytes: int) -> bool:
    """Tell whether some segments are drawn as one."""
    return any(stop - first > 1 for first, stop in _groups(segments, WIDTH / max(1, most_bytes)))
