"""Ten minutes beside a broker that appends, rolls, compacts, deletes, recreates, and restarts, half by SIGKILL.

A store that stays open, `verify` and `ls` in a loop, and Spark batches and streams must have no crash, no wrong answer,
and no false alarm. SEEKLOG_SOAK_SECONDS sets another length.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from interop.kafka_jars import VERSIONS, jars_or_skip
from interop.make_broker_golden import wait_until
from interop.real_broker import RealBroker
from soak.ledger import Ledger
from soak.table import put_row
from soak.traffic import PROPERTIES, Readers, Traffic, running

SECONDS = float(os.environ.get("SEEKLOG_SOAK_SECONDS", "600"))
RESTART_S = 45.0
RECREATE_S = 3.0


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS[:1])
def test_ten_minutes_beside_a_broker_without_crash_or_wrong_answer(tmp_path: Path, version: str) -> None:
    broker = RealBroker(jars_or_skip(version), tmp_path, properties=PROPERTIES)
    ledger = Ledger(tmp_path / "ledger", create=True)
    # A restarted stream must find its offsets, so records are kept for 80 seconds.
    traffic = Traffic(broker, ledger, rate=500, kept=40_000)
    readers = Readers(broker.data, tmp_path, tmp_path / "ledger")
    broker.format()
    broker.start()
    try:
        with running(readers):
            traffic.begin()
            try:
                wait_until(lambda: ledger.acked(0) > 0, "the first records")
                readers.start("soak.reader")
                readers.start("soak.spark_reader")
                readers.start_verbs()
                run(traffic, readers)
            finally:
                traffic.end()
            found = readers.stop()
    finally:
        broker.kill()
    restarts = ", ".join(f"{count} restarts ({how})" for how, count in traffic.restarts.items())
    rounds = (
        f"{SECONDS:.0f} s: {traffic.deletions} DeleteRecords, {traffic.incarnations} topics created again, {restarts}; "
        f"{found.counts.get('answers', 0)} answers, {found.counts.get('stream batches', 0)} batches of a stream, "
        f"{found.counts.get('keys at rest', 0)} newest records of keys that rest, "
        f"{found.counts.get('verify', 0)} verify, {found.counts.get('ls', 0)} ls"
    )
    put_row(
        "readers beside a broker that writes, rolls, compacts, deletes and restarts",
        kafka=version,
        rounds=rounds,
        records=found.counts.get("records", 0),
        faults=found.summary().splitlines()[0],
    )
    print(rounds, found.summary(), sep="\n")
    assert not traffic.failures, traffic.failures[:3]
    assert not found.faults, found.summary()


def run(traffic: Traffic, readers: Readers) -> None:
    """Do the administrator's work until the time is over."""
    over = time.monotonic() + SECONDS
    restart_at = time.monotonic() + RESTART_S
    recreate_at = time.monotonic()
    number = 0
    pause = threading.Event()
    while (now := time.monotonic()) < over:
        traffic.delete_records()
        if now > recreate_at:
            traffic.recreate_fleeting()
            recreate_at = now + RECREATE_S
        readers.look()
        if now > restart_at:
            traffic.restart(("clean", "kill -9")[number % 2])
            number += 1
            restart_at = time.monotonic() + RESTART_S
        pause.wait(0.5)
