"""The map of a partition: its segments to scale in bytes, with index points, damage and the log's offsets.

The SVG is stretched to the width of the page, so its labels are in HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from seeklog.cli.report.facts import PartitionFacts, SegmentFacts, union
from seeklog.cli.report.markup import Markup, safe, tag
from seeklog.cli.show import amounts

WIDTH = 1000.0
HEIGHT = 46.0
BAR_TOP, BAR_HEIGHT = 8.0, 22.0
INDEX_TOP, INDEX_HEIGHT = 33.0, 8.0
# Narrower segments are drawn as one with their neighbours.
MIN_WIDTH: Final = 3.0
# Index points closer than this are drawn as one.
MIN_POINT_DISTANCE: Final = 2.0
MAX_DAMAGES: Final = 5


def draw(partition: PartitionFacts, *, max_bytes: int, utc: bool) -> Markup:
    """Draw a partition to the scale of the largest partition of its topic."""
    segments = partition.segments
    scale = WIDTH / max(1, max_bytes)
    starts = list(accumulate((segment.size for segment in segments), initial=0))
    bars = [
        _bar(segments[first:stop], starts[first] * scale, starts[stop] * scale, utc=utc)
        for first, stop in _groups(segments, scale)
    ]
    located = list(zip(segments, starts, strict=False))
    points = sorted((start + at) * scale for segment, start in located for at in segment.index_positions)
    damage = [
        tag(
            "rect",
            tag("title", f"damage in segment {segment.base_offset}, byte {position:,}"),
            x=max(0.0, (start + position) * scale - 1.5),
            y=BAR_TOP - 4,
            width=3.0,
            height=BAR_HEIGHT + 8,
            class_="damage",
        )
        for segment, start in located
        for position in segment.damage
        if position >= 0
    ]
    edges = []
    for kind, (number, position) in partition.marks.items():
        x = min(WIDTH - 0.5, max(0.5, (starts[number] + position) * scale))
        edges.append(tag("line", x1=x, x2=x, y1=2.0, y2=HEIGHT - 3, class_=f"edge {kind}"))
    return tag(
        "svg",
        tag("rect", x=0.0, y=BAR_TOP, width=WIDTH, height=BAR_HEIGHT, class_="lane"),
        bars,
        _index_points(points),
        damage,
        edges,
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        preserveAspectRatio="none",
        class_="map",
        role="img",
        aria_label=(
            f"partition {partition.partition}: {amounts.counted(len(segments), 'segment')}, {amounts.size(starts[-1])}"
        ),
    )


def is_crowded(segments: Sequence[SegmentFacts], *, max_bytes: int) -> bool:
    """Return whether any segments are drawn as one."""
    return any(stop - first > 1 for first, stop in _groups(segments, WIDTH / max(1, max_bytes)))


def _groups(segments: Sequence[SegmentFacts], scale: float) -> list[tuple[int, int]]:
    """Return ranges of segments that are wide enough to see; damaged and active segments are not grouped."""
    groups: list[tuple[int, int]] = []
    first, width = 0, 0.0
    for number, segment in enumerate(segments):
        is_alone = segment.is_active or bool(segment.damage)
        if is_alone and number > first:
            groups.append((first, number))
            first, width = number, 0.0
        width += segment.size * scale
        if is_alone or width >= MIN_WIDTH:
            groups.append((first, number + 1))
            first, width = number + 1, 0.0
    return [*groups, (first, len(segments))] if first < len(segments) else groups


def _bar(segments: Sequence[SegmentFacts], start: float, end: float, *, utc: bool) -> Markup:
    first, last = segments[0], segments[-1]
    state = "active" if last.is_active else "sealed" if all(segment.is_sealed for segment in segments) else "not sealed"
    size = sum(segment.size for segment in segments)
    records, batches = sum(segment.records for segment in segments), sum(segment.batches for segment in segments)
    lines = [
        f"{f'segment {first.base_offset}' if len(segments) == 1 else f'{len(segments)} segments'} ({state})",
        f"offsets {first.base_offset:,} to {last.next_offset - 1:,}" if size else "empty",
        f"{amounts.counted(records, 'record')} in {amounts.counted(batches, 'batch', 'batches')}, {amounts.size(size)}",
        amounts.counted(sum(segment.index_entries for segment in segments), "index entry", "index entries"),
    ]
    if times := union(segment.times for segment in segments):
        lines.append(" to ".join(str(amounts.moment(time, utc=utc)) for time in times))
    damages = [position for segment in segments for position in segment.damage]
    lines += [f"damage at byte {at:,}" if at >= 0 else "a damaged side file" for at in damages[:MAX_DAMAGES]]
    is_damaged = damages or any(segment.problem for segment in segments)
    kinds = ["bar", *([state] if state != "not sealed" else []), *(["damaged"] if is_damaged else [])]
    return tag(
        "rect",
        tag("title", safe(lines, between="\n")),
        x=start,
        y=BAR_TOP,
        width=max(0.8, end - start - (1.0 if end - start > MIN_WIDTH else 0.0)),
        height=BAR_HEIGHT,
        class_=" ".join(kinds),
    )


def _index_points(points: Sequence[float]) -> Markup:
    kept: list[float] = []
    for point in points:
        if not kept or point - kept[-1] >= MIN_POINT_DISTANCE:
            kept.append(point)
    path = "".join(f"M{x:.1f},{INDEX_TOP:g}v{INDEX_HEIGHT:g}" for x in kept)
    return tag("path", d=path, class_="points") if kept else Markup()
