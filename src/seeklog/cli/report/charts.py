"""The plots of the page: each a figure's data in, a piece of SVG out. Colours are the page's."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from seeklog.cli.report.axis import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Scale,
    count_ticks,
    round_ticks,
    short_count,
    time_ticks,
)
from seeklog.cli.report.facts import SegmentFacts
from seeklog.cli.report.markup import Markup, joined, tag
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral_bytes
from seeklog.record.sketch import Keys, Sizes, Throughput

# As wide as a card on a phone, so that text is there about as large as it is written here.
WIDTH, HEIGHT = 360.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 10.0, 10.0, 24.0
ROW = 19.0
BARS_MOST: Final = 90
WIDEST: Final = 48.0
# A hundredth of the records may be left out of a plot over time, if that makes it four times as wide.
STRAYS: Final = 0.01
PRESSED: Final = 4
LABEL_CHARACTERS: Final = 20
TITLE_CHARACTERS: Final = 200
_LATENESS: Final = (
    (10, "10 ms"),
    (100, "0.1 s"),
    (SECOND, "1 s"),
    (10 * SECOND, "10 s"),
    (MINUTE, "1 min"),
    (10 * MINUTE, "10 min"),
    (HOUR, "1 h"),
    (DAY, "1 d"),
)


def picture(*content: object, label: str, height: float = HEIGHT) -> Markup:
    """Return an SVG that is as wide as its place, with a name for who cannot see it."""
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        aria_label=label,
        class_="chart",
        preserveAspectRatio="xMinYMin meet",
    )


class Bin(NamedTuple):
    """What came in one stretch of time."""

    start_ms: int
    records: int
    size: int


class Bins(NamedTuple):
    """Stretches of time, all of one width, empty ones too."""

    width_ms: int
    bins: list[Bin]
    outside: int
    """How many records are so far from all others that they would press those into a line; they are in none."""


def bins_of(throughput: Throughput) -> Bins:
    """Cut the time that most records lie in into bins."""
    buckets = sorted(throughput.records.items())
    if not buckets:
        return Bins(throughput.bucket_ms, [], 0)
    kept = _without_strays(buckets)
    first, last = kept[0][0], kept[-1][0]
    step = (last - first) // BARS_MOST + 1
    count = (last - first) // step + 1
    records, sizes = [0] * count, [0] * count
    for bucket, amount in kept:
        records[(bucket - first) // step] += amount
        sizes[(bucket - first) // step] += throughput.size[bucket]
    width_ms = step * throughput.bucket_ms
    begin = first * throughput.bucket_ms
    bins = [Bin(begin + number * width_ms, *each) for number, each in enumerate(zip(records, sizes, strict=True))]
    return Bins(width_ms, bins, sum(throughput.records.values()) - sum(records))


def _without_strays(buckets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Leave out records far before or behind the others, if few of them take most of the time."""
    before = list(accumulate(count for _, count in buckets))
    allowed = before[-1] * STRAYS / 2
    first, last = bisect_right(before, allowed), bisect_left(before, before[-1] - allowed)
    # What is near to those that are kept is none: only what a gap parts from them.
    near = (buckets[last][0] - buckets[first][0]) // 10 + 1
    while first and buckets[first][0] - buckets[first - 1][0] <= near:
        first -= 1
    while last + 1 < len(buckets) and buckets[last + 1][0] - buckets[last][0] <= near:
        last += 1
    kept = buckets[first : last + 1]
    is_pressed = (kept[-1][0] - kept[0][0] + 1) * PRESSED <= buckets[-1][0] - buckets[0][0] + 1
    return kept if is_pressed else buckets


def over_time(
    bins: Sequence[tuple[int, float]],
    *,
    width_ms: int,
    utc: bool,
    label: str,
    ticks: Sequence[float],
    shown: Callable[[float], str],
    tone: str,
) -> Markup:
    """Draw an amount for each bin of time."""
    down = Scale(0, ticks[-1], HEIGHT - BOTTOM, TOP)
    begin, end = bins[0][0], bins[-1][0] + width_ms
    across = Scale(begin, end, LEFT, WIDTH - RIGHT)
    room = across(begin + width_ms) - across(begin)
    gap = max(min(1.0, room * 0.2), room - WIDEST)
    bars = [
        tag(
            "rect",
            tag("title", f"{amounts.moment(start, utc=utc)}: {shown(value)}"),
            x=across(start) + gap / 2,
            y=down(value),
            width=max(0.5, room - gap),
            height=max(0.0, HEIGHT - BOTTOM - down(value)),
            class_=tone,
        )
        for start, value in bins
        if value
    ]
    named = [(across(at), name) for at, name in time_ticks(begin, end, utc=utc)]
    if len(bins) == 1:
        named = [(across(begin) + room / 2, amounts.moment(begin, utc=utc) or "")]
    marks = [
        tag("text", name, x=_inside(x, len(name)), y=HEIGHT - 7, class_="tick middle") for x, name in _apart(named)
    ]
    return picture(_grid(ticks, down, shown), joined(bars), _floor(), joined(marks), label=label)


def _inside(x: float, characters: int) -> float:
    """Return a middle for a text from which it does not reach over the edge; a character is about 6 wide."""
    half = characters * 3.0
    return min(max(x, half + 1), WIDTH - half - 1)


def _apart(named: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    """Leave out names that would touch the one before."""
    kept: list[tuple[float, str]] = []
    edge = -math.inf
    for x, name in named:
        middle = _inside(x, len(name))
        if middle - len(name) * 3.0 > edge + 4:
            kept.append((x, name))
            edge = middle + len(name) * 3.0
    return kept


def _grid(ticks: Sequence[float], down: Scale, shown: Callable[[float], str]) -> Markup:
    return joined(
        joined(
            (
                tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=down(tick), y2=down(tick), class_="grid"),
                tag("text", shown(tick), x=LEFT - 5, y=down(tick) + 4, class_="tick end"),
            )
        )
        for tick in ticks
    )


def _floor() -> Markup:
    return tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM, class_="axis")


def histogram(sizes: Sizes, *, label: str, tone: str) -> Markup:
    """Draw how many things are of which size, by steps of the square root of two."""
    classes: dict[int, int] = {}
    for size, count in sizes.by_class.items():
        classes[_half_octave(size)] = classes.get(_half_octave(size), 0) + count
    first, last = min(classes), max(classes)
    if last - first < 8:  # a bar alone should not be as wide as the picture
        first, last = max(0, first - 4), last + 4
    ticks = count_ticks(max(classes.values()))
    down = Scale(0, ticks[-1], HEIGHT - BOTTOM, TOP)
    across = Scale(first, last + 1, LEFT, WIDTH - RIGHT)
    room = across(first + 1) - across(first)
    bars = [
        tag(
            "rect",
            tag(
                "title",
                f"{amounts.size(2 ** (each / 2))} to {amounts.size(2 ** ((each + 1) / 2))}: "
                f"{count:,} ({count / sizes.count:.1%})",
            ),
            x=across(each) + 0.5,
            y=min(down(count), HEIGHT - BOTTOM - 1),
            width=max(1.0, room - 1),
            height=max(1.0, HEIGHT - BOTTOM - down(count)),
            class_=tone,
        )
        for each, count in sorted(classes.items())
    ]
    step = 2 * max(1, math.ceil((last - first) / 2 / 5))
    marks = [
        tag("text", name, x=_inside(across(each), len(name)), y=HEIGHT - 7, class_="tick middle")
        for each in range(first + first % 2, last + 2, step)
        if (name := _power(each)) and across(each) <= WIDTH - RIGHT + 1
    ]
    return picture(_grid(ticks, down, short_count), joined(bars), _floor(), joined(marks), label=label)


def _half_octave(size: int) -> int:
    return math.floor(2 * math.log2(size) + 1e-9) if size > 0 else 0


def _power(half_octave: int) -> str:
    """Return two to a power as an amount of bytes: 64 B, 2 KB, 16 MB."""
    size = 2 ** (half_octave // 2)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            break
        size //= 1024
    return f"{size} {unit}"


def key_bars(keys: Keys, *, most: int = 10) -> Markup:
    """Draw the most frequent keys with their shares."""
    top = keys.most_frequent(most)
    largest = top[0][1]
    rows = []
    for number, (key, count) in enumerate(top):
        name = neutral_bytes(key[:TITLE_CHARACTERS]) or "(empty)"
        y = number * ROW
        share = percent(count / keys.count)
        rows.append(
            tag(
                "g",
                tag("title", f"{name}: {count:,} records"),
                tag("text", _cut(name), x=0, y=y + 14, class_="label"),
                tag("rect", x=150, y=y + 4, width=max(1.0, 160 * count / largest), height=ROW - 7, class_="a"),
                tag("text", share, x=WIDTH - 1, y=y + 14, class_="tick end"),
            )
        )
    return picture(*rows, label="the most frequent keys", height=ROW * len(top) + 2)


def percent(share: float) -> str:
    """Return a share with a digit that tells something."""
    return f"{share:.1%}" if share >= 0.001 else f"{share * 100:.1g}%"


def _cut(name: str) -> str:
    return name if len(name) <= LABEL_CHARACTERS else name[: LABEL_CHARACTERS - 1] + "…"


def key_curve(keys: Keys) -> Markup:
    """Draw what share of the records the most frequent keys have together."""
    counts = sorted(keys.counters.values(), reverse=True)
    shares = [total / keys.count for total in accumulate(counts)]
    ranks = len(shares)
    across = Scale(0, math.log10(max(2, ranks)), LEFT, WIDTH - RIGHT)
    down = Scale(0, 1, HEIGHT - BOTTOM, TOP)
    wanted = sorted({round(10 ** (step / 40)) for step in range(int(40 * math.log10(ranks)) + 1)} | {1, ranks})
    points = [(across(math.log10(rank)), down(shares[rank - 1]), rank) for rank in wanted if rank <= ranks]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    area = f"M{LEFT:g},{HEIGHT - BOTTOM:g} L{line.replace(' ', ' L')} L{points[-1][0]:.1f},{HEIGHT - BOTTOM:g} Z"
    dots = [
        tag(
            "circle",
            tag("title", f"the first {rank:,}: {shares[rank - 1]:.1%}" if rank > 1 else f"the first: {shares[0]:.1%}"),
            cx=x,
            cy=y,
            r=2.5 if len(points) < 40 else 1.5,
            class_="a",
        )
        for x, y, rank in points
    ]
    marks = [
        tag(
            "text",
            name,
            x=_inside(across(power), len(name)),
            y=HEIGHT - 7,
            class_="tick middle",
        )
        for power in range(int(math.log10(max(1, ranks))) + 1)
        if (name := "1 key" if power == 0 else short_count(10.0**power))
    ]
    return picture(
        _grid([0, 0.25, 0.5, 0.75, 1], down, lambda share: f"{share:.0%}"),
        tag("path", d=area, class_="area"),
        tag("polyline", points=line, class_="line"),
        joined(dots),
        _floor(),
        joined(marks),
        label="what share of the records the most frequent keys have",
    )


def ratios(segments: Sequence[SegmentFacts], *, tones: dict[str, str]) -> Markup:
    """Draw how well each segment is compressed, in the order of partitions and offsets."""
    groups = _neighbours(segments)
    values = [_ratio(group) for group in groups]
    ticks = round_ticks(max(1.0, *values))
    down = Scale(0, ticks[-1], HEIGHT - BOTTOM, TOP)
    across = Scale(0, len(groups), LEFT, WIDTH - RIGHT)
    room = across(1) - across(0)
    width = min(room - min(1.0, room * 0.2), WIDEST)
    bars = []
    for number, (group, value) in enumerate(zip(groups, values, strict=True)):
        which = f"segment {group[0].base_offset:,}" if len(group) == 1 else f"{len(group)} segments"
        bars.append(
            tag(
                "rect",
                tag("title", f"{which}: {value:.2f} to 1, {group[0].codec}"),
                x=across(number + 0.5) - width / 2,
                y=down(value),
                width=width,
                height=max(0.5, HEIGHT - BOTTOM - down(value)),
                class_=tones[group[0].codec],
            )
        )
    one = tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=down(1), y2=down(1), class_="mark")
    name = f"{len(segments):,} segment{'s' if len(segments) > 1 else ''}, in order"
    caption = tag("text", name, x=(LEFT + WIDTH) / 2, y=HEIGHT - 7, class_="tick middle")
    grid = _grid(ticks, down, lambda tick: f"{tick:g}:1" if tick else "0")
    return picture(grid, joined(bars), one, _floor(), caption, label="compression ratio by segment")


def _neighbours(segments: Sequence[SegmentFacts]) -> list[list[SegmentFacts]]:
    each = -(-len(segments) // BARS_MOST)
    return [list(segments[at : at + each]) for at in range(0, len(segments), each)]


def _ratio(segments: Sequence[SegmentFacts]) -> float:
    stored = sum(sum(segment.codecs.values()) for segment in segments)
    return sum(segment.raw_bytes for segment in segments) / stored if stored else 0.0


def lateness(late: Sizes) -> Markup:
    """Draw how many records are how far behind the latest one before them."""
    counts = [0] * (len(_LATENESS) + 1)
    for size, count in late.by_class.items():
        counts[next((at for at, (limit, _) in enumerate(_LATENESS) if size < limit), len(_LATENESS))] += count
    ticks = count_ticks(max(counts))
    down = Scale(0, ticks[-1], HEIGHT - BOTTOM, TOP)
    across = Scale(0, len(counts), LEFT, WIDTH - RIGHT)
    edges = ["0", *(name for _, name in _LATENESS), "more"]
    bars = [
        tag(
            "rect",
            tag(
                "title",
                f"{edges[at]} to {edges[at + 1]}: {count:,}" if at < len(_LATENESS) else f"over a day: {count:,}",
            ),
            x=across(at) + 1,
            y=min(down(count), HEIGHT - BOTTOM - 1),
            width=across(1) - across(0) - 2,
            height=max(1.0, HEIGHT - BOTTOM - down(count)),
            class_="d",
        )
        for at, count in enumerate(counts)
        if count
    ]
    marks = [
        tag("text", name, x=across(at + 1), y=HEIGHT - 7, class_="tick middle")
        for at, (_, name) in enumerate(_LATENESS)
        if at % 2 == 0 or at == len(_LATENESS) - 1
    ]
    return picture(_grid(ticks, down, short_count), joined(bars), _floor(), joined(marks), label="how late records are")
