from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cli.workbench import COMMAND, MORNING_MS, TIMEOUT_S, Ran, Run, surroundings

pytest.importorskip("duckdb")


def rows(ran: Ran) -> list[dict[str, Any]]:
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.lines]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("select count(*) n from orders", [{"n": 20}]),
        ('select max("offset") m, sum(partition) s from orders', [{"m": 9, "s": 10}]),
        (
            "select text(key) k, count(*) n from orders group by k order by k limit 1",
            [{"k": "customer_0", "n": 4}],
        ),
        ("select field(value, '$.paise')::int p from orders order by p desc limit 2", [{"p": 1900}, {"p": 1800}]),
        ("select count(*) n from orders where key = 'customer_1'::blob", [{"n": 4}]),
        ("select count(*) n from orders o join refunds r using (topic)", [{"n": 0}]),
        ("select count(*) n from (select topic from orders union all select topic from refunds)", [{"n": 20}]),
        (
            'select * from orders where partition = 1 and "offset" = 1',
            [
                {
                    "key": "customer_3",
                    "value": '{"id": 3, "paise": 300}',
                    "topic": "orders",
                    "partition": 1,
                    "offset": 1,
                    "timestamp": "2026-01-01T00:03:00.000Z",
                    "timestampType": 0,
                    "headers": [{"key": "source", "value": "app"}],
                }
            ],
        ),
        ("select 1 a, 2 a", [{"a": 1, "a_2": 2}]),
        (
            "select '\\xFF'::blob b, 1.5::decimal(4,2) d, date '2026-01-02' t, null n",
            [{"b": {"base64": "/w=="}, "d": 1.5, "t": "2026-01-02", "n": None}],
        ),
        ("create table t as select 1", []),
    ],
)  # fmt: skip
def test_queries_return_the_expected_rows(run: Run, store: Path, query: str, found: list[dict[str, Any]]) -> None:
    if query.startswith("create"):
        assert run("sql", store, query).code == 0
    else:
        assert rows(run("sql", store, query, "--utc")) == found


@pytest.mark.parametrize(
    ("condition", "ids", "read"),
    [
        ('"offset" >= 7', {14, 16, 18, 15, 17, 19}, {0: 3, 1: 3}),
        ('"offset" between 2 and 3', {4, 6, 5, 7}, {0: 2, 1: 2}),
        ('"offset" in (1, 4)', {2, 8, 3, 9}, {0: 4, 1: 4}),
        ('"offset" = 2 or "offset" = 3', {4, 6, 5, 7}, {0: 2, 1: 2}),
        ('"offset" > 100', set(), {0: 0, 1: 0}),
        ("partition = 1 and \"offset\" < 2", {1, 3}, {0: 0, 1: 2}),
        ("topic = 'refunds'", set(), {0: 0, 1: 0}),
        ("timestamp >= '2026-01-01T00:16Z'", {16, 17, 18, 19}, {0: 2, 1: 2}),
        ("timestamp < '2026-01-01T00:03Z'", {0, 1, 2}, {0: 2, 1: 1}),
        ("timestamp between '2026-01-01T00:04Z' and '2026-01-01T00:05Z'", {4, 5}, {0: 1, 1: 1}),
        ("timestamp > '2030-01-01'", set(), {0: 0, 1: 0}),
        ("\"offset\" >= 8 and timestamp < '2026-01-01T00:18Z'", {16, 17}, {0: 1, 1: 1}),
        ("\"offset\" < 1 or timestamp > '2026-01-01T00:18:30Z'", {0, 1, 19}, {0: 10, 1: 10}),
        ("key = 'customer_4'::blob", {4, 14, 9, 19}, {0: 10, 1: 10}),
    ],
)  # fmt: skip
def test_only_records_in_range_are_read(
    run: Run, store: Path, condition: str, ids: set[int], read: dict[int, int]
) -> None:
    ran = run("sql", store, f"select field(value, '$.id')::int id from orders where {condition}", "-v", "--utc")

    assert {row["id"] for row in rows(ran)} == ids
    reads = {
        int(line.split(":")[0].removeprefix("read orders-")): int(line.split()[2])
        for line in ran.err.splitlines()
        if line.startswith("read orders-")
    }
    assert reads == read


def test_late_records_are_found_after_later_ones(run: Run, tmp_path: Path) -> None:
    with seeklog.open(tmp_path / "data", background=False) as made:
        made.create_topic("late", partitions=1)
        with made.writer("late", 0) as log:
            for minute in (0, 5, 9, 1, 8, 2):
                log.append(b"%d" % minute, timestamp_ms=MORNING_MS + minute * 60_000)

    ran = run(
        "sql",
        "data",
        "select text(value) v from late where timestamp < '2026-01-01T00:03Z' order by timestamp",
        "--utc",
    )

    assert [row["v"] for row in rows(ran)] == ["0", "1", "2"]


def test_range_options_apply_to_all_topics(run: Run, store: Path) -> None:
    arguments = ("--topic", "orders", "--partition", 1, "--from", 2, "--to", "@2026-01-01T00:09")

    assert rows(run("sql", store, 'select "offset" o from orders', *arguments)) == [{"o": 2}, {"o": 3}]


def test_name_with_a_dash_is_quoted(run: Run, store: Path) -> None:
    run("create", store, "my-topic")

    assert rows(run("sql", store, 'select count(*) n from "my-topic"')) == [{"n": 0}]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["selec 1"], 2, "syntax error"),
        (["select * from order_s"], 4, 'there is no topic order_s; did you mean "orders"?'),
        (["select * from zzz"], 4, "there is no topic zzz; there are "),
        (["select nothing from orders"], 2, "nothing"),
        (["select cast('x' as int)"], 1, "Could not convert string 'x'"),
        (["select 1", "--topic", "order"], 4, "did you mean 'orders'?"),
        (["select 1", "--from", "soon"], 2, "'soon' is not a point in a log"),
        (["select * from orders", "--from", 100], 4, "offset 100 is out of range"),
        (["select * from orders", "--partition", 7], 4, "has no partition 7"),
        (["  "], 2, "the query is empty"),
        (["select * from read_csv('/etc/hostname')"], 1, "file system operations are disabled"),
        (["copy orders to 'x.csv'"], 1, "file system operations are disabled"),
        (["attach 'x.db'"], 1, "file system operations are disabled"),
        (["set enable_external_access = true"], 2, "configuration"),
        (["select * from store"], 4, "there is no topic store"),
    ],
)
def test_invalid_call_is_reported_in_one_line(
    run: Run, store: Path, arguments: list[Any], code: int, message: str
) -> None:
    ran = run("sql", store, *arguments)

    assert (ran.code, ran.out, ran.err.count("\n")) == (code, b"", 1), ran.err
    assert message in ran.err


def test_damage_in_a_query_is_reported_as_damage(run: Run, store: Path) -> None:
    log = store / "orders-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)

    ran = run("sql", store, "select sum(octet_length(value)) from orders")

    assert (ran.code, ran.err.count("\n")) == (3, 1), ran.err
    assert f"{log}, byte " in ran.err


TWO = 'select 1 as a; select text(key) as k from orders where "offset" = 0 and partition = 0'


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("jsonl", '{"a": 1}\n{"k": "customer_0"}\n'),
        ("json", '[\n  {\n    "a": 1\n  }\n]\n[\n  {\n    "k": "customer_0"\n  }\n]\n'),
        ("csv", "a\n1\n\nk\ncustomer_0\n"),
        ("table", "A\n1\n\nK\ncustomer_0\n"),
    ],
)
def test_result_of_each_statement_is_printed(run: Run, store: Path, form: str, text: str) -> None:
    ran = run("sql", store, TWO, "--format", form)

    assert (ran.code, ran.text, ran.err) == (0, text, "")


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "table"])
@pytest.mark.parametrize(
    "statement", ["create table n as select 1 as n", "create view v as from orders", "set variable x = 1"]
)
def test_statement_without_a_result_prints_nothing(run: Run, store: Path, statement: str, form: str) -> None:
    ran = run("sql", store, statement, "--format", form)

    assert (ran.code, ran.text, ran.err) == (0, "", "")


def test_statements_see_what_those_before_them_did(run: Run, store: Path) -> None:
    ran = run(
        "sql",
        store,
        "create table n as select count(*)::int as n from orders; insert into n values (7); "
        "set variable x = 1; create view v as from n; update n set n = 8 where n = 7; from v order by n; drop view v",
        "--format",
        "csv",
    )

    assert (ran.code, ran.text, ran.err) == (0, "n\n8\n20\n", "")


def test_error_ends_the_statements_after_it(run: Run, store: Path) -> None:
    ran = run("sql", store, "select 1 as a; select * from nowhere; select 2 as a")

    assert (ran.code, ran.lines) == (4, ['{"a": 1}'])
    assert "no topic nowhere" in ran.err


def test_syntax_error_in_a_later_statement_prints_no_result(run: Run, store: Path) -> None:
    ran = run("sql", store, "select 1 as a; selec 2")

    assert (ran.code, ran.out) == (2, b"")
    assert "syntax error" in ran.err


def test_ranges_of_each_statement_are_listed(run: Run, store: Path) -> None:
    ran = run("sql", store, "-v", 'select count(*) from orders where "offset" = 0; select count(*) from orders')

    assert [line.partition(": ")[2] for line in ran.err.splitlines() if line.startswith("read orders-0")] == [
        "1 record, offsets [0, 1)",
        "10 records, offsets [0, 10)",
    ]


def test_output_on_a_terminal_is_a_table(run_on_terminal: Run, store: Path) -> None:
    ran = run_on_terminal("sql", store, "select text(key) k, count(*) n from orders group by 1 order by 1 limit 1")

    assert ran.code == 0
    assert [line.split() for line in ran.text.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()] == [
        ["K", "N"],
        ["customer_0", "4"],
    ]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc; run on Linux")
def test_ctrl_c_ends_a_long_query(store: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "sql", str(store), "select 1 union all select count(*) from range(100000000) a, range(100000) b"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=surroundings(store),
    )
    try:
        # Once the threads of the pool and of DuckDB are running.
        tasks = Path(f"/proc/{process.pid}/task")
        ends = time.monotonic() + TIMEOUT_S
        while len(list(tasks.iterdir())) < 3 and time.monotonic() < ends:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()

    assert process.returncode == 130
    assert b"Traceback" not in message


def test_missing_duckdb_is_reported_with_the_remedy(store: Path) -> None:
    script = (
        "import sys; sys.modules['duckdb'] = None; from seeklog.cli.main import main; "
        "sys.exit(main(['sql', 'data', 'select 1']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        cwd=store.parent,
        env=surroundings(store),
        check=False,
    )

    assert (done.returncode, done.stderr.decode()) == (2, 'seeklog: sql needs duckdb: pip install "seeklog[sql]"\n')


def test_unquoted_offset_is_explained(run: Run, store: Path) -> None:
    ran = run("sql", store, "select offset from orders")

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert 'in double quotes, as "offset"' in ran.err


# ---------------------------------------------------------------- JSON in keys and values


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A topic with a JSON value, bytes that are not text, text that is not JSON, and a tombstone."""
    path = tmp_path / "mixed"
    with seeklog.open(path, background=False) as made:
        made.create_topic("orders", partitions=1)
        with made.writer("orders", 0) as log:
            for value in (b'{"paise": 3, "state": "open", "a": {"b": [1, 2]}}', b"\xff\x00", b"not JSON", None):
                log.append(value, key=b'{"k": 1}')
    return path


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("select value->>'$.paise' p from orders", [{"p": "3"}, {"p": None}, {"p": None}, {"p": None}]),
        ("select o.value ->> 'state' s from orders o limit 1", [{"s": "open"}]),
        ("select key->>'k' k, value->'a'->'b'->-1 b from orders limit 1", [{"k": "1", "b": "2"}]),
        ("select value->'a'->>'b' b from orders limit 1", [{"b": "[1,2]"}]),
        ("select count(*) n from orders where 1 = 1 and value->>'state' = 'open'", [{"n": 1}]),
        ("select v->>'paise' p from (select value v from orders) limit 1", [{"p": "3"}]),
        ("select json_extract_string(value, '$.paise') p from orders limit 1", [{"p": "3"}]),
        ("select json_type(value) t, json_type(value, 'a') a from orders limit 1", [{"t": "OBJECT", "a": "OBJECT"}]),
        ("select json_valid(value) v from orders", [{"v": True}, {"v": False}, {"v": False}, {"v": None}]),
        ("select json_keys(value, 'a') k from orders limit 1", [{"k": ["b"]}]),
        # What DuckDB itself makes of JSON and of text does not change.
        ("select '{\"a\": 5}'->>'a' t, '{\"a\": 5}'::json->'a' j, null->>'a' n", [{"t": "5", "j": "5", "n": None}]),
        ("select text(value)->>'paise' p, text(value)::json->'paise' j from orders limit 1", [{"p": "3", "j": "3"}]),
        ("select list_transform([1], lambda x: x + 1) l", [{"l": [2]}]),
        ("select '->' a, 'x' \"b->'c'\" -- -> 'd'", [{"a": "->", "b->'c'": "x"}]),
        ("select value->>'paise' from orders limit 1", [{"(\"value\" ->> 'paise')": "3"}]),
        ("select octet_length(value) n from orders where value = '\\xFF\\x00'::blob", [{"n": 2}]),
    ],
)  # fmt: skip
def test_json_operators_and_functions_take_a_value(
    run: Run, mixed: Path, query: str, found: list[dict[str, Any]]
) -> None:
    assert rows(run("sql", mixed, query)) == found


def test_values_stay_byte_for_byte(run: Run, mixed: Path) -> None:
    assert [row["value"] for row in rows(run("sql", mixed, "select value from orders"))] == [
        '{"paise": 3, "state": "open", "a": {"b": [1, 2]}}',
        {"base64": "/wA="},
        "not JSON",
        None,
    ]


def test_condition_on_json_leaves_ranges_narrow(run: Run, store: Path) -> None:
    ran = run("sql", store, "select count(*) n from orders where \"offset\" >= 8 and value->>'id' = '17'", "-v")

    assert rows(ran) == [{"n": 1}]
    assert "read orders-0: 2 records" in ran.err
    assert "read orders-1: 2 records" in ran.err


def test_text_that_is_not_json_is_still_an_error(run: Run, store: Path) -> None:
    """As in DuckDB. Only the bytes of a record that are not JSON give null."""
    ran = run("sql", store, "select 'no'->>'a'")

    assert ran.code != 0
    assert "Malformed JSON" in ran.err


@pytest.mark.parametrize("arrow", ["value->text(key)", "text(value)->('a' || 'b')"])
def test_arrow_to_a_computed_path_names_the_function(run: Run, mixed: Path, arrow: str) -> None:
    ran = run("sql", mixed, f"select {arrow} from orders")

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "write json_extract(value, path) for a computed one" in ran.err


@pytest.mark.parametrize("query", ["select timestamp from late", "select max(timestamp) from late"])
def test_time_beyond_year_9999_is_one_line_with_the_cure(run: Run, tmp_path: Path, query: str) -> None:
    with seeklog.open(tmp_path / "late") as store:
        store.create_topic("late")
        with store.writer("late", 0) as log:
            log.append(b"x", timestamp_ms=2**50)

    ran = run("sql", tmp_path / "late", query)

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "timestamp::varchar" in ran.err
