from __future__ import annotations

import json
import random
import tarfile
from pathlib import Path

import seeklog
from cli.segmented import RECORDS, flip, logs_of, make_segments, state_of
from cli.workbench import Run

SEED = 20260103
BROKER = Path(__file__).parents[1] / "interop" / "golden" / "broker" / "kafka-4.3.1-clean.tar.gz"


def records(path: Path) -> dict[int, bytes | None]:
    with seeklog.open(path, read_only=True, background=False) as store:
        return {record.offset: record.value for record in store.log("orders", 0).scan()}


def test_in_a_pipe_only_the_plan_is_printed(run: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    flip(logs_of(partition)[1], 750)
    before = state_of(tmp_path / "data")

    for arguments in ((), ("--dry-run",), ("--dry-run", "--yes")):
        ran = run("repair", "data", *arguments)
        assert ran.code == 3
        actions = [row["action"] for row in map(json.loads, ran.lines)]
        assert actions == ["quarantine", "give up", "rewrite"]
        assert ran.err.endswith("1 offset lost; nothing was changed. Pass --yes to do it\n")
    assert state_of(tmp_path / "data") == before


def test_damage_is_found_and_repaired(run: Run, tmp_path: Path) -> None:
    """Goal: verify names a flip anywhere in three segments, a repair removes it, and all other records are kept."""
    chance = random.Random(SEED)
    for number in range(6):
        store = tmp_path / f"data-{number}"
        partition = make_segments(store)
        values = records(store)
        file = logs_of(partition)[number % 3]
        flip(file, chance.randrange(file.stat().st_size), mask=1 << chance.randrange(8))

        assert run("verify", store).code == 3
        repaired = run("repair", store, "--quarantine")
        assert repaired.code == 0, repaired.err
        assert run("verify", store, "--deep").code == 0
        found = records(store)
        assert found.items() <= values.items()
        assert len(found) >= RECORDS - 1


def test_on_a_terminal_it_asks(run_on_terminal: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    flip(logs_of(partition)[1], 750)
    before = state_of(tmp_path / "data")

    declined = run_on_terminal("repair", "data", "orders", "--no-color", typed="n\n")
    assert (declined.code, state_of(tmp_path / "data")) == (1, before)
    assert "? [y/N]" in declined.text

    agreed = run_on_terminal("repair", "data", "orders", "--no-color", typed="y\n")
    assert agreed.code == 0
    assert "repaired orders-0: 1 segment rewritten or resealed, 86 B quarantined, 1 offset lost" in agreed.text


def test_log_that_recovery_refuses_opens_after_a_repair(run: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    last = logs_of(partition)[-1]
    last.write_bytes(last.read_bytes()[:-100])

    assert run("repair", partition, "--yes").code == 0

    with seeklog.open(tmp_path / "data", background=False) as store, store.writer("orders", 0) as log:
        assert log.append(b"next", key=b"k") == RECORDS
    assert "lost 48 50 " in (partition / "seeklog-losses").read_text()
    assert run("verify", "data").code == 0


def test_intact_batches_are_restored_from_a_torn_file(run: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    *_, last = logs_of(partition)
    data = last.read_bytes()
    torn = partition / f"{last.stem}.{len(data)}.torn"
    batch = bytearray(data[-86:])
    batch[:8] = RECORDS.to_bytes(8, "big")
    torn.write_bytes(bytes(batch))

    assert run("repair", "data").err == "checked 1 partition: nothing to repair\n"
    ran = run("repair", "data", "--from-torn", "--yes")

    assert ran.code == 0
    assert ran.err.endswith("0 offsets lost, 1 record restored\n")
    assert sorted(records(tmp_path / "data")) == list(range(RECORDS + 1))
    assert torn.read_bytes() == bytes(batch)


def test_repaired_broker_directory_stays_a_brokers(run: Run, tmp_path: Path) -> None:
    with tarfile.open(BROKER) as packed:
        packed.extractall(tmp_path / "broker", filter="data")
    root = next(path.parent for path in (tmp_path / "broker").rglob("meta.properties"))
    file = max((path for path in root.glob("[a-z]*/*.log")), key=lambda path: path.stat().st_size)
    position = file.stat().st_size // 2
    flip(file, position)
    before = {path.name for path in file.parent.iterdir()}
    assert run("verify", file.parent).code == 3

    ran = run("repair", root, file.parent.name, "--yes")

    assert ran.code == 0, ran.err
    assert run("verify", root, "--deep").code == 0
    assert run("dump", file, "--deep").code == 0
    added = {path.name for path in file.parent.iterdir()} - before
    assert {name.rpartition(".")[2] for name in added} <= {"damaged", "lock", "seeklog-losses"}


def test_log_open_in_another_process_is_locked(run: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    with seeklog.open(tmp_path / "data", background=False) as store, store.writer("orders", 0):
        flip(logs_of(partition)[0], 750)
        ran = run("repair", "data", "--yes")

    assert ran.code == 5
    assert ran.err.count("\n") == 1


def test_full_disk_is_one_line_and_the_next_repair_finishes(run: Run, tmp_path: Path) -> None:
    import resource
    import subprocess
    import sys

    from cli.workbench import COMMAND, surroundings
    from measuring import unmeasured

    partition = make_segments(tmp_path / "data")
    flip(logs_of(partition)[1], 750)
    done = subprocess.run(
        [*COMMAND, "repair", "data", "--yes"],
        capture_output=True,
        cwd=tmp_path,
        env=unmeasured(surroundings(tmp_path)),
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert done.returncode == 1, (sys.version, done.stderr)
    assert done.stderr.count(b"\n") == 1

    assert run("repair", "data", "--yes").code == 0
    assert run("verify", "data").code == 0


def test_archive_is_not_repaired(run: Run, tmp_path: Path) -> None:
    make_segments(tmp_path / "data")
    with seeklog.open(tmp_path / "data", background=False) as store:
        store.archive(str(tmp_path / "cold"))

    ran = run("repair", "cold")

    assert ran.code == 2
    assert "is in an archive, which is read-only" in ran.err


def test_missing_partition_is_reported_in_one_line(run: Run, store: Path) -> None:
    assert run("repair", "nowhere").code == 4
    ran = run("repair", "data", "order-0")
    assert (ran.code, ran.err) == (
        4,
        f"seeklog: there is no topic 'order-0' in {store}; did you mean 'orders-0'?\n",
    )
