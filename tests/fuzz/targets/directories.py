"""A store with one damaged file: opened for reading, inspected, opened for writing, and read again.

The first byte selects the file, the rest is its content. The other targets only call decoders; this one uses the
decoded values.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import random
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fuzz.mutation import mutate_frame, put_number, put_word
from fuzz.target import Broken, Scramble, Target, enter
from fuzz.targets import batches, side_files
from seeklog import Record, Store, TopicPartition, names
from seeklog.errors import SeeklogError
from seeklog.log.check.inspection import inspect_partition
from seeklog.record.batch import encode_batch
from seeklog.store import transactions_of
from seeklog.topics.transactions import Staged
from store.workbench import open_store

HERE = TopicPartition("payments", 0)
DIRECTORY = str(HERE)
KEYS = (b"k0", b"k1", b"nobody")
# Files that are only advice: their content never changes records. A key index is used if its CRC is right.
ADVICE = (names.OFFSET_INDEX, names.TIME_INDEX)


@cache
def model() -> Path:
    """Create the store once: two sealed segments and an active one, keys, producers, a transaction."""
    root = Path(tempfile.mkdtemp(prefix="seeklog-fuzz-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    with open_store(root / "model", segment_bytes=600, key_index="seal") as store:
        store.create_topic(HERE.topic, partitions=1)
        with store.producer(linger_ms=0, name="loader") as producer:
            for number in range(9):
                producer.send(HERE.topic, bytes(60), key=b"k%d" % (number % 3), partition=0).result(60)
        store.commit_offsets("group", {HERE: 3})
        stager = transactions_of(store).stager("app", HERE)
        stager.add(encode_batch([Record(b"v", timestamp_ms=5)]), record_count=1)
        staged = Staged(HERE.topic, store.describe_topic(HERE.topic).topic_id, 0, stager.finish())
        transactions_of(store).commit("app", 1, [staged])
        store.log(HERE.topic, 0).latest_for_key(b"k1")
        store.maintain()
    return root


@cache
def places() -> list[str]:
    root = model() / "model"
    inside = (root / DIRECTORY).iterdir()
    found = [path for path in (*root.iterdir(), *inside) if path.is_file() and not path.name.endswith(names.LOCK)]
    return sorted(str(path.relative_to(root)) for path in found)


def seeds() -> Iterator[bytes]:
    for number, place in enumerate(places()):
        yield bytes([number]) + (model() / "model" / place).read_bytes()


def mutate(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    """Damage one of the files with the mutator of its kind."""
    if not data or not chance.randrange(20):
        number = chance.randrange(len(places()))
        data = bytes([number]) + (model() / "model" / places()[number]).read_bytes()
    return data[:1] + _mutate_file(places()[data[0] % len(places())], data[1:], chance, scramble)


def _mutate_file(place: str, data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    suffix = Path(place).suffix
    if suffix == names.LOG:
        return batches.mutate(data, chance, scramble)
    resealed = {
        names.SEAL: side_files.seal_tail,
        names.SNAPSHOT: side_files.seal_snapshot,
        names.KEY_INDEX: side_files.seal_key_index,
    }
    if suffix in resealed or suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        return side_files.mutator(resealed.get(suffix, bytes))(data, chance, scramble)
    if Path(place).name == names.WATERMARK:
        return side_files.seal_watermark(put_number(data, chance))
    if b"crc32c " in data:
        return mutate_frame(data, chance, scramble)
    return put_word(data, chance) if chance.randrange(3) else scramble(data)


def check(data: bytes) -> None:
    """Use the store with the file; only declared errors may be raised, and advice must change no answer."""
    if not data:
        return
    place = places()[data[0] % len(places())]
    root = model() / "damaged"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(model() / "model", root)
    (root / place).write_bytes(data[1:])
    sound = answers(model() / "model") if place.endswith(ADVICE) else None
    outcomes = []
    for read_only in (True, False):
        with contextlib.suppress(SeeklogError), open_store(root, read_only=read_only, segment_bytes=600) as store:
            outcomes.append(read(store))
            if not read_only:
                with contextlib.suppress(SeeklogError), store.writer(HERE.topic, 0) as log:
                    log.append(b"more")
                with contextlib.suppress(SeeklogError):
                    store.maintain()
    inspect_partition(str(root / DIRECTORY))
    if sound is not None and outcomes != [sound, sound]:
        raise Broken(f"{place} changes what is read")


@cache
def answers(root: Path) -> list[object]:
    with open_store(root, read_only=True) as store:
        return read(store)


def read(store: Store) -> list[object]:
    """Return the answers of a store, or the type of the error for each."""
    found: list[object] = []
    for ask in (
        lambda: [(record.offset, record.key, record.value) for record in store.log(HERE.topic, 0).scan()],
        lambda: [store.log(HERE.topic, 0).latest_for_key(key) for key in KEYS],
        lambda: store.log(HERE.topic, 0).offset_at_time(5),
        lambda: [(each.partition, each.committed) for each in store.lag("group")],
    ):
        try:
            found.append(ask())
        except SeeklogError as error:
            found.append(type(error).__name__)
    return found


def check_quietly(data: bytes) -> None:
    """Run it without printing the warnings about damage."""
    logger = logging.getLogger("seeklog")
    before, logger.disabled = logger.disabled, True
    try:
        check(data)
    finally:
        logger.disabled = before


enter(Target("directory", check_quietly, seeds, mutate, bytes, is_timed=False))
