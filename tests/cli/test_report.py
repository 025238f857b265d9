"""The report: its content, that it loads nothing, and how a browser shows it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import seeklog
from cli.browser import CHROMIUM, DESKTOP, PHONE, look
from cli.workbench import COMMAND, MORNING_MS, TIMEOUT_S, Run, surroundings
from measuring import unmeasured
from seeklog.cli.report import charts
from seeklog.cli.report.axis import byte_ticks, count_ticks, short_count, time_ticks
from seeklog.cli.report.gather import Thinned
from seeklog.cli.report.markup import Markup, safe, tag
from seeklog.record.record import Record
from seeklog.record.sketch import Throughput

PLOTS = {
    "records-over-time",
    "bytes-over-time",
    "record-sizes",
    "batch-sizes",
    "keys",
    "key-skew",
    "compression",
    "lateness",
}
HOSTILE = "<script>alert('key')</script>\x1b[31m\u202e"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    """A store with something for every plot: segments, skewed keys, late records, codecs, a group, an empty topic."""
    path = tmp_path / "rich"
    with seeklog.open(path, background=False) as made:
        made.create_topic("orders", partitions=2, config={"segment.bytes": 4096, "compression.type": "zstd"})
        made.create_topic("nothing", partitions=1)
        made.create_topic("single", partitions=1)
        for number in range(120):
            with made.writer("orders", number % 2) as log:
                log.append_many(
                    Record(
                        json.dumps({"order": number * 20 + each, "text": "x" * (each * 7)}).encode(),
                        key=b"customer_%d" % (each % 7 if each % 3 else 0),
                        # Every tenth record is an hour late.
                        timestamp_ms=MORNING_MS + number * 60_000 - (3_600_000 if each == 9 else 0),
                    )
                    for each in range(20)
                )
        with made.writer("single", 0) as log:
            log.append(b"<b>value</b>", key=HOSTILE.encode(), timestamp_ms=MORNING_MS)
        made.commit_offsets("<i>group</i>", {seeklog.TopicPartition("orders", 0): 100})
    return path


def damage(store: Path) -> Path:
    path = min((store / "orders-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path


def fingerprint(path: Path) -> dict[str, str]:
    return {
        str(each.relative_to(path)): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(path.rglob("*"))
        if each.is_file()
    }


# ---------------------------------------------------------------- the file


def test_report_writes_one_file_and_does_not_change_the_store(run: Run, rich: Path, tmp_path: Path) -> None:
    before = fingerprint(rich)

    ran = run("report", rich, "-o", "out.html")

    assert (ran.code, ran.out) == (0, b"")
    assert re.fullmatch(r"out\.html: 3 topics, 2,401 records, [\d.]+ KB in .*\n", ran.err)
    assert fingerprint(rich) == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.html", "rich"]


def test_page_loads_nothing_else(run: Run, rich: Path) -> None:
    page = run("report", rich, "-o", "-").text

    assert "http" not in page.replace("http-equiv", "")
    assert not re.search(r"<(link|img|iframe|object|embed)\b|\bsrc=|url\(|@import", page)
    assert "default-src &#x27;none&#x27;" in page


def test_data_is_escaped(run: Run, rich: Path) -> None:
    page = run("report", rich, "-o", "-").text

    assert "alert(&#x27;key&#x27;)" in page
    assert "<script>alert" not in page
    assert "<i>group" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_named_topics_select_the_report(run: Run, rich: Path) -> None:
    page = run("report", rich, "single", "-o", "-").text

    assert 'id="topic-single"' in page
    assert 'id="topic-orders"' not in page


def test_topics_over_the_limit_are_only_named(run: Run, tmp_path: Path) -> None:
    with seeklog.open(tmp_path / "data", background=False) as made:
        for number in range(23):
            made.create_topic(f"topic_{number:02}", partitions=1)

    page = run("report", "data", "-o", "-").text

    assert page.count("<section") == 1 + 20
    assert "3 smaller topics are not shown (topic_20, topic_21, topic_22)" in page


def test_sampling_is_reported(run: Run, rich: Path) -> None:
    page = run("report", rich, "orders", "-o", "-", "--records", 1).text

    assert re.search(r"Sizes, keys and disorder are sampled: [\d,]+ of 2,400 records", page)


def test_headers_suffice_without_records(run: Run, rich: Path) -> None:
    page = run("report", rich, "orders", "-o", "-", "--records", 0, "--no-check").text

    assert 'data-plot="records-over-time"' in page
    assert "Checksums were not verified." in page


@pytest.mark.parametrize(
    ("zone", "options", "sentence"),
    [
        ("Asia/Kolkata", ["--utc"], "Times are in UTC."),
        ("UTC", [], "Times are in UTC, the local time zone."),
        ("Asia/Kolkata", [], "Times are local, UTC+05:30."),
    ],
)
def test_page_names_the_zone_that_its_times_have(
    run: Run, rich: Path, zone: str, options: list[str], sentence: str
) -> None:
    text = run("report", rich, "-o", "-", "--no-check", *options, env={"TZ": zone}).text

    assert sentence in text
    zones = set(re.findall(r"\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)", text))
    assert zones == {"Z" if "in UTC" in sentence else "+05:30"}


def test_page_names_both_offsets_if_a_time_is_in_summer(run: Run, rich: Path) -> None:
    with seeklog.open(rich, background=False) as made, made.writer("single", 0) as log:
        log.append(b"in winter", timestamp_ms=MORNING_MS)
        log.append(b"in summer", timestamp_ms=MORNING_MS + 200 * 86_400_000)

    text = run("report", rich, "-o", "-", "--no-check", env={"TZ": "Europe/Berlin"}).text

    assert "Times are local, UTC+01:00 or UTC+02:00." in text


def test_archive_is_reported(run: Run, rich: Path, tmp_path: Path) -> None:
    with seeklog.open(rich, background=False) as store:
        store.archive(tmp_path / "cold", topics=["orders"])

    ran = run("report", "cold", "-o", "out.html")

    assert ran.code == 0
    assert 'id="topic-orders"' in (tmp_path / "out.html").read_text()


def test_store_without_topics_names_the_next_step(run: Run, tmp_path: Path) -> None:
    seeklog.open(tmp_path / "data", background=False).close()

    assert "There are no topics yet" in run("report", "data", "-o", "-").text


def test_damage_is_drawn_reported_and_exits_with_3(run: Run, rich: Path, tmp_path: Path) -> None:
    path = damage(rich)

    ran = run("report", rich, "-o", "out.html")

    assert ran.code == 3
    assert ran.err.endswith(f"damaged range, shown in red on the page; for details run: seeklog verify {rich}\n")
    page = (tmp_path / "out.html").read_text()
    assert 'class="damage"' in page
    assert f"error (crc): {path.name}, byte " in page
    assert 'class="tile bad"' in page


def test_log_open_in_another_process_is_read(run: Run, rich: Path) -> None:
    with seeklog.open(rich, background=False) as store, store.writer("orders", 0) as log:
        log.append(b"more")
        assert run("report", rich, "-o", "out.html").code == 0


# ---------------------------------------------------------------- errors


def test_missing_directory_is_reported(run: Run, tmp_path: Path) -> None:
    ran = run("report", "nowhere")

    assert ran.code == 4
    assert ran.err == "seeklog: there is no store at nowhere; create one with: seeklog create nowhere TOPIC\n"
    assert list(tmp_path.iterdir()) == []


def test_unknown_topic_gets_a_suggestion_and_no_file(run: Run, rich: Path, tmp_path: Path) -> None:
    ran = run("report", rich, "order")

    assert ran.code == 4
    assert ran.err.count("\n") == 1
    assert "orders" in ran.err
    assert not (tmp_path / "report.html").exists()


def test_other_file_is_not_overwritten(run: Run, rich: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")

    ran = run("report", rich)

    assert ran.code == 2
    assert (
        ran.err
        == "seeklog: report.html exists and was not written by seeklog report; name another file, or remove it\n"
    )
    assert (tmp_path / "report.html").read_text() == "mine"


def test_earlier_report_is_replaced(run: Run, rich: Path, tmp_path: Path) -> None:
    assert run("report", rich, "single").code == 0
    assert run("report", rich, "orders").code == 0
    assert "topic-orders" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("output", "message"),
    [(".", "is a directory"), ("no/where.html", "does not exist"), ("rich/x.html", "is inside the store")],
)
def test_invalid_output_path_is_refused(run: Run, rich: Path, output: str, message: str) -> None:
    ran = run("report", rich, "-o", output)

    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_full_disk_keeps_the_earlier_report(run: Run, rich: Path, home: Path, tmp_path: Path) -> None:
    assert run("report", rich).code == 0
    before = (tmp_path / "report.html").read_bytes()

    done = subprocess.run(
        [*COMMAND, "report", str(rich)],
        capture_output=True,
        cwd=tmp_path,
        env=unmeasured(surroundings(home)),
        timeout=TIMEOUT_S,
        check=False,
        # Files are limited to one page; the error is handled like a full disk.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )

    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].startswith("seeklog: ")
    assert (tmp_path / "report.html").read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["report.html", "rich"]


def test_closed_pipe_ends_the_command_quietly(rich: Path) -> None:
    command = f"'{sys.executable}' -m seeklog.cli report rich -o - -q | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, cwd=rich.parent, env=surroundings(rich), check=False
    )

    assert done.stderr == b""
    assert done.stdout.strip() in (b"0", b"141")


# ---------------------------------------------------------------- in a browser


@needs_browser
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("is_dark", [False, True])
def test_browser_shows_every_plot_without_errors(
    run: Run, rich: Path, tmp_path: Path, width: int, is_dark: bool
) -> None:
    damage(rich)
    run("report", rich, "-o", "out.html")

    seen = look(tmp_path / "out.html", width=width, picture=tmp_path / "out.png", is_dark=is_dark)

    assert seen.console == []
    assert set(seen.plots) == PLOTS
    assert seen.maps == 4
    assert seen.charts > 10
    assert seen.damage == 1
    assert seen.scripts == 1
    assert seen.width == width  # nothing overflows
    assert (seen.overlaps, seen.outside, seen.clipped) == ([], [], [])
    assert seen.theme == ("Light" if is_dark else "Dark")
    assert (sum(map(int, re.findall(r"\d+", seen.paper)[:3])) < 200) == is_dark
    assert "<i>group</i>" in seen.text  # as text
    assert os.path.getsize(tmp_path / "out.png") > 20_000


@needs_browser
def test_thousand_segments_are_drawn_as_few_bars(run: Run, tmp_path: Path) -> None:
    with seeklog.open(tmp_path / "data", background=False) as made:
        made.create_topic("many", partitions=1, config={"segment.bytes": 100})
        with made.writer("many", 0) as log:
            for number in range(1000):
                log.append(b"x" * 20, timestamp_ms=MORNING_MS + number)
            assert log.segment_count == 1000

    run("report", "data", "-o", "out.html")
    seen = look(tmp_path / "out.html", width=DESKTOP)

    assert 200 < seen.bars < 400
    assert "Small neighbouring segments are drawn as one." in seen.text
    assert (seen.overlaps, seen.outside) == ([], [])


# ---------------------------------------------------------------- parts


def test_text_is_escaped_once_and_markup_never() -> None:
    assert safe(safe("<&>")) == "&lt;&amp;&gt;"
    assert tag("p", Markup("<b>x</b>"), "<i>", class_='"') == '<p class="&quot;"><b>x</b>&lt;i&gt;</p>'
    assert tag("line", x1=1.0, y1=2.505, hidden=False) == '<line x1="1" y1="2.50"/>'.replace("2.50", "2.5")


@pytest.mark.parametrize("high", [1, 2, 3, 7, 10, 99, 1234, 10**9])
def test_ticks_of_counts_are_integers_and_reach_the_top(high: int) -> None:
    ticks = count_ticks(high)

    assert ticks[0] == 0
    assert ticks[-1] >= high * 0.999
    assert all(tick == int(tick) for tick in ticks)
    assert 2 <= len(ticks) <= 6


@pytest.mark.parametrize("high", [1, 500, 1023, 1024, 5000, 1 << 20, 3 << 30])
def test_ticks_of_bytes_are_round_in_their_unit(high: int) -> None:
    ticks = byte_ticks(high)

    assert ticks[-1] >= high * 0.999
    unit = 1024 ** int(max(0, (high.bit_length() - 1) // 10))
    assert all(round(tick / unit * 40) == pytest.approx(tick / unit * 40) for tick in ticks)


def test_ticks_of_time_are_inside_and_have_distinct_labels() -> None:
    for span_ms in (1, 50, 5_000, 90_000, 4_000_000, 10**8, 10**11, 10**13):
        ticks = list(time_ticks(MORNING_MS, MORNING_MS + span_ms, utc=True))
        assert 1 <= len(ticks) <= 6
        assert all(MORNING_MS <= at <= MORNING_MS + span_ms for at, _ in ticks)
        assert len({name for _, name in ticks}) == len(ticks)


def test_counts_are_abbreviated() -> None:
    assert list(map(short_count, (0, 7, 950, 1200, 34_000_000))) == ["0", "7", "950", "1.2k", "34M"]


def test_thinned_items_are_spread_evenly() -> None:
    thinned: Thinned[int] = Thinned(16)
    for number in range(10_000):
        thinned.add(number)

    assert 8 <= len(thinned.kept) <= 16
    steps = {second - first for first, second in itertools.pairwise(thinned.kept)}
    assert len(steps) == 1
    assert thinned.kept[-1] > 8000


def test_strays_are_not_drawn() -> None:
    throughput = Throughput(1000)
    for second in range(1000):
        throughput.add(MORNING_MS + second * 1000, records=10, size=100)
    throughput.add(MORNING_MS + 10**10, records=3, size=30)
    throughput.add(1000, records=4, size=40)

    width_ms, bins, outside = charts.bins_of(throughput)

    assert (width_ms, outside) == (12_000, 7)
    assert sum(each.records for each in bins) == 10_000


def test_time_without_strays_is_drawn_completely() -> None:
    throughput = Throughput(1000)
    for second in range(1000):
        throughput.add(MORNING_MS + second * 1000, records=10, size=100)

    assert charts.bins_of(throughput).outside == 0
