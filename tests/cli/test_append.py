from __future__ import annotations

import itertools
import json
import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cli.workbench import COMMAND, MORNING_MS, TIMEOUT_S, Run, surroundings
from seeklog.cli.formats import CONTINUATION
from seeklog.cli.show.record_json import Draft
from seeklog.cli.verbs.append import WINDOW, Sending
from seeklog.clients.gathering import Delivery

NASTY = (
    (b"plain", b"key", (), MORNING_MS),
    (None, b"tombstone", (), MORNING_MS + 1),
    (b"", b"", (), 0),
    (b"no key", None, (("a", b"1"), ("a", b"2"), ("b", None), ("", b"")), -1),
    (bytes(range(256)), b"\xff\xfe", (("bin", b"\x80"), ("caf\u00e9", "é".encode())), MORNING_MS),
    ("日本 \u2028 \x1b[2J \x7f \u202e".encode(), b"\0", (("\udcff", b"not UTF-8"),), 2**53 + 1),
    (b'{"id": 7, "text": "a\\nb"}', b"line\nbreak\r\n", (), 253402300800000),
)


def records(path: Path, topic: str) -> list[tuple[Any, ...]]:
    with seeklog.open(path, read_only=True) as store:
        return [
            (record.value, record.key, record.headers, record.timestamp_ms, number)
            for number in range(len(store.describe_topic(topic).partitions))
            for record in store.log(topic, number).scan()
        ]


def values(path: Path, topic: str) -> list[Any]:
    return sorted(value for value, *_ in records(path, topic))


@pytest.mark.id("append-reads-what-cat-writes")
def test_append_json_round_trips_the_output_of_cat(run: Run, tmp_path: Path) -> None:
    with seeklog.open(tmp_path / "data", background=False) as store:
        store.create_topic("nasty", partitions=3)
        store.create_topic("again", partitions=3)
        for number, (value, key, headers, timestamp_ms) in enumerate(NASTY):
            with store.writer("nasty", number % 3) as log:
                log.append(value, key=key, headers=headers, timestamp_ms=timestamp_ms)

    lines = run("cat", "data", "nasty").out
    ran = run("append", "data", "again", "--json", "--keep-partition", stdin=lines)

    assert (ran.code, ran.out) == (0, b"")
    assert records(tmp_path / "data", "again") == records(tmp_path / "data", "nasty")
    assert run("cat", "data", "again").out == lines.replace(b'"nasty"', b'"again"')


@pytest.mark.parametrize(
    ("arguments", "stdin", "found"),
    [
        ([], b"a\nb\n", [(b"a", None, ())]),
        ([], b"\n", [(b"", None, ())]),
        ([], b"a\r\n", [(b"a\r", None, ())]),
        ([], b"\xff\x01", [(b"\xff\x01", None, ())]),
        (["--format", "lines"], b"\xff\0", [(b"\xff\0", None, ())]),
        ([], b"PAR1SIAN\n", [(b"PAR1SIAN", None, ())]),
        (["--key-sep", ":"], b"k:v:w\n", [(b"v:w", b"k", ())]),
        (["--key-sep", ":"], b"none\n", [(b"none", None, ())]),
        (["--key-sep", "\\t"], b"k\tv", [(b"v", b"k", ())]),
        (["--key-sep", ":", "--null"], b"k:\n", [(None, b"k", ())]),
        (["--null"], b"\n", [(None, None, ())]),
        (["--key", "k", "--header", "a=1", "--header", "a=2=3"], b"v", [(b"v", b"k", (("a", b"1"), ("a", b"2=3")))]),
        (["--delimiter", "\\0"], b"a\nb\0", [(b"a\nb", None, ())]),
        (["--json"], b'\n{"value": "v", "key": "k"}\n\n', [(b"v", b"k", ())]),
        (
            ["--json", "--header", "b=2"],
            b'{"value": "v", "headers": {"a": "1"}}',
            [(b"v", None, (("a", b"1"), ("b", b"2")))],
        ),
        (["--json", "--null"], b'{"value": "", "key": "k"}', [(None, b"k", ())]),
        (
            ["--json", "--value-column", "data", "--key-column", "id"],
            b'{"id": 7, "data": {"a": 1}, "key": "x", "more": 2}',
            [(b'{"a":1}', b"7", ())],
        ),
        (["--format", "jsonl"], b'{"value": "v"}', [(b"v", None, ())]),
        (["--csv"], b"key,value\nk,v\n", [(b"v", b"k", ())]),
        (["--csv", "--value-column", "b", "--key-column", "a"], b"a,b,c\nk,v,w\n", [(b"v", b"k", ())]),
        (["--csv", "--value-column", "a", "--key-column", "a"], b"a\nk\n", [(b"k", b"k", ())]),
        (["--csv"], b"key,value,encoding\nAAE=,/w==,key:base64 value:base64\n", [(b"\xff", b"\0\x01", ())]),
        (["--csv"], b"key,value,encoding\n,,key:base64 value:null\n", [(None, b"", ())]),
        (
            ["--csv"],
            b'\xef\xbb\xbfvalue,header.source,headers\n"a\nb",web,"[{""key"": ""x"", ""value"": ""y""}]"\n',
            [(b"a\nb", None, (("x", b"y"), ("source", b"web")))],
        ),
        (["--csv"], b"topic,offset,key,value\norders,7,,\n", [(b"", None, ())]),
        (["--csv", "--null"], b"key,value\nk,\n", [(None, b"k", ())]),
        (["--compression", "zstd"], b"a", [(b"a", None, ())]),
        (["--partition", 0], b"a", [(b"a", None, ())]),
        (["--rate", 1000], b"a", [(b"a", None, ())]),
    ],
)
def test_each_input_format_yields_the_expected_record(
    run: Run, store: Path, arguments: list[Any], stdin: bytes, found: list[Any]
) -> None:
    ran = run("append", store, "refunds", *arguments, stdin=stdin)

    assert (ran.code, ran.out) == (0, b"")
    assert ran.err.startswith("appended ")
    assert [record[:3] for record in records(store, "refunds")[:1]] == found


def test_timestamps_are_kept(run: Run, store: Path) -> None:
    run("append", store, "refunds", "--csv", stdin="value,timestamp\na,2026-01-01T00:00:00.5Z\nb,1767225600000\n")

    assert [record[3] for record in records(store, "refunds")] == [MORNING_MS + 500, MORNING_MS]


def test_keys_go_to_the_partition_kafka_chooses(run: Run, store: Path) -> None:
    assert run("append", store, "orders", "--key-sep", ":", stdin="customer_7:x\n" * 3).code == 0

    with seeklog.open(store, read_only=True) as made:
        latest = made.topic("orders").latest(b"customer_7")
    assert latest is not None
    assert latest.value == b"x"


def test_whole_file_is_appended(run: Run, store: Path, tmp_path: Path) -> None:
    # More than two windows of futures, and lines that cross the chunks of the input.
    lines = [b"%06d" % number + b"x" * (number % 97) for number in range(12_000)]
    (tmp_path / "lines.txt").write_bytes(b"\n".join(lines))

    ran = run("append", store, "refunds", "lines.txt")

    assert ran.err.startswith("appended 12,000 records to refunds (")
    assert values(store, "refunds") == lines


@pytest.mark.parametrize("delimiter", ["\\r\\n", "ab"])
def test_delimiter_may_be_split_between_reads(run: Run, store: Path, delimiter: str) -> None:
    mark = b"\r\n" if delimiter == "\\r\\n" else b"ab"
    lines = [b"%d" % number * 11 for number in range(30_000)]

    assert run("append", store, "refunds", "--delimiter", delimiter, stdin=mark.join(lines)).code == 0
    assert values(store, "refunds") == sorted(lines)


@pytest.mark.id("append-stops-at-a-bad-line")
@pytest.mark.parametrize(
    ("arguments", "stdin", "message", "written"),
    [
        (
            ["--json"],
            b'{"value": "1"}\n{"value": \n{"value": "3"}',
            "line 2: not JSON: Expecting value at column 11",
            1,
        ),
        (["--json"], b'\n\n{"value": "1"}\n{"valeu": 2}', "line 4: unknown field 'valeu'; did you mean value?", 1),
        (
            ["--csv"],
            b"value,kee\n1,2\n",
            "line 1: unknown column 'kee'; did you mean key?",
            0,
        ),
        (["--csv"], b"key\n1\n", "line 1: no column is called value; name it with --value-column. columns: key", 0),
        (["--csv"], b"value,key\n1,2\n3\n", "line 3: 1 cell, but the first row names 2 columns", 1),
        (["--csv"], b"value\n\xff\n", "line 2: byte 0 is not UTF-8", 0),
        (["--csv"], b'value\n"a\n', "line 2: unexpected end of data", 0),
        (["--csv"], b"value,timestamp\n1,noon\n", "line 2, column timestamp: the timestamp 'noon' is not a time", 0),
        (
            ["--csv", "--time-column", "at"],
            b"value,at\n1,0\n2,noon\n",
            "line 3, column at: the timestamp 'noon' is not a time; write 2026-01-02T03:04:05.678Z",
            1,
        ),
        (
            ["--csv", "--key-column", "idd"],
            b"id,value\n1,2\n",
            "line 1: --key-column: there is no column 'idd'; did",
            0,
        ),
        (["--csv"], b"value,headers\n1,[\n", "line 2, column headers: headers is not JSON", 0),
        (["--csv"], b"value,headers\n1,[7]\n", "line 2, column headers: a header is a number, not an object", 0),
        (["--csv"], b"value,value\n1,2\n", "line 1: the column 'value' occurs twice", 0),
        (["--csv"], b"value,encoding\n!,value:base64\n", "line 2, column value: '!' is not base64", 0),
        (["--csv"], b"value,encoding\na,value:null\n", "line 2, column value: the encoding says value:null", 0),
        (["--csv"], b"value,encoding\na,hex\n", "line 2, column encoding: 'hex' is not among key:base64", 0),
        (["--json"], b"[\n{}\n]\n", "line 1: a JSON list over several lines", 0),
        (["--json"], b'{"id": 7}', "line 1: unknown field 'id'; known: topic, ", 0),
        (["--json", "--value-column", "a"], b'{"a": 1}\n{"b": 1}', "line 2: there is no field 'a'; fields: b", 1),
        ([], b"text\n" * 9_000 + b"a\0b\n", "line 9,001: a NUL byte, so this is not text; to append the bytes", 9_000),
        (
            ["--json"],
            b'{"value": "1"}\n{"value": "2", "timestamp": 1800000000}',  # within ten years of the clock until 2037
            "line 2: topic 'refunds': the record has timestamp_ms 1800000000, which is 1970-01-21T20:00:00Z in milli",
            1,
        ),
        (
            ["--json", "--keep-partition"],
            b'{"value": "1", "partition": 0}\n{"value": "2", "partition": 9}',
            "line 2: topic 'refunds' has no partition 9",
            1,
        ),
        (
            [],
            b"1\n" + b"x" * 1_100_000,
            "line 2: the record has 1,100,000 bytes; max.message.bytes of the topic is 1,048,588",
            1,
        ),
    ],
)
def test_append_stops_at_invalid_line_and_reports_the_count(
    run: Run, store: Path, arguments: list[str], stdin: bytes, message: str, written: int
) -> None:
    ran = run("append", store, "refunds", *arguments, stdin=stdin)

    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert ran.err.startswith(f"seeklog: {message}")
    were = "record before it was" if written == 1 else "records before it were"
    assert ran.err.endswith(f"; {written:,} {were} appended, none after it\n")
    assert len(records(store, "refunds")) == written


def test_compacted_topic_refuses_record_without_key(run: Run, store: Path) -> None:
    run("create", store, "latest", "--set", "cleanup.policy=compact")

    ran = run("append", store, "latest", "--key-sep", ":", stdin="a:1\nb\nc:3\n")

    assert ran.code == 1
    assert ran.err.startswith("seeklog: line 2: topic 'latest' is compacted: a record needs a key")
    assert values(store, "latest") == [b"1"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["refund"], 4, "did you mean 'refunds'?"),
        (["zzz"], 4, "pass --create to create it"),
        (["refunds", "nowhere.txt"], 4, "nowhere.txt: No such file or directory; check the spelling"),
        (["refunds", "."], 1, ".: Is a directory"),
        (["refunds", "--json", "--csv"], 2, "--format, --json and --csv conflict"),
        (["refunds", "--format", "csv", "--json"], 2, "--format, --json and --csv conflict"),
        (["refunds", "--json", "--key", "a"], 2, "--key and --key-sep do not apply to JSON lines"),
        (["refunds", "--key", "a", "--key-sep", ":"], 2, "--key and --key-sep conflict"),
        (["refunds", "--keep-partition"], 2, "lines have no partition"),
        (["refunds", "--key-column", "a"], 2, "lines have no columns; pass --format"),
        (["refunds", "--csv", "--delimiter", ";"], 2, "--delimiter does not apply to CSV"),
        (["refunds", "--key-sep", ""], 2, "--key-sep is empty"),
        (["refunds", "--key-sep", "\\q"], 2, "\\q is not one of"),
        (["refunds", "--header", "a"], 2, "--header 'a' is not NAME=VALUE"),
        (["refunds", "--rate", "0"], 2, "0.0 is not in the range"),
        (["refunds", "--rate", "nan"], 2, "--rate is not a number"),
        (["refunds", "--compression", "rar"], 2, "'rar' is not one of"),
        (["refunds", "--partition", "9"], 1, "line 1: topic 'refunds' has no partition 9"),
        (["__consumer_offsets"], 2, "Kafka's own"),
    ],
)
def test_invalid_call_is_reported_in_one_line(
    run: Run, store: Path, arguments: list[str], code: int, message: str
) -> None:
    ran = run("append", store, *arguments, stdin=b"a\n")

    assert (ran.code, ran.out, ran.err.count("\n")) == (code, b"", 1)
    assert message in ran.err
    assert records(store, "refunds") == []


def test_store_is_created_only_with_create(run: Run, tmp_path: Path) -> None:
    assert run("append", "new", "orders", stdin=b"a\n").code == 4
    assert not (tmp_path / "new").exists()

    assert run("append", "new", "orders", "--create", stdin=b"a\n").code == 0
    assert values(tmp_path / "new", "orders") == [b"a"]


@pytest.mark.parametrize(
    ("arguments", "data", "message"),
    [
        (["--json"], b"{\n", "line 1: "),
        (["--csv"], b"k,v\na,1\n", "line 1: "),
        (["--csv"], b"key,value\na\n", "line 2: 1 cell"),
        (["--format", "arrow"], CONTINUATION + b"abc", "from its beginning"),
        (["--partition", "1"], b"a\n", "create the topic first with: seeklog create DIR fresh --partitions 2"),
    ],
    ids=["json", "header", "row", "arrow", "partition"],
)
def test_input_that_fails_before_its_first_record_leaves_no_topic(
    run: Run, store: Path, arguments: list[str], data: bytes, message: str
) -> None:
    ran = run("append", store, "fresh", "--create", *arguments, stdin=data)

    assert ran.code in (1, 2)
    assert message in ran.err
    with seeklog.open(store, read_only=True) as opened:
        assert "fresh" not in opened.topics()


def test_input_that_fails_before_its_first_record_leaves_no_store(run: Run, tmp_path: Path) -> None:
    assert run("append", "new", "orders", "--create", "--json", stdin=b"{\n").code == 1
    assert not (tmp_path / "new").exists()


def test_empty_input_still_creates_the_topic(run: Run, store: Path) -> None:
    ran = run("append", store, "fresh", "--create", stdin=b"")

    assert (ran.code, values(store, "fresh")) == (0, [])
    assert ran.err.startswith("appended 0 records to fresh")


def test_conflicting_compression_is_refused(run: Run, store: Path) -> None:
    run("create", store, "packed", "--set", "compression.type=gzip")

    ran = run("append", store, "packed", "--compression", "zstd", stdin=b"a\n")

    assert ran.code == 2
    assert "compression.type of topic packed is gzip" in ran.err
    assert run("append", store, "packed", "--compression", "gzip", stdin=b"a\n").code == 0


def test_compression_option_sets_the_codec(run: Run, store: Path) -> None:
    run("append", store, "refunds", "--compression", "zstd", stdin=b"aaaa\n" * 100)

    with seeklog.open(store, read_only=True) as made:
        assert {batch.codec for batch in made.log("refunds", 0).read_batches(0)} == {"zstd"}


def test_log_open_in_another_process_is_reported(run: Run, store: Path) -> None:
    with seeklog.open(store, background=False) as made, made.writer("refunds", 0):
        ran = run("append", store, "refunds", stdin=b"a\n")

    assert (ran.code, ran.err.count("\n")) == (5, 1)
    assert f"is open for writing in process {os.getpid()}" in ran.err


def test_closed_stdin_is_reported(store: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m seeklog.cli append data refunds <&-"],
        capture_output=True,
        cwd=store.parent,
        env=surroundings(store),
        check=False,
    )

    assert (done.returncode, done.stderr) == (
        2,
        b"seeklog: stdin is closed; name a file, or pipe records into the command\n",
    )


def limited(most_bytes: int) -> Callable[[], None]:
    """Return a function that limits the size of a child's files, as a full disk would."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    return limit


@pytest.mark.id("append-without-room")
def test_failed_write_reports_the_appended_count(store: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "append", str(store), "refunds"],
        input=b"x" * 999 + b"\n" + b"\n".join([b"x" * 1000] * 2000),
        capture_output=True,
        env=surroundings(store),
        preexec_fn=limited(1 << 20),
        timeout=TIMEOUT_S,
        check=False,
    )

    message = done.stderr.decode()
    assert done.returncode == 1, message
    assert "Traceback" not in message
    written = len(records(store, "refunds"))
    assert 0 < written < 2001
    assert f"{written:,} records appended before the error" in message


@pytest.mark.id("append-interrupted")
def test_ctrl_c_keeps_sent_records_and_reports_the_count(store: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "append", str(store), "refunds"],
        stdin=subprocess.PIPE,
        stdout=slave,
        stderr=slave,
        env=surroundings(store),
    )
    os.close(slave)
    assert process.stdin is not None
    process.stdin.write(b"a\nb\nc\n")
    process.stdin.flush()
    with seeklog.open(store, read_only=True) as made:
        seen = [record.value for record in itertools.islice(made.log("refunds", 0).follow(0), 3)]
    process.send_signal(signal.SIGINT)
    code = process.wait(timeout=TIMEOUT_S)
    message = os.read(master, 65536).decode()
    os.close(master)

    assert seen == [b"a", b"b", b"c"]
    assert (code, message.strip()) == (
        130,
        "stopped after appending 3 records, up to line 3; to continue, append the lines after it",
    )
    assert values(store, "refunds") == [b"a", b"b", b"c"]


def test_ctrl_c_while_futures_settle_keeps_the_count_exact(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who resumes after the reported count appends nothing twice."""
    wait, waited = Delivery.wait, itertools.count(1)

    def interrupted(delivery: Delivery, timeout: float | None) -> None:
        if next(waited) == 100:
            raise KeyboardInterrupt
        wait(delivery, timeout)

    monkeypatch.setattr(Delivery, "wait", interrupted)
    with seeklog.open(store) as made, made.producer() as producer:
        sending = Sending(lambda draft: producer.send("refunds", draft.value))
        for number in range(1, 2 * WINDOW):
            sending.send(number, Draft(value=b"value"))
        with pytest.raises(KeyboardInterrupt):
            sending.send(2 * WINDOW, Draft(value=b"value"))
        sending.settle()
        assert (sending.written, sending.last_number) == (2 * WINDOW, 2 * WINDOW)
    assert len(values(store, "refunds")) == 2 * WINDOW


def test_reading_from_a_terminal_explains_how_to_end(run_on_terminal: Run, store: Path) -> None:
    ran = run_on_terminal("append", store, "refunds", typed="a\n\x04")

    assert ran.code == 0
    assert "end with Ctrl-D" in ran.text
    assert values(store, "refunds") == [b"a"]


def test_rate_is_respected(run: Run, store: Path) -> None:
    # Twenty records at 100 a second have nineteen pauses of 10 ms.
    ran = run("append", store, "refunds", "--rate", 100, stdin=b"a\n" * 20)

    assert ran.code == 0
    times = [record[3] for record in records(store, "refunds")]
    assert times[-1] - times[0] >= 150


def test_numbers_in_json_stay_numbers(run: Run, store: Path) -> None:
    run("append", store, "refunds", "--json", stdin=json.dumps({"value": {"id": 7}}))

    assert run("cat", store, "refunds", "--where", "value.id = 7", "-t", "%v").out == b'{"id":7}'
