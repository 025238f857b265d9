from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.workbench import Run
from handover.workbench import TOPICS, fill, make_cluster, rows_in, state_of
from seeklog import names
from store.workbench import open_store

IDS = {"payments": "5JdNGzCmQmupZbKTTsDZjQ", "customers": "LzjCN9ITT6GiARMut4Wxgg", "empty": "CCIijd9qQoapWzIlhPqdXg"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "data")
    return tmp_path / "data"


def test_in_a_pipe_only_the_plan_is_printed(run: Run, root: Path) -> None:
    before = state_of(root)
    for arguments in ((), ("--dry-run",), ("--dry-run", "--yes")):
        ran = run("handover", "data", "--to-kafka", *arguments)
        assert ran.code == 0
        actions = {row["action"] for row in map(json.loads, ran.lines)}
        assert actions == {"hand over", "set", "leave out", "write"}
        assert ran.err == (
            "would hand over data, with 8 partitions, to a new cluster; nothing was changed. Pass --yes to do it\n"
        )
    assert state_of(root) == before


def test_handover_prints_the_properties_and_the_command(run: Run, root: Path, tmp_path: Path) -> None:
    ran = run("handover", "data", "--to-kafka", "--yes", "--listener", "127.0.0.1:19092", "--properties", "p")

    assert ran.code == 0, ran.err
    lines = ran.err.splitlines()
    assert lines[0] == "handed over data to Kafka 4.3. Its server.properties:"
    assert f"log.dirs={root}" in lines
    assert "listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093" in lines
    assert lines[-1] == "Start the broker with: bin/kafka-server-start.sh server.properties"
    assert (tmp_path / "p").read_text().splitlines() == lines[1:-1]
    again = run("handover", "data", "--to-kafka", "--yes")
    assert (again.code, "Start its broker" in again.err) == (1, True)


def test_on_a_terminal_it_asks(run_on_terminal: Run, root: Path) -> None:
    before = state_of(root)

    declined = run_on_terminal("handover", "data", "--to-kafka", "--no-color", typed="n\n")
    assert (declined.code, state_of(root)) == (1, before)
    assert b"ACTION" in declined.out
    assert b"raised from 600, the minimum of a broker" in declined.out

    agreed = run_on_terminal("handover", "data", "--to-kafka", typed="y\n")
    assert agreed.code == 0
    assert (root / names.META_PROPERTIES).exists()


def test_set_passes_the_configuration_of_a_process(run: Run, root: Path) -> None:
    ran = run("handover", "data", "--to-kafka", "--set", "retention.ms=-1", "--json")
    rows = [json.loads(line) for line in ran.lines]
    kept = {row["topic"] for row in rows if row["setting"] == "retention.ms" and row["value"] == "-1"}
    assert kept == {"customers", "empty", "payments"}


def test_store_is_copied_into_a_brokers_directory(run: Run, root: Path, tmp_path: Path) -> None:
    make_cluster(tmp_path / "broker", {name: (IDS[name], count) for name, (count, _) in TOPICS.items()})

    ran = run("handover", "data", "--to-kafka", "--into", "broker", "--group-offsets", "groups.csv", "--yes")

    assert ran.code == 0, ran.err
    assert rows_in(tmp_path / "broker") == rows_in(root)
    assert (tmp_path / "groups.csv").read_text().splitlines()[-1] == "fraud,payments,1,9"
    assert ran.err.splitlines()[-1] == (
        "bin/kafka-consumer-groups.sh --bootstrap-server 127.0.0.1:9092 --reset-offsets --group 'a, b' --group fraud "
        f"--from-file {tmp_path}/groups.csv --execute"
    )


def test_missing_topics_are_named_with_commands_to_create_them(run: Run, root: Path, tmp_path: Path) -> None:
    make_cluster(tmp_path / "broker", {"empty": (IDS["empty"], 1)})

    ran = run("handover", "data", "--to-kafka", "--into", "broker", "--yes")

    assert ran.code == 1
    assert "the cluster lacks 2 topics. Start its broker" in ran.err
    commands = [line for line in ran.err.splitlines() if line.startswith("bin/kafka-topics.sh")]
    assert [command.split()[5] for command in commands] == ["customers", "payments"]
    assert not (root / names.GROUP_OFFSETS).exists()


def test_store_is_taken_back(run: Run, root: Path) -> None:
    assert run("handover", "data", "--to-kafka", "--yes").code == 0
    with open_store(root) as store:
        topic_id = store.describe_topic("customers").topic_id
    (root / "customers-0" / names.PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {IDS['customers']}")

    plan = run("handover", "data", "--from-kafka")
    assert plan.code == 0
    assert [row["action"] for row in map(json.loads, plan.lines)] == ["recreated topic"]
    assert "settings were not compared" in plan.err
    done = run("handover", "data", "--from-kafka", "--yes")

    assert done.code == 0, done.err
    assert "took data back" in done.err
    with open_store(root) as store:
        assert store.describe_topic("customers").topic_id == IDS["customers"] != topic_id


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "pass either --to-kafka or --from-kafka"),
        (("--to-kafka", "--from-kafka"), "pass either --to-kafka or --from-kafka"),
        (("--from-kafka", "--into", "x"), "--into does not apply to --from-kafka"),
        (("--to-kafka", "--into", "x", "--node-id", "2"), "--node-id does not apply to --into"),
        (("--to-kafka", "--metadata", "x"), "--metadata does not apply to --to-kafka without --into"),
        (("--to-kafka", "--kafka-version", "3.9"), "name one of 4.0, 4.1, 4.2, 4.3"),
        (("--to-kafka", "--listener", "nowhere"), "a listener is HOST:PORT"),
        (("--to-kafka", "--set", "retention=1"), "did you mean retention.ms"),
        (("--to-kafka", "--properties", "data"), "already exists"),
    ],
)
def test_conflicting_options_are_refused(run: Run, root: Path, arguments: tuple[str, ...], message: str) -> None:
    before = state_of(root)
    ran = run("handover", "data", *arguments)
    assert (ran.code, message in ran.err) == (2, True), ran.err
    assert state_of(root) == before


def test_open_store_and_missing_store_are_refused(run: Run, root: Path) -> None:
    with open_store(root):
        ran = run("handover", "data", "--to-kafka", "--yes")
    assert ran.code == 5
    assert "stop it there, then run this again" in ran.err
    assert run("handover", "nothing", "--to-kafka").code == 4
    assert run("handover", "data", "--from-kafka").code == 1
