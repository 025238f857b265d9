"""From facts to the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final

from seeklog.cli.report import charts, segment_map
from seeklog.cli.report.axis import byte_ticks, count_ticks, short_count
from seeklog.cli.report.facts import PartitionFacts, StoreFacts, TopicFacts
from seeklog.cli.report.markup import Markup, joined, tag
from seeklog.cli.show import amounts
from seeklog.groups.description import PartitionLag
from seeklog.log.check import Finding, Severity
from seeklog.record.sketch import Sizes

# What a page begins with, by which a former report is known.
FIRST_LINE: Final = "<!doctype html><!-- a report of seeklog -->\n"
LANES_MOST: Final = 32
FINDINGS_MOST: Final = 20
GROUP_ROWS_MOST: Final = 200
_TONES: Final = {"zstd": "a", "lz4": "b", "gzip": "c", "snappy": "d", "none": "e"}
_NOTHING_OUTSIDE: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(facts: StoreFacts, *, utc: bool) -> str:
    """Return the whole page; it loads nothing."""
    title = f"seeklog: {facts.location}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_NOTHING_OUTSIDE),
        tag("title", title),
        tag("style", _part("page.css")),
    )
    body = tag(
        "body",
        _header(facts, utc=utc),
        _tiles(facts, utc=utc),
        _problems(facts),
        _topics_table(facts, utc=utc),
        *(_topic(topic, is_checked=facts.is_checked, utc=utc) for topic in facts.topics),
        _groups(facts),
        _footer(facts),
        tag("script", _part("page.js")),
    )
    return FIRST_LINE + tag("html", head, body, lang="en") + "\n"


def _part(name: str) -> Markup:
    return Markup(files(__package__).joinpath(name).read_text())


def _header(facts: StoreFacts, *, utc: bool) -> Markup:
    made = amounts.moment(facts.made_at_ms, utc=utc)
    return tag(
        "header",
        tag(
            "div",
            tag("h1", facts.location),
            tag("p", f"As it was on {made}. Times are {'in UTC' if utc else 'local'}.", class_="soft"),
        ),
        tag("button", "Dark", id="theme", type="button", hidden="hidden"),
    )


def _tiles(facts: StoreFacts, *, utc: bool) -> Markup:
    topics = facts.topics
    partitions = [partition for topic in topics for partition in topic.partitions]
    findings = [finding for topic in topics for finding in topic.findings]
    damage = sum(finding.severity is Severity.ERROR for finding in findings)
    firsts = [topic.first_ms for topic in topics if topic.first_ms is not None]
    lasts = [topic.last_ms for topic in topics if topic.last_ms is not None]
    tiles = [
        _counted(len(topics) + len(facts.left_out), "topic"),
        _counted(len(partitions), "partition"),
        _counted(sum(len(partition.segments) for partition in partitions), "segment"),
        _counted(sum(partition.records for partition in partitions), "record"),
        _tile(amounts.size(sum(partition.size for partition in partitions)), "on disk"),
    ]
    if firsts and lasts:
        tiles.append(_tile(amounts.span((max(lasts) - min(firsts)) / 1000), "first to last record"))
    if facts.is_checked:
        tiles.append(_tile(f"{damage:,}" if damage else "none", "damaged places", is_bad=bool(damage)))
    else:
        tiles.append(_tile("unchecked", "damaged places"))
    return tag("div", *tiles, class_="tiles")


def _tile(figure: str, name: str, *, is_bad: bool = False) -> Markup:
    return tag("div", tag("b", figure), tag("span", name), class_="tile bad" if is_bad else "tile")


def _counted(count: int, name: str) -> Markup:
    return _tile(f"{count:,}" if count < 10_000_000 else short_count(count), name if count == 1 else f"{name}s")


def _problems(facts: StoreFacts) -> Markup:
    told = [*facts.problems]
    if facts.left_out:
        names = ", ".join(facts.left_out[:10]) + (" …" if len(facts.left_out) > 10 else "")
        told.append(
            f"{len(facts.left_out)} smaller topics are left out ({names}): name those that you want to see behind DIR."
        )
    return joined(tag("p", line, class_="soft") for line in told)


def _footer(facts: StoreFacts) -> Markup:
    return tag("footer", f"Made by seeklog {facts.version}. The page holds all that it shows, and loads nothing.")


# ---------------------------------------------------------------- tables


def _table(titles: Sequence[tuple[str, bool]], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table; of a title is told whether its column holds numbers."""
    head = tag("tr", *(tag("th", title, class_="n" if is_number else None) for title, is_number in titles))
    body = [
        tag(
            "tr",
            *(tag("td", cell, class_="n" if number else None) for cell, (_, number) in zip(row, titles, strict=True)),
        )
        for row in rows
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="wide")


def _topics_table(facts: StoreFacts, *, utc: bool) -> Markup:
    if not facts.topics:
        return tag("p", "There are no topics yet. Make one with: seeklog create DIR TOPIC", class_="soft")
    titles = (
        ("topic", False),
        ("partitions", True),
        ("segments", True),
        ("records", True),
        ("size", True),
        ("oldest", False),
        ("newest", False),
    )
    rows = [
        (
            tag("a", topic.name, href=f"#{_anchor(topic.name)}"),
            f"{len(topic.partitions):,}",
            f"{len(topic.segments):,}",
            f"{topic.records:,}",
            amounts.size(topic.size),
            amounts.moment(topic.first_ms, utc=utc) or "",
            amounts.moment(topic.last_ms, utc=utc) or "",
        )
        for topic in facts.topics
    ]
    return tag("section", tag("h2", "Topics"), tag("div", _table(titles, rows), class_="card"))


def _anchor(topic: str) -> str:
    return f"topic-{topic}"


def _groups(facts: StoreFacts) -> Markup:
    if not facts.lags:
        return Markup("")
    titles = (
        ("group", False),
        ("topic", False),
        ("partition", True),
        ("committed", True),
        ("high watermark", True),
        ("lag", True),
        ("read by", False),
    )
    rows = [_lag_row(group, lag) for group, lags in facts.lags.items() for lag in lags]
    more = len(rows) - GROUP_ROWS_MOST
    note = tag("p", f"{more:,} more rows: see seeklog lag", class_="soft") if more > 0 else Markup("")
    table = _table(titles, rows[:GROUP_ROWS_MOST])
    return tag("section", tag("h2", "Groups"), tag("div", table, note, class_="card"), id="groups")


def _lag_row(group: str, lag: PartitionLag) -> tuple[object, ...]:
    return (
        group,
        lag.topic,
        lag.partition,
        "" if lag.committed is None else f"{lag.committed:,}",
        f"{lag.high_watermark:,}",
        f"{lag.lag:,}",
        lag.member_id or "",
    )


# ---------------------------------------------------------------- one topic


def _topic(topic: TopicFacts, *, is_checked: bool, utc: bool) -> Markup:
    words = " · ".join(f"{name}={value}" for name, value in topic.configured.items())
    parts: list[Markup] = [tag("h2", topic.name)]
    if words:
        parts.append(tag("p", words, class_="soft"))
    parts.append(_maps(topic, is_checked=is_checked, utc=utc))
    if topic.records_seen:
        parts.append(tag("div", *_cards(topic, utc=utc), class_="cards"))
    else:
        parts.append(tag("p", "No records yet, so there is nothing to plot.", class_="soft"))
    if topic.is_sampled and topic.records_read:
        told = (
            f"Sizes, keys and disorder are of {topic.records_read:,} of {topic.records_seen:,} records, in runs that "
            "are spread evenly over the topic; everything else is of all."
        )
        parts.append(tag("p", told, class_="soft"))
    return tag("section", *parts, id=_anchor(topic.name))


def _maps(topic: TopicFacts, *, is_checked: bool, utc: bool) -> Markup:
    most_bytes = max((partition.size for partition in topic.partitions), default=0)
    lanes = [
        joined(
            (_lane_name(partition), segment_map.draw(partition, most_bytes=most_bytes, utc=utc), _findings(partition))
        )
        for partition in topic.partitions[:LANES_MOST]
    ]
    notes = []
    if len(topic.partitions) > LANES_MOST:
        notes.append(f"{len(topic.partitions) - LANES_MOST} more partitions are not drawn, but counted below.")
    if any(segment_map.is_crowded(each.segments, most_bytes=most_bytes) for each in topic.partitions[:LANES_MOST]):
        notes.append("Segments that are too small to be seen alone are drawn together.")
    if not is_checked:
        notes.append("Checksums were not checked.")
    return tag(
        "div",
        tag("h3", "Segments, as wide as their bytes"),
        *lanes,
        _legend(),
        *(tag("p", note, class_="caption") for note in notes),
        class_="card",
    )


def _lane_name(partition: PartitionFacts) -> Markup:
    facts = [
        f"{len(partition.segments):,} segments" if len(partition.segments) != 1 else "1 segment",
        amounts.size(partition.size),
        f"start {partition.log_start_offset:,}",
        f"recovery point {partition.recovery_point:,}",
        f"high watermark {partition.high_watermark:,}",
        f"end {partition.log_end_offset:,}",
    ]
    if partition.needs_recovery:
        facts.append("not closed cleanly, or being written")
    return tag(
        "div",
        tag("b", f"partition {partition.partition}"),
        *(tag("span", fact, class_="soft") for fact in facts),
        class_="lane-name",
    )


def _legend() -> Markup:
    names = (
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
    return tag("div", *(tag("span", tag("i", class_=kind), name) for kind, name in names), class_="legend")


def _findings(partition: PartitionFacts) -> Markup:
    told = [_finding_line(finding) for finding in partition.findings]
    told += [partition.problem] if partition.problem else []
    told += [each.problem for each in partition.segments if each.problem] if not partition.findings else []
    if not told:
        return Markup("")
    more = len(told) - FINDINGS_MOST
    lines = told[:FINDINGS_MOST] + ([f"and {more:,} more; see seeklog verify"] if more > 0 else [])
    return tag("ul", *(tag("li", line) for line in lines), class_="findings")


def _finding_line(finding: Finding) -> str:
    where = "" if finding.position is None else f", byte {finding.position:,}"
    return f"{finding.severity} ({finding.kind}): {finding.path.rpartition('/')[2]}{where}: {finding.detail}"


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


def _card(title: str, picture: Markup, caption: str, *, kind: str) -> Markup:
    return tag("div", tag("h3", title), picture, tag("p", caption, class_="caption"), class_="card", data_plot=kind)


def _note(title: str, told: str, *, kind: str) -> Markup:
    """Return what stands for a plot that would be empty."""
    return tag("div", tag("h3", title), tag("p", told, class_="caption"), class_="card note", data_plot=kind)


def _throughput(topic: TopicFacts, *, utc: bool) -> list[Markup]:
    # A header tells the first and the last time of its batch, which a single wrong clock can pull apart.
    width_ms, bins, outside = charts.bins_of(topic.stored if topic.is_sampled else topic.read)
    if not bins:
        return [_note("Throughput", "The records have no times.", kind="records-over-time")]
    step = f"Each bar is {amounts.span(width_ms / 1000)}." if len(bins) > 1 else "All at one time."
    strays = f" {outside:,} records are from far before or after, and not drawn." if outside else ""
    most = max(bins, key=lambda each: each.records)
    peak = f" The most: {most.records:,} from {amounts.moment(most.start_ms, utc=utc)} on." if len(bins) > 1 else ""
    size = sum(each.size for each in bins)
    return [
        _card(
            "Records over time",
            charts.over_time(
                [(each.start_ms, each.records) for each in bins],
                width_ms=width_ms,
                utc=utc,
                label="records over time",
                ticks=count_ticks(most.records),
                shown=short_count,
                tone="a",
            ),
            f"{step}{peak}{strays}",
            kind="records-over-time",
        ),
        _card(
            "Bytes over time, as stored" if topic.is_sampled else "Bytes over time (keys and values)",
            charts.over_time(
                [(each.start_ms, each.size) for each in bins],
                width_ms=width_ms,
                utc=utc,
                label="bytes over time",
                ticks=byte_ticks(max(each.size for each in bins)),
                shown=_bytes_tick,
                tone="b",
            ),
            f"{step} {amounts.size(size)} in all.",
            kind="bytes-over-time",
        ),
    ]


def _bytes_tick(size: float) -> str:
    """Return a round size without decimals that say nothing."""
    figure, _, unit = amounts.size(size).partition(" ")
    return f"{float(figure):g} {unit}" if size else "0"


def _sizes(title: str, sizes: Sizes, *, tone: str) -> Markup:
    kind = title.split()[0].lower() + "-sizes"
    if not sizes.count:
        return _note(title, "Nothing was read.", kind=kind)
    half, most, nearly_all = (amounts.size(sizes.percentile(share)) for share in (0.5, 0.95, 0.99))
    caption = (
        f"Half are up to {half}, 95 % up to {most}, 99 % up to {nearly_all}. Smallest {amounts.size(sizes.least)}, "
        f"largest {amounts.size(sizes.most)}, on average {amounts.size(sizes.total / sizes.count)}."
    )
    return _card(title, charts.histogram(sizes, label=title, tone=tone), caption, kind=kind)


def _keys(topic: TopicFacts) -> list[Markup]:
    keys = topic.keys
    if not keys.count:
        told = "No record has a key." if topic.records_read else "Nothing was read."
        return [_note("Keys", told, kind="keys")]
    extras = [f"{topic.null_keys:,} records have no key" if topic.null_keys else "every record has a key"]
    if topic.tombstones:
        extras.append(f"{topic.tombstones:,} are tombstones")
    if keys.error:
        extras.append(f"counts may be too low by {keys.error:,}")
    top = sum(count for _, count in keys.most_frequent(10)) / keys.count
    about = "" if keys.distinct < 16_384 else "about "
    different = f"{about}{keys.distinct:,} different key{'s' if keys.distinct != 1 else ''}"
    cards = [_card("Most frequent keys", charts.key_bars(keys), f"{different}; {', '.join(extras)}.", kind="keys")]
    if len(keys.counters) > 1:
        caption = f"Keys from the most frequent on. The first ten have {charts.percent(top)} of the records."
        cards.append(_card("Key skew", charts.key_curve(keys), caption, kind="key-skew"))
    return cards


def _compression(topic: TopicFacts) -> Markup:
    segments = [segment for segment in topic.segments if segment.codecs]
    codecs: Counter[str] = Counter()
    for segment in segments:
        codecs.update(segment.codecs)
    if set(codecs) <= {"none"}:
        told = "Nothing is compressed. A topic's compression.type says what is."
        return _note("Compression", told, kind="compression")
    tones = {codec: _TONES.get(codec, "e") for codec in codecs}
    stored = sum(codecs.values())
    raw = sum(segment.raw_bytes for segment in segments)
    by_codec = ", ".join(f"{codec} {amounts.size(size)}" for codec, size in codecs.most_common())
    caption = f"{raw / stored:.2f} to 1 in all: {by_codec}. Measured on some batches of each segment."
    return _card("Compression by segment", charts.ratios(segments, tones=tones), caption, kind="compression")


def _lateness(topic: TopicFacts) -> Markup:
    late, read = topic.lateness, topic.records_read
    if not read:
        return _note("Time disorder", "Nothing was read.", kind="lateness")
    if not late.count:
        told = "In order: no record of a partition is older than one before it."
        return _note("Time disorder", told, kind="lateness")
    caption = (
        f"{late.count:,} of {read:,} records ({late.count / read:.1%}) are older than one before them in their "
        f"partition: half by up to {amounts.span(late.percentile(0.5) / 1000)}, "
        f"at most by {amounts.span(late.most / 1000)}."
    )
    return _card("Time disorder: how late records are", charts.lateness(late), caption, kind="lateness")
