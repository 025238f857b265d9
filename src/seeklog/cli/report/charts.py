"""The plots of the page as SVG, coloured by the page's style sheet."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from seeklog.cli.report import axis
from seeklog.cli.report.facts import SegmentFacts
from seeklog.cli.report.markup import Markup, tag
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral_bytes
from seeklog.record.sketch import Keys, Sizes, Throughput

# About the width of a phone, where text has its nominal size.
WIDTH, HEIGHT = 360.0, 190.0
LEFT, RIGHT, TOP, FLOOR = 46.0, WIDTH - 10.0, 10.0, HEIGHT - 24.0
ROW = 19.0
CHARACTER: Final = 6.0
MAX_BARS: Final = 90
MAX_BAR_WIDTH: Final = 48.0
# Up to 1 % of the records are omitted from a plot over time if that widens the rest at least four times.
MAX_STRAYS: Final = 0.01
MIN_STRETCH: Final = 4
LABEL_CHARACTERS: Final = 20
TITLE_CHARACTERS: Final = 200
_LATE_MS: Final = (10, 100, axis.SECOND, 10 * axis.SECOND, axis.MINUTE, 10 * axis.MINUTE, axis.HOUR, axis.DAY)
_LATE_NAMES: Final = ("10 ms", "0.1 s", "1 s", "10 s", "1 min", "10 min", "1 h", "1 d")

Names = Iterable[tuple[float, str]]


def picture(*content: object, label: str, height: float = HEIGHT) -> Markup:
    """Return an SVG with a label for screen readers."""
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        aria_label=label,
        class_="chart",
        preserveAspectRatio="xMinYMin meet",
    )


class Bar(NamedTuple):
    """A bar in the slot that starts at a value of the axis."""

    at: float
    amount: float
    title: str
    tone: str


class Frame:
    """A grid of amounts over slots from `low` to `high`, with an axis."""

    def __init__(
        self, low: float, high: float, ticks: Sequence[float], text: Callable[[float], str], *, slot: float = 1.0
    ) -> None:
        self.across = axis.Scale(low, high, LEFT, RIGHT)
        self.down = axis.Scale(0, ticks[-1], FLOOR, TOP)
        self._slot = slot
        self._grid = [
            [self.rule(tick, "grid"), tag("text", text(tick), x=LEFT - 5, y=self.down(tick) + 4, class_="tick end")]
            for tick in ticks
        ]

    def rule(self, amount: float, kind: str) -> Markup:
        """Return a horizontal line at an amount."""
        return tag("line", x1=LEFT, x2=RIGHT, y1=self.down(amount), y2=self.down(amount), class_=kind)

    def bars(self, bars: Iterable[Bar], *, gap: float = 1.0, min_height: float = 1.0) -> list[Markup]:
        """Return bars, centred in their slots."""
        room = self.across(self.across.low + self._slot) - LEFT
        gap = max(min(gap, room * 0.2), room - MAX_BAR_WIDTH)
        drawn = []
        for bar in bars:
            height = max(min_height, FLOOR - self.down(bar.amount))
            shape = {"x": self.across(bar.at) + gap / 2, "y": FLOOR - height, "width": room - gap, "height": height}
            drawn.append(tag("rect", tag("title", bar.title), **shape, class_=bar.tone))
        return drawn

    def picture(self, marks: object, names: Names, *, label: str) -> Markup:
        """Return the grid with marks, and names below the axis."""
        texts = [tag("text", name, x=_middle(x, name), y=HEIGHT - 7, class_="tick middle") for x, name in names]
        return picture(self._grid, marks, self.rule(0, "axis"), texts, label=label)


def _middle(x: float, text: str) -> float:
    """Return x, moved so that text centred there does not cross the edge."""
    half = len(text) * CHARACTER / 2
    return min(max(x, half + 1), WIDTH - half - 1)


def _apart(names: Names) -> Names:
    """Omit names that would touch the previous one."""
    edge = -math.inf
    for x, name in names:
        middle, half = _middle(x, name), len(name) * CHARACTER / 2
        if middle - half > edge + 4:
            yield x, name
            edge = middle + half


# ---------------------------------------------------------------- over time


class Bin(NamedTuple):
    """The records of an interval."""

    start_ms: int
    records: int
    size: int


class Bins(NamedTuple):
    """Intervals of equal width, including empty ones."""

    width_ms: int
    bins: list[Bin]
    outside: int
    """The number of records in no bin, because their times are far from all others."""


def bins_of(throughput: Throughput) -> Bins:
    """Divide the time span of the records, without strays, into bins."""
    buckets = sorted(throughput.records.items())
    if not buckets:
        return Bins(throughput.bucket_ms, [], 0)
    kept = _without_strays(buckets)
    first, last = kept[0][0], kept[-1][0]
    step = (last - first) // MAX_BARS + 1
    records, sizes = Counter[int](), Counter[int]()
    for bucket, count in kept:
        records[(bucket - first) // step] += count
        sizes[(bucket - first) // step] += throughput.size[bucket]
    width_ms, begin = step * throughput.bucket_ms, first * throughput.bucket_ms
    bins = [
        Bin(begin + number * width_ms, records[number], sizes[number]) for number in range((last - first) // step + 1)
    ]
    return Bins(width_ms, bins, sum(throughput.records.values()) - records.total())


def _without_strays(buckets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Omit a few records that are far from the others, if they take most of the time span."""
    before = list(accumulate(count for _, count in buckets))
    allowed = before[-1] * MAX_STRAYS / 2
    first, last = bisect_right(before, allowed), bisect_left(before, before[-1] - allowed)
    # Records without a gap to the others are kept.
    near = (buckets[last][0] - buckets[first][0]) // 10 + 1
    while first and buckets[first][0] - buckets[first - 1][0] <= near:
        first -= 1
    while last + 1 < len(buckets) and buckets[last + 1][0] - buckets[last][0] <= near:
        last += 1
    kept = buckets[first : last + 1]
    is_wider = (kept[-1][0] - kept[0][0] + 1) * MIN_STRETCH <= buckets[-1][0] - buckets[0][0] + 1
    return kept if is_wider else buckets


def over_time(found: Bins, *, of_bytes: bool, utc: bool) -> Markup:
    """Draw the records or the bytes of each bin."""
    text, tone = (axis.short_size, "b") if of_bytes else (axis.short_count, "a")
    counts = [(part.start_ms, part.size if of_bytes else part.records) for part in found.bins]
    maximum = max(count for _, count in counts)
    begin, end = counts[0][0], counts[-1][0] + found.width_ms
    frame = Frame(begin, end, (axis.byte_ticks if of_bytes else axis.count_ticks)(maximum), text, slot=found.width_ms)
    bars = [
        Bar(start, count, f"{amounts.moment(start, utc=utc)}: {text(count)}", tone) for start, count in counts if count
    ]
    names: Names = ((frame.across(at), name) for at, name in axis.time_ticks(begin, end, utc=utc))
    if len(counts) == 1:
        names = [(frame.across((begin + end) / 2), amounts.moment(begin, utc=utc) or "")]
    label = "bytes over time" if of_bytes else "records over time"
    return frame.picture(frame.bars(bars, min_height=0.0), _apart(names), label=label)


# ---------------------------------------------------------------- sizes and lateness


def histogram(sizes: Sizes, *, label: str, tone: str) -> Markup:
    """Draw a histogram of sizes; each class is a factor of the square root of two."""
    classes: Counter[int] = Counter()
    for size, count in sizes.by_class.items():
        classes[math.floor(2 * math.log2(size) + 1e-9) if size > 0 else 0] += count
    first, last = min(classes), max(classes)
    if last - first < 8:  # keeps a single bar narrow
        first, last = max(0, first - 4), last + 4
    frame = Frame(first, last + 1, axis.count_ticks(max(classes.values())), axis.short_count)
    bars = []
    for number, count in sorted(classes.items()):
        low, high = amounts.size(2 ** (number / 2)), amounts.size(2 ** ((number + 1) / 2))
        bars.append(Bar(number, count, f"{low} to {high}: {count:,} ({count / sizes.count:.1%})", tone))
    step = 2 * max(1, math.ceil((last - first) / 2 / 5))
    names = [(frame.across(at), axis.short_size(2 ** (at // 2))) for at in range(first + first % 2, last + 2, step)]
    return frame.picture(frame.bars(bars), names, label=label)


def lateness(late: Sizes) -> Markup:
    """Draw a histogram of lateness."""
    counts = [0] * (len(_LATE_MS) + 1)
    for size, count in late.by_class.items():
        counts[bisect_right(_LATE_MS, size)] += count
    frame = Frame(0, len(counts), axis.count_ticks(max(counts)), axis.short_count)
    edges = ["0", *_LATE_NAMES]
    kinds = [*(f"{low} to {high}" for low, high in pairwise(edges)), "over a day"]
    bars = [Bar(at, count, f"{kinds[at]}: {count:,}", "d") for at, count in enumerate(counts) if count]
    named = [at for at in range(1, len(edges)) if at % 2 or at == len(edges) - 1]
    names = [(frame.across(at), edges[at]) for at in named]
    return frame.picture(frame.bars(bars, gap=2.0), names, label="how late records are")


# ---------------------------------------------------------------- keys


def key_bars(keys: Keys) -> Markup:
    """Draw the ten most frequent keys and their shares of the records."""
    top = keys.most_frequent(10)
    rows = []
    for number, (key, count) in enumerate(top):
        name = neutral_bytes(key[:TITLE_CHARACTERS]) or "(empty)"
        label = name if len(name) <= LABEL_CHARACTERS else name[: LABEL_CHARACTERS - 1] + "…"
        y = number * ROW
        rows.append(
            tag(
                "g",
                tag("title", f"{name}: {amounts.counted(count, 'record')}"),
                tag("text", label, x=0, y=y + 14, class_="label"),
                tag("rect", x=150, y=y + 4, width=max(1.0, 160 * count / top[0][1]), height=ROW - 7, class_="a"),
                tag("text", percent(count / keys.count), x=WIDTH - 1, y=y + 14, class_="tick end"),
            )
        )
    return picture(rows, label="the most frequent keys", height=ROW * len(top) + 2)


def percent(share: float) -> str:
    """Return a percentage with at least one digit that is not zero."""
    return f"{share:.1%}" if share >= 0.001 else f"{share * 100:.1g}%"


def key_curve(keys: Keys) -> Markup:
    """Draw the cumulative share of the records by key, in the order of frequency."""
    shares = [total / keys.count for total in accumulate(sorted(keys.counters.values(), reverse=True))]
    decades = math.log10(len(shares))
    frame = Frame(0, max(math.log10(2), decades), [0, 0.25, 0.5, 0.75, 1], lambda share: f"{share:.0%}")
    ranks = sorted({round(10 ** (step / 40)) for step in range(int(40 * decades) + 1)} | {1, len(shares)})
    points = [(frame.across(math.log10(rank)), frame.down(shares[rank - 1]), rank) for rank in ranks]
    line = [f"{x:.1f},{y:.1f}" for x, y, _ in points]
    floor = f"{FLOOR:g}"
    dots = [
        tag(
            "circle",
            tag("title", f"{amounts.counted(rank, 'key')}: {shares[rank - 1]:.1%}"),
            cx=x,
            cy=y,
            r=2.5 if len(points) < 40 else 1.5,
            class_="a",
        )
        for x, y, rank in points
    ]
    marks = [
        tag("path", d=f"M{LEFT:g},{floor} L{' L'.join(line)} L{points[-1][0]:.1f},{floor} Z", class_="area"),
        tag("polyline", points=" ".join(line), class_="line"),
        dots,
    ]
    names = [
        (frame.across(power), axis.short_count(10.0**power) if power else "1 key") for power in range(int(decades) + 1)
    ]
    return frame.picture(marks, names, label="share of the records that the most frequent keys have")


# ---------------------------------------------------------------- compression


def ratios(segments: Sequence[SegmentFacts], *, tones: dict[str, str]) -> Markup:
    """Draw the compression ratios of segments in order; neighbours may share a bar."""
    step = -(-len(segments) // MAX_BARS)
    groups = [segments[at : at + step] for at in range(0, len(segments), step)]
    values = [
        sum(segment.raw_bytes for segment in group) / sum(segment.codecs.total() for segment in group)
        for group in groups
    ]
    frame = Frame(0, len(groups), axis.round_ticks(max(1.0, *values)), lambda tick: f"{tick:g}:1" if tick else "0")
    bars = []
    for number, (group, value) in enumerate(zip(groups, values, strict=True)):
        name = f"segment {group[0].base_offset:,}" if len(group) == 1 else f"{len(group)} segments"
        codec = group[0].codecs.most_common(1)[0][0]
        bars.append(Bar(number, value, f"{name}: {value:.2f}:1, {codec}", tones[codec]))
    names = [((LEFT + WIDTH) / 2, f"{amounts.counted(len(segments), 'segment')}, in order")]
    return frame.picture([frame.bars(bars), frame.rule(1, "mark")], names, label="compression ratio by segment")
