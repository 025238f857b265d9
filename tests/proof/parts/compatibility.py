"""Target 22: seeklog reads files of other programs and of earlier releases, and other programs read its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interop import broker_directories, golden_batches, releases
from proof.part import Missing, Run, part
from seeklog.record.codec import CODEC_IDS

if TYPE_CHECKING:
    from collections.abc import Callable


@part(
    22,
    "Read batches of other clients and of brokers, append them, and read them back byte for byte",
    covers=("log",),
    uses=("tests/interop/golden",),
)
def golden_batches_of_others(run: Run) -> None:
    for name in run.choose(golden_batches.NAMES, short=12):
        run.case()
        raw, expected = golden_batches.raw_bytes(name), golden_batches.expected_records(name, base_offset=1)
        with golden_batches.open_log(run.scratch / name) as log:
            log.append(b"ahead")
            log.append_batches(raw)
        with golden_batches.open_log(run.scratch / name) as log:
            found = list(log.scan(1))
            kept = b"".join(batch.raw for batch in log.read_batches(1, max_bytes=1 << 24))
        if golden_batches.facts(found) != golden_batches.facts(expected):
            run.violation(f"{name}: the records differ from those that its writer appended")
        if golden_batches.without_stamps(kept) != golden_batches.without_stamps(raw):
            run.violation(f"{name}: bytes other than base offset and leader epoch have changed")


@part(
    22,
    "Read data directories of Kafka brokers, and compare with what Kafka's clients read there",
    covers=("log",),
    uses=("tests/interop/golden/broker",),
)
def golden_directories_of_brokers(run: Run) -> None:
    broker_directories.unpack(run.scratch)
    for name, partition in run.choose(broker_directories.PARTITIONS, short=12):
        run.case()
        directory = run.scratch / name / partition
        before = broker_directories.contents(directory)
        facts = broker_directories.facts(name, partition)
        for read_only in (True, False):
            opening = broker_directories.open_reader if read_only else broker_directories.open_log
            with opening(directory) as log:
                found = broker_directories.rows(log.scan(facts["log_start_offset"]), partition)
            if found != broker_directories.expected_rows(name, partition):
                run.violation(
                    f"{name}, {partition}, read_only={read_only}: the records differ from those that a client got"
                )
            if read_only and broker_directories.contents(directory) != before:
                run.violation(f"{name}, {partition}: reading has changed it")


@part(
    22,
    "Open and read all files that earlier releases of seeklog wrote",
    covers=("store",),
    uses=("tests/interop/golden/seeklog",),
)
def golden_releases(run: Run) -> None:
    for version in releases.VERSIONS:
        told = releases.description(version)
        for mode in ("read", "written"):
            run.case()
            root = run.scratch / f"{version}-{mode}"
            releases.unpack(version, root)
            if releases.look(str(root), read_only=mode == "read") != told[mode]:
                run.violation(f"{version}, {mode}: the answers differ from those of the release")
    run.note(", ".join(releases.VERSIONS))


@part(22, "Decode seeklog's segments with aiokafka, kafka-python and librdkafka", covers=("log",))
def segments_read_by_others(run: Run) -> None:
    try:
        from interop import peer_readers
        from interop.mock_broker import MockBroker
    except ImportError as error:
        raise Missing(f"{error.name}: pip install -e .[dev]") from error
    expected = peer_readers.expected_facts(peer_readers.NUMBERED)
    with MockBroker() as broker:
        for codec in run.choose(CODEC_IDS, short=2):
            raw = peer_readers.write_segments(run.scratch / f"{codec}-0", codec)

            def by_librdkafka(raw: bytes, codec: str = codec) -> list[peer_readers.Facts]:
                return peer_readers.librdkafka_reads(broker, f"proof-{codec}", raw, record_count=len(expected))

            readers: dict[str, Callable[[bytes], list[peer_readers.Facts]]] = {
                "aiokafka": peer_readers.aiokafka_reads,
                "kafka-python": peer_readers.kafka_python_reads,
                "librdkafka": by_librdkafka,
            }
            for name, read in readers.items():
                if peer_readers.lacks_library(read, codec):
                    run.note(f"kafka-python lacks a library for {codec}")
                    continue
                run.case()
                if read(raw) != expected:
                    run.violation(f"{name} reads different records from a segment with {codec}")
