"""The text files of a store: checkpoint, catalog, transactions, producers, manifests, and Kafka's own checkpoints."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

from fuzz.mutation import mutate_frame, mutate_json, put_word, seal_frame
from fuzz.target import Broken, Scramble, Target, enter
from seeklog import names
from seeklog.archive import manifest as archive
from seeklog.errors import CorruptionError
from seeklog.log.side.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from seeklog.log.side.epochs import LeaderEpochs, decode_epochs, encode_epochs
from seeklog.log.side.root_offsets import RootOffsets, decode_offsets, encode_offsets
from seeklog.log.staging import StagedFile
from seeklog.log.transaction import Part, Transaction, decode_transaction, encode_transaction
from seeklog.names import TopicPartition
from seeklog.record.crc import crc32c
from seeklog.spark.lake import manifest as lake
from seeklog.topics.catalog import (
    Topic,
    decode_catalog,
    deleted,
    deleting,
    encode_catalog,
    encode_change,
    opened,
    put,
)
from seeklog.topics.producer_ids import Identity, decode_identity, encode_identity

PATH = "file"
INT64 = range(-(2**63), 2**63)
STAGED = names.staged_name(names.app_key("app"), now_ms=1_700_000_000_000, unique="0" * 32)


def mutate_text(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    return put_word(data, chance) if chance.randrange(3) else scramble(data)


def check_numbers(*numbers: object) -> None:
    """Check that decoded numbers fit in 64 bits."""
    for number in numbers:
        if type(number) is not int or number not in INT64:
            raise Broken(f"{number!r} is not a 64-bit number")


# ---------------------------------------------------------------- seeklog's own


def checkpoint_seeds() -> Iterator[bytes]:
    yield encode_checkpoint(Checkpoint(0, 0, 0, 0))
    numbers = (40, 44, 500, 1, 3, 7, 8, 9, 10, 11)
    epochs, gaps = ((0, 0), (3, 700)), ((200, 300),)
    yield encode_checkpoint(Checkpoint(1000, 0, 1000, 0, 2, epochs, numbers, has_producers=True, gaps=gaps))


def read_checkpoint(data: bytes) -> None:
    found = decode_checkpoint(data, path=PATH)
    check_numbers(found.recovery_point, found.log_start_offset, found.high_watermark, found.contiguous_from)
    check_numbers(found.generation, *(number for pair in (*found.epochs, *found.gaps) for number in pair))
    check_numbers(*(found.active or ()))


CATALOG_SIZE = 4096


def catalog_seeds() -> Iterator[bytes]:
    plain = Topic(name="payments", topic_id="5JdNGzCmQmupZbKTTsDZjQ", partitions=(0, 1), config={"retention.ms": 1000})
    going = Topic(name="a.b_c-7", topic_id="x", partitions=(0,), change="grow", partitions_changing=(1, 2))
    # As seeklog 0.1 wrote it.
    old = seal_frame(b"seeklog-topics 1\n" + b"".join(json.dumps(put(at)).encode() + b"\n" for at in (going, plain)))
    yield old
    # As a deletion on a full disk leaves it.
    yield old.replace(b'{"topic": "payments"', b'{"topic":\t"payments"')
    new = replace(plain, name="new", unopened=(0, 1))
    changes = (put(new), opened({"new": (1,)}), deleting("payments"), deleted("payments"))
    snapshot = encode_catalog({"a.b_c-7": going, "payments": plain}, min_room=0).rstrip(b"\0")
    yield (snapshot + b"".join(map(encode_change, changes))).ljust(CATALOG_SIZE, b"\0")
    yield encode_catalog({}, min_room=0)


def mutate_catalog(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    """Damage the snapshot, or a change; then usually correct the CRCs."""
    head, mark, rest = data.partition(b"\ncrc32c ")
    if not data.startswith(b"seeklog-topics 2 ") or not mark:
        return mutate_frame(data, chance, scramble)
    lines = rest[9:].rstrip(b"\0").splitlines()
    if lines and chance.randrange(2):
        at = chance.randrange(len(lines))
        front, text = lines[at][:18], lines[at][18:]
        kind = chance.randrange(4)
        if kind == 0:
            return scramble(data)
        lines[at] = front + (mutate_json(text, chance) if kind == 1 else put_word(text, chance))
        if kind == 3:
            lines[at : at + 1] = chance.choice(([], [lines[at]] * 2, [b""]))
    else:
        head = mutate_frame(head + mark + rest[:9], chance, scramble).rpartition(b"\ncrc32c ")[0]
    return seal_catalog(head + mark + rest[:9] + b"".join(line + b"\n" for line in lines))


def seal_catalog(data: bytes) -> bytes:
    """Return a catalog with the right CRCs and sizes."""
    head, mark, rest = data.partition(b"\ncrc32c ")
    if not data.startswith(b"seeklog-topics 2 ") or not mark:
        return seal_frame(data)
    _, *topics = head.split(b"\n")
    body = b"\n".join([b"seeklog-topics 2 %d" % CATALOG_SIZE, *topics, b""])
    texts = [line[18:] for line in rest[9:].rstrip(b"\0").splitlines()]
    changes = b"".join(b"%08x:%08x:%s\n" % (19 + len(text), crc32c(text), text) for text in texts)
    sealed = b"%scrc32c %08x\n%s" % (body, crc32c(body), changes)
    return sealed.ljust(CATALOG_SIZE, b"\0")[:CATALOG_SIZE]


def read_catalog(data: bytes) -> None:
    for name, topic in decode_catalog(data, path=PATH).items():
        names.check_topic_name(name)
        check_numbers(*topic.partitions, *topic.partitions_changing)
        if topic.partition_count > 2**31:
            raise Broken(f"{topic.partition_count} partitions")


def transaction_seeds() -> Iterator[bytes]:
    file = StagedFile(STAGED, 81920, 3735928559, 512, (40000, 81920))
    yield encode_transaction(Transaction("app", 12, "committing", (Part("alerts-0", "5JdN", 1042, (file,)),)))
    yield encode_transaction(Transaction("other", 0, "done", (), False))


def read_transaction(data: bytes) -> None:
    """Check that every name is a valid path, and every number a valid position."""
    found = decode_transaction(data, path=PATH)
    names.app_key(found.app)
    check_numbers(found.version)
    for part in found.parts:
        if names.parse_partition_name(part.partition) is None:
            raise Broken(f"a partition called {part.partition!r}")
        check_numbers(part.base_offset, part.record_count)
        for file in part.files:
            if names.parse_staged_name(file.name) is None:
                raise Broken(f"a staged file called {file.name!r}")
            check_numbers(file.size, file.crc, file.record_count, *file.ends)


def identity_seeds() -> Iterator[bytes]:
    yield encode_identity(Identity(3098210398123098, 4, "loader"))


def read_identity(data: bytes) -> None:
    found = decode_identity(data, path=PATH)
    check_numbers(found.producer_id, found.epoch)
    if found.producer_id < 0 or not 0 <= found.epoch < 2**15:
        raise Broken(f"a producer {found.producer_id} of epoch {found.epoch}")


# ---------------------------------------------------------------- manifests


def archive_seeds() -> Iterator[bytes]:
    stored = archive.StoredFile(500, 7)
    segment = archive.SegmentEntry(
        base_offset=0,
        next_offset=4,
        record_count=4,
        batch_count=1,
        max_timestamp_ms=-1,
        seal_bytes=b"\0" * 80,
        stem=f"{0:020d}",
        files={names.LOG: stored, names.SEAL: stored},
    )
    later = archive.SegmentEntry(
        base_offset=10,
        next_offset=12,
        record_count=2,
        batch_count=1,
        max_timestamp_ms=9,
        seal_bytes=None,
        stem=f"{10:020d}-0a0b0c0d",
        files={names.LOG: stored},
    )
    partition = archive.PartitionEntry(
        partition=0, log_start_offset=0, epochs=((0, 0),), segments=(segment, later), gaps=((4, 10),)
    )
    topic = archive.TopicEntry(name="payments", topic_id="id", config={}, partitions={0: partition})
    yield archive.encode_manifest(archive.Manifest(topics={"payments": topic}, is_complete=True, replaced=()))


def mutate_archive(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    kind = chance.randrange(8)
    if kind == 0:
        return scramble(data)
    return seal_archive(put_word(data, chance) if kind == 1 else mutate_json(data, chance))


def seal_archive(data: bytes) -> bytes:
    try:
        document = json.loads(data)
        content = json.dumps(document["content"], sort_keys=True, separators=(",", ":")).encode("ascii")
        document["crc32c"] = f"{crc32c(content):08x}"
        return json.dumps(document).encode("ascii")
    except (ValueError, KeyError, TypeError, RecursionError):
        return data


def read_archive(data: bytes) -> None:
    """Check that every path is inside the archive."""
    for path, file in archive.decode_manifest(data, path=PATH).paths().items():
        directory, _, name = path.partition("/")
        if names.parse_partition_name(directory) is None or "/" in name or name in ("", ".", ".."):
            raise Broken(f"a file at {path!r}")
        check_numbers(file.size, file.crc)


def lake_seeds() -> Iterator[bytes]:
    path = f"{names.lake_directory('orders', '2026-01-01')}/"
    path += names.lake_file_name(0, start=0, next_offset=5000, number=0)
    file = lake.LakeFile(path, 0, 5000, 5000, 100_000, 0, 1)
    one = lake.LakePartition(topic_id="id", ranges=((0, 5000), (6000, 6001)), files=(file,))
    yield lake.encode_manifest(lake.Manifest(commit=7, written_at_ms=1, partitions={TopicPartition("orders", 0): one}))


def read_lake(data: bytes) -> None:
    for file in lake.decode_manifest(data, path=PATH).files():
        check_numbers(file.start, file.next_offset, file.rows, file.size, file.min_timestamp_ms, file.max_timestamp_ms)


# ---------------------------------------------------------------- Kafka's


def epochs_seeds() -> Iterator[bytes]:
    yield from (encode_epochs([]), encode_epochs([(0, 0), (3, 700), (4, 700)]))


def read_epochs(data: bytes) -> None:
    entries = decode_epochs(data)
    if entries is not None:
        check_numbers(*(number for entry in entries for number in entry))
        epochs = LeaderEpochs(entries)
        epochs.merge([(9, 900)], log_start_offset=10, log_end_offset=1000)
        epochs.end_offset(3, log_end_offset=1000)


def offsets_seeds() -> Iterator[bytes]:
    partitions = [TopicPartition("payments", number) for number in range(4)]
    yield from (encode_offsets({}), encode_offsets({at: 1000 + at.partition for at in partitions}))


def read_offsets(data: bytes) -> None:
    found = decode_offsets(data)
    if found is None:
        return
    for at, offset in found.items():
        check_numbers(at.partition, offset)
        known = RootOffsets(found, found, found).of(at)
        if known is None or known.recovery_point < 0:
            raise Broken(f"{at} has {known}")


def read_config(data: bytes) -> None:
    """Parse the configuration of a topic from a user or a catalog."""
    from seeklog.config import LogConfig

    try:
        settings = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptionError("no JSON") from None
    if isinstance(settings, dict):
        LogConfig().with_settings(settings)


def config_seeds() -> Iterator[bytes]:
    yield json.dumps(
        {"retention.ms": 1000, "cleanup.policy": "compact", "segment_bytes": 4096, "flush": "batch"}
    ).encode()


def mutate_config(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    return mutate_json(data, chance) if chance.randrange(8) else scramble(data)


enter(Target("checkpoint", read_checkpoint, checkpoint_seeds, mutate_frame, seal_frame))
enter(Target("catalog", read_catalog, catalog_seeds, mutate_catalog, seal_catalog))
enter(Target("config", read_config, config_seeds, mutate_config, bytes))
enter(Target("transaction", read_transaction, transaction_seeds, mutate_frame, seal_frame))
enter(Target("identity", read_identity, identity_seeds, mutate_frame, seal_frame))
enter(Target("archive_manifest", read_archive, archive_seeds, mutate_archive, seal_archive))
enter(Target("lake_manifest", read_lake, lake_seeds, mutate_frame, seal_frame))
enter(Target("epochs", read_epochs, epochs_seeds, mutate_text, bytes))
enter(Target("root_offsets", read_offsets, offsets_seeds, mutate_text, bytes))
