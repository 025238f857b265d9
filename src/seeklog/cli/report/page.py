"""The HTML page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final

import seeklog
from seeklog.cli.report import charts, segment_map
from seeklog.cli.report.axis import short_count
from seeklog.cli.report.facts import PartitionFacts, StoreFacts, TopicFacts, union
from seeklog.cli.report.markup import Markup, tag
from seeklog.cli.show import amounts
from seeklog.errors import counted
from seeklog.log.check import Severity
from seeklog.record.sketch import Sizes

# The first line of every page. Only a file with this line is replaced.
FIRST_LINE: Final = "<!doctype html><!-- a report of seeklog -->\n"
MAX_LANES: Final = 32
MAX_FINDINGS: Final = 20
MAX_GROUP_ROWS: Final = 200
_TONES: Final = {"zstd": "a", "lz4": "b", "gzip": "c", "snappy": "d", "none": "e"}
_NOTHING_OUTSIDE: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_OFFSET: Final = re.compile(r"(Z|[+-]\d\d:\d\d)\Z")
_NUMBERS: Final = frozenset(
    {"partitions", "segments", "records", "size", "partition", "committed", "high watermark", "lag"}
)
_LEGEND: Final = (
    ("sealed", "sealed"),
    ("plain", "not sealed"),
    ("active", "active"),
    ("thin points", "index points"),
    ("thin start", "log start"),
    ("thin recovery", "recovery point"),
    ("thin hw", "high watermark"),
    ("thin leo", "log end"),
    ("thin damage", "damage"),
)


def page(facts: StoreFacts, *, utc: bool) -> str:
    """Return the page, which loads nothing else."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_NOTHING_OUTSIDE),
        tag("title", f"seeklog: {facts.location}"),
        tag("style", _part("page.css")),
    )
    times = [facts.made_at_ms, *(union(topic.times for topic in facts.topics) or ())]
    created = f"Created {amounts.moment(facts.made_at_ms, utc=utc)}. Times are {_zone(times, utc=utc)}."
    footer = f"Created by seeklog {seeklog.__version__}. The page is self-contained and loads nothing."
    body = tag(
        "body",
        tag(
            "header",
            tag("div", tag("h1", facts.location), _soft(created)),
            tag("button", "Dark", id="theme", type="button", hidden="hidden"),
        ),
        _tiles(facts),
        _problems(facts),
        _topics_table(facts, utc=utc),
        [_topic(topic, is_checked=facts.is_checked, utc=utc) for topic in facts.topics],
        _groups(facts),
        tag("footer", footer),
        tag("script", _part("page.js")),
    )
    return FIRST_LINE + tag("html", head, body, lang="en") + "\n"


def _part(name: str) -> Markup:
    return Markup(files(__package__).joinpath(name).read_text())


def _zone(times: Iterable[int], *, utc: bool) -> str:
    """Return the zone of these times, as they are printed."""
    if utc:
        return "in UTC"
    moments = filter(None, [amounts.moment(time, utc=False) for time in times])
    offsets = sorted({match[0] for moment in moments if (match := _OFFSET.search(moment))})
    if offsets == ["Z"]:
        return "in UTC, the local time zone"
    return "local, " + " or ".join(f"UTC{offset.replace('Z', '+00:00')}" for offset in offsets)


def _soft(text: str) -> Markup:
    return tag("p", text, class_="soft")


def _tiles(facts: StoreFacts) -> Markup:
    topics = facts.topics
    partitions = [partition for topic in topics for partition in topic.partitions]
    damages = sum(finding.severity is Severity.ERROR for topic in topics for finding in topic.findings)
    tiles = [
        _tile(f"{count:,}" if count < 10_000_000 else short_count(count), name if count == 1 else f"{name}s")
        for count, name in (
            (len(topics) + len(facts.left_out), "topic"),
            (len(partitions), "partition"),
            (sum(len(partition.segments) for partition in partitions), "segment"),
            (sum(partition.records for partition in partitions), "record"),
        )
    ]
    tiles.append(_tile(amounts.size(sum(partition.size for partition in partitions)), "on disk"))
    if times := union(topic.times for topic in topics):
        tiles.append(_tile(amounts.span((times[1] - times[0]) / 1000), "first to last record"))
    found = f"{damages:,}" if damages else "none"
    tiles.append(
        _tile(found if facts.is_checked else "unchecked", "damaged ranges", is_bad=facts.is_checked and damages > 0)
    )
    return tag("div", tiles, class_="tiles")


def _tile(figure: str, name: str, *, is_bad: bool = False) -> Markup:
    return tag("div", tag("b", figure), tag("span", name), class_="tile bad" if is_bad else "tile")


def _problems(facts: StoreFacts) -> list[Markup]:
    lines = [*facts.problems]
    if facts.left_out:
        names = ", ".join(facts.left_out[:10]) + (" …" if len(facts.left_out) > 10 else "")
        lines.append(
            f"{counted(len(facts.left_out), 'smaller topic is', 'smaller topics are')} not shown ({names}); "
            "to see one: seeklog report DIR TOPIC"
        )
    return [_soft(line) for line in lines]


# ---------------------------------------------------------------- tables


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    kinds = ["n" if title in _NUMBERS else None for title in titles]

    def line(name: str, cells: Sequence[object]) -> Markup:
        parts = zip(cells, kinds, titles, strict=True)
        # On a narrow page each cell shows its title.
        return tag("tr", [tag(name, cell, class_=kind, data_title=title) for cell, kind, title in parts])

    body = tag("tbody", [line("td", row) for row in rows])
    return tag("div", tag("table", tag("thead", line("th", titles)), body), class_="wide")


def _topics_table(facts: StoreFacts, *, utc: bool) -> Markup:
    if not facts.topics:
        return _soft("There are no topics yet. Create one with: seeklog create DIR TOPIC")
    rows = [
        (
            tag("a", topic.name, href=f"#topic-{topic.name}"),
            f"{len(topic.partitions):,}",
            f"{len(topic.segments):,}",
            f"{topic.records:,}",
            amounts.size(topic.size),
            *(amounts.moment(time, utc=utc) or "" for time in topic.times or (None, None)),
        )
        for topic in facts.topics
    ]
    table = _table(("topic", "partitions", "segments", "records", "size", "first", "newest"), rows)
    return tag("section", tag("h2", "Topics"), tag("div", table, class_="card"))


def _groups(facts: StoreFacts) -> Markup:
    if not facts.lags:
        return Markup()
    rows = [
        (
            group,
            lag.topic,
            lag.partition,
            amounts.count(lag.committed),
            f"{lag.high_watermark:,}",
            f"{lag.lag:,}",
            lag.member_id or "",
        )
        for group, lags in facts.lags.items()
        for lag in lags
    ]
    titles = ("group", "topic", "partition", "committed", "high watermark", "lag", "read by")
    more = len(rows) - MAX_GROUP_ROWS
    note = _soft(f"{counted(more, 'more row')}; run: seeklog lag") if more > 0 else ""
    return tag(
        "section",
        tag("h2", "Groups"),
        tag("div", _table(titles, rows[:MAX_GROUP_ROWS]), note, class_="card"),
        id="groups",
    )


# ---------------------------------------------------------------- one topic


def _topic(topic: TopicFacts, *, is_checked: bool, utc: bool) -> Markup:
    parts = [tag("h2", topic.name)]
    if topic.configured:
        parts.append(_soft(" · ".join(f"{name}={value}" for name, value in topic.configured.items())))
    parts.append(_maps(topic, is_checked=is_checked, utc=utc))
    if topic.records_seen:
        parts.append(tag("div", _cards(topic, utc=utc), class_="cards"))
    else:
        parts.append(_soft("No records yet."))
    if topic.is_sampled and topic.records_read:
        parts.append(
            _soft(
                f"Sizes, keys and disorder are sampled: {topic.records_read:,} of "
                f"{counted(topic.records_seen, 'record')}, in runs spread evenly over the topic. Everything else "
                "covers all records."
            )
        )
    return tag("section", parts, id=f"topic-{topic.name}")


def _maps(topic: TopicFacts, *, is_checked: bool, utc: bool) -> Markup:
    max_bytes = max((partition.size for partition in topic.partitions), default=0)
    drawn = topic.partitions[:MAX_LANES]
    notes = []
    if len(topic.partitions) > MAX_LANES:
        notes.append(
            f"{counted(len(topic.partitions) - MAX_LANES, 'more partition is', 'more partitions are')} not drawn; "
            "the plots below include all."
        )
    if any(segment_map.is_crowded(partition.segments, max_bytes=max_bytes) for partition in drawn):
        notes.append("Small neighbouring segments are drawn as one.")
    if not is_checked:
        notes.append("Checksums were not verified.")
    return tag(
        "div",
        tag("h3", "Segments, to scale in bytes"),
        [
            [_lane_name(partition), segment_map.draw(partition, max_bytes=max_bytes, utc=utc), _findings(partition)]
            for partition in drawn
        ],
        tag("div", [tag("span", tag("i", class_=kind), name) for kind, name in _LEGEND], class_="legend"),
        [tag("p", note, class_="caption") for note in notes],
        class_="card",
    )


def _lane_name(partition: PartitionFacts) -> Markup:
    facts = [
        amounts.counted(len(partition.segments), "segment"),
        amounts.size(partition.size),
        f"start {partition.log_start_offset:,}",
        f"recovery point {partition.recovery_point:,}",
        f"high watermark {partition.high_watermark:,}",
        f"end {partition.log_end_offset:,}",
    ]
    if partition.needs_recovery:
        facts.append("not closed cleanly, or open for writing")
    spans = [tag("span", fact, class_="soft") for fact in facts]
    return tag("div", tag("b", f"partition {partition.partition}"), spans, class_="lane-name")


def _findings(partition: PartitionFacts) -> Markup:
    lines = []
    for finding in partition.findings:
        where = "" if finding.position is None else f", byte {finding.position:,}"
        file = finding.path.rpartition("/")[2]
        lines.append(f"{finding.severity} ({finding.kind}): {file}{where}: {finding.detail}")
    problems = [] if partition.findings else [segment.problem for segment in partition.segments]
    lines += filter(None, [partition.problem, *problems])
    more = len(lines) - MAX_FINDINGS
    if more > 0:
        lines[MAX_FINDINGS:] = [f"and {more:,} more; run: seeklog verify"]
    return tag("ul", [tag("li", line) for line in lines], class_="findings") if lines else Markup()


# ---------------------------------------------------------------- the plots of a topic


def _cards(topic: TopicFacts, *, utc: bool) -> list[Markup]:
    return [
        *_throughput(topic, utc=utc),
        _sizes("Record sizes (key and value)", topic.record_sizes, tone="b"),
        _sizes("Batch sizes, as stored", topic.batch_sizes, tone="c"),
        *_keys(topic),
        _compression(topic),
        _lateness(topic),
    ]


def _card(kind: str, title: str, caption: str, picture: Markup | None = None) -> Markup:
    """Return a plot with its title and caption, or only a note if there is nothing to plot."""
    return tag(
        "div",
        tag("h3", title),
        picture or "",
        tag("p", caption, class_="caption"),
        class_="card" if picture else "card note",
        data_plot=kind,
    )


def _throughput(topic: TopicFacts, *, utc: bool) -> list[Markup]:
    # From all records if possible: headers hold only the first and the last time, and one wrong clock spoils both.
    found = charts.bins_of(topic.stored if topic.is_sampled else topic.read)
    if not found.bins:
        return [_card("records-over-time", "Throughput", "The records have no timestamps.")]
    step, peak = "All records have the same time.", ""
    if len(found.bins) > 1:
        busiest = max(found.bins, key=lambda part: part.records)
        step = f"Each bar is {amounts.span(found.width_ms / 1000)}."
        peak = f" Peak: {busiest.records:,} from {amounts.moment(busiest.start_ms, utc=utc)}."
    strays = (
        f" Not drawn: {counted(found.outside, 'record')} with a far earlier or later time." if found.outside else ""
    )
    size = amounts.size(sum(part.size for part in found.bins))
    title = "Bytes over time, as stored" if topic.is_sampled else "Bytes over time (keys and values)"
    records, sizes = (charts.over_time(found, of_bytes=of_bytes, utc=utc) for of_bytes in (False, True))
    return [
        _card("records-over-time", "Records over time", f"{step}{peak}{strays}", records),
        _card("bytes-over-time", title, f"{step} Total: {size}.", sizes),
    ]


def _sizes(title: str, sizes: Sizes, *, tone: str) -> Markup:
    kind = title.split()[0].lower() + "-sizes"
    if not sizes.count:
        return _card(kind, title, "No records were read.")
    p50, p95, p99 = (amounts.size(sizes.percentile(share)) for share in (0.5, 0.95, 0.99))
    caption = (
        f"p50 {p50}, p95 {p95}, p99 {p99}; smallest {amounts.size(sizes.least)}, "
        f"largest {amounts.size(sizes.most)}, mean {amounts.size(sizes.total / sizes.count)}."
    )
    return _card(kind, title, caption, charts.histogram(sizes, label=title, tone=tone))


def _keys(topic: TopicFacts) -> list[Markup]:
    keys = topic.keys
    if not keys.count:
        return [_card("keys", "Keys", "No record has a key." if topic.records_read else "No records were read.")]
    extras = [f"{counted(topic.null_keys, 'record')} without a key" if topic.null_keys else "every record has a key"]
    if topic.tombstones:
        extras.append(amounts.counted(topic.tombstones, "tombstone"))
    if keys.error:
        extras.append(f"counts may be up to {keys.error:,} too low")
    different = f"{'' if keys.distinct < 16_384 else 'about '}{amounts.counted(keys.distinct, 'distinct key')}"
    cards = [_card("keys", "Most frequent keys", f"{different}; {', '.join(extras)}.", charts.key_bars(keys))]
    if len(keys.counters) > 1:
        top = sum(count for _, count in keys.most_frequent(10)) / keys.count
        caption = f"Keys by frequency. The ten most frequent keys have {charts.percent(top)} of the records."
        cards.append(_card("key-skew", "Key skew", caption, charts.key_curve(keys)))
    return cards


def _compression(topic: TopicFacts) -> Markup:
    segments = [segment for segment in topic.segments if segment.codecs]
    codecs: Counter[str] = Counter()
    for segment in segments:
        codecs.update(segment.codecs)
    if set(codecs) <= {"none"}:
        note = "Nothing is compressed. To change that, set compression.type of the topic."
        return _card("compression", "Compression", note)
    ratio = sum(segment.raw_bytes for segment in segments) / codecs.total()
    by_codec = ", ".join(f"{codec} {amounts.size(size)}" for codec, size in codecs.most_common())
    caption = f"{ratio:.2f}:1 overall; {by_codec}. Measured on a sample of each segment's batches."
    tones = {codec: _TONES.get(codec, "e") for codec in codecs}
    return _card("compression", "Compression by segment", caption, charts.ratios(segments, tones=tones))


def _lateness(topic: TopicFacts) -> Markup:
    late, read = topic.lateness, topic.records_read
    if not late.count:
        in_order = "No record is older than an earlier record of its partition."
        return _card("lateness", "Time disorder", in_order if read else "No records were read.")
    p50, p95, p99 = (amounts.span(late.percentile(share) / 1000) for share in (0.5, 0.95, 0.99))
    caption = (
        f"{late.count:,} of {counted(read, 'record')} ({late.count / read:.1%}) older than an earlier record of their "
        f"partition: p50 {p50}, p95 {p95}, p99 {p99}, maximum {amounts.span(late.most / 1000)}."
    )
    return _card("lateness", "Time disorder: how late records are", caption, charts.lateness(late))
