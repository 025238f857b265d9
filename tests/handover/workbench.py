"""A store to hand over, and the files of a cluster's directory without a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import seeklog
from seeklog import names
from seeklog.files import Files, OsFiles
from seeklog.record.batch import encode_batch
from seeklog.record.record import Record
from seeklog.topics.kraft.metadata import (
    BROKER_RESOURCE,
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
    Written,
    encode_metadata,
)
from store.workbench import open_store

TOPICS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "payments": (2, {"retention.ms": -1, "segment.bytes": 600, "compression.type": "gzip", "key.index": "none"}),
    "customers": (1, {"cleanup.policy": "compact", "flush": "os"}),
    "empty": (1, {"flush": "batch"}),
}
UNLIMITED: Final = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
"""What a broker gets for every topic whose retention and timestamps nobody limited: its own defaults limit both."""
DIRECTORY_ID: Final = "c2Vla2xvZy1nb2xkZW4tMA"
CLUSTER_ID: Final = "aW50ZXJvcC1jbHVzdGVyMQ"


def fill(root: Path | str, files: Files | None = None, *, with_groups: bool = True) -> None:
    """Create a store of three topics; one has a deleted beginning inside a segment, and two leader epochs."""
    with open_store(Path(root), files=files) as store:
        for name, (count, config) in TOPICS.items():
            store.create_topic(name, partitions=count, config=config)
        for topic, number in (("payments", 0), ("payments", 1), ("customers", 0)):
            with store.writer(topic, number) as log:
                for value in range(12):
                    log.append(b"%s-%d" % (topic.encode(), value), key=b"k%d" % (value % 3))
                    if value == 8 and topic == "payments":
                        log.begin_epoch(6)
        with store.writer("payments", 0) as log:
            log.delete_before(3)
        if with_groups:
            for group in ("fraud", "a, b"):
                with store.consumer(group=group, enable_auto_commit=False) as consumer:
                    consumer.assign([("payments", 0), ("payments", 1)])
                    consumer.commit({("payments", 0): 5, ("payments", 1): 9})
        for topic in store.topics(internal=True):
            for number in store.topic(topic).partitions:
                # The handover would open a partition that no writer has opened.
                if names.CHECKPOINT not in (files or OsFiles()).list(f"{root}/{topic}-{number}"):
                    with store.writer(topic, number):
                        pass


def rows_in(root: Path | str, files: Files | None = None) -> dict[str, list[tuple[int, bytes | None]]]:
    with seeklog.open(root, files=files, read_only=True, background=False) as store:
        return {
            f"{topic}-{number}": [(record.offset, record.value) for record in store.log(topic, number).scan()]
            for topic in store.topics()
            for number in store.topic(topic).partitions
        }


def make_cluster(
    data: Path,
    topics: Mapping[str, tuple[str, int]],
    *,
    replicas: tuple[int, ...] = (1,),
    leader_epoch: int = 2,
    config: Mapping[str, Mapping[str, str]] | None = None,
    brokers: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Write what a stopped broker leaves of a cluster with empty topics: name, then id and number of partitions.

    `config` has settings of topics, `brokers` those of brokers by id.
    """
    data.mkdir()
    (data / "meta.properties").write_text(
        f"#\n#Wed Nov 18 19:12:41 UTC 2026\nnode.id=1\ndirectory.id={DIRECTORY_ID}\nversion=1\n"
        f"cluster.id={CLUSTER_ID}\n"
    )
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    records: list[Written] = []
    for name, (topic_id, count) in topics.items():
        records.append(TopicRecord(name=name, topic_id=topic_id))
        for number in range(count):
            records.append(
                PartitionRecord(
                    partition=number,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=1,
                    leader_epoch=leader_epoch,
                )
            )
            directory = data / f"{name}-{number}"
            directory.mkdir()
            for suffix in (".log", ".index", ".timeindex"):
                (directory / f"{0:020d}{suffix}").touch()
            (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
            (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        records += [
            ConfigRecord(resource_name=name, name=word, value=value)
            for word, value in (config or {}).get(name, {}).items()
        ]
    records += [
        ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=word, value=value)
        for broker, words in (brokers or {}).items()
        for word, value in words.items()
    ]
    write_metadata(data, records)


def write_metadata(data: Path, records: Sequence[Written]) -> None:
    """Write the metadata log of a cluster."""
    metadata = data / "__cluster_metadata-0"
    metadata.mkdir(exist_ok=True)
    values = [Record(encode_metadata(record)) for record in records] or [Record(b"\x01\x14\x00\x00")]
    (metadata / f"{0:020d}.log").write_bytes(encode_batch(values, now_ms=1))
    (metadata / f"{0:020d}.index").touch()
    (metadata / f"{0:020d}.timeindex").touch()


def state_of(root: Path) -> dict[str, bytes]:
    """Return every file below a directory, except for lock files."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }


def lead(root: Path, *, append: Mapping[str, Sequence[bytes]] | None = None) -> None:
    """Act like a broker that leads every partition: note its epoch, append records with it, and stop."""
    ends: dict[str, int] = {}
    starts: dict[str, int] = {}
    for directory in sorted(root.iterdir()):
        if not directory.is_dir():
            continue
        with seeklog.LogReader(directory) as log:
            ends[directory.name], starts[directory.name] = log.log_end_offset, log.log_start_offset
            epoch = log.leader_epoch + 1
        checkpoint = directory / "leader-epoch-checkpoint"
        end = ends[directory.name]
        before = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        entries = [line for line in before if int(line.split()[1]) < end] + [f"{epoch} {end}"]
        checkpoint.write_text("\n".join(["0", str(len(entries)), *entries, ""]))
        values = (append or {}).get(directory.name, ())
        if values:
            records = [Record(value, key=b"k") for value in values]
            batch = encode_batch(records, now_ms=1, base_offset=end, leader_epoch=epoch)
            last = sorted(directory.glob("*.log"))[-1]
            last.write_bytes(last.read_bytes() + batch)
            ends[directory.name] += len(values)
    write_root(root, "recovery-point-offset-checkpoint", ends)
    write_root(root, "replication-offset-checkpoint", ends)
    write_root(root, "log-start-offset-checkpoint", starts)


def write_root(root: Path, name: str, offsets: Mapping[str, int]) -> None:
    """Write one of Kafka's checkpoints of a root."""
    lines = [
        f"{directory.rpartition('-')[0]} {directory.rpartition('-')[2]} {end}" for directory, end in offsets.items()
    ]
    (root / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def as_broker_left_it(directory: Path) -> None:
    """Remove the files that only seeklog writes into a partition."""
    for path in [*directory.glob("seeklog-*"), *directory.glob("*.seal"), directory / ".lock"]:
        path.unlink(missing_ok=True)
