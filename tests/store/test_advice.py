"""What errors say to do: each names the fact, and the call that cures it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log.workbench import PATIENCE_S, open_log
from seeklog import Log, LogReader, Record, Store
from seeklog.cli.exits import line
from seeklog.cli.opening import check_can_be_written
from seeklog.cli.targets import find_targets
from seeklog.clients.habits import _HABITS
from seeklog.config import LogConfig
from seeklog.errors import CorruptBatch, InvalidName, LogClosed, NotALog, RecordTooLarge, TopicNotFound, UsageError
from seeklog.files import OsFiles, absolute
from seeklog.log import ADVICE
from seeklog.record.batch import encode_batch
from seeklog.topics.scope import find_partitions
from store.workbench import open_store

BIG = bytes(600)


# ---------------------------------------------------------------- records that are too large


def test_record_too_large_for_a_topic_shows_how_to_raise_the_setting(tmp_path: Path) -> None:
    with open_store(tmp_path, max_message_bytes=500) as store:
        store.create_topic("orders", partitions=1)
        with store.producer() as producer:
            error = producer.send("orders", BIG).exception(PATIENCE_S)
        assert isinstance(error, RecordTooLarge)
        size = int(re.findall(r"has (\d+) bytes", str(error))[0])
        cure = f'store.alter_topic("orders", {{"max.message.bytes": {size}}})'
        assert str(error) == (
            f"the batch for {tmp_path}/orders-0 has {size} bytes, and max.message.bytes is 500; nothing was written. "
            f"Send less at once, or raise the setting: {cure}"
        )
        assert line(error).endswith(f"raise the setting: seeklog config DIR orders --set max.message.bytes={size}")

        eval(cure, {"store": store})
        with store.writer("orders", 0) as log:
            log.append(BIG)


def test_record_too_large_for_a_single_log_shows_how_to_open_it(tmp_path: Path) -> None:
    with open_log(tmp_path, max_message_bytes=500) as log:
        with pytest.raises(RecordTooLarge, match=r"or raise the setting: LogConfig\(max_message_bytes=\d+\)"):
            log.append(BIG)
        with pytest.raises(RecordTooLarge, match=r"max.message.bytes is 500; .*LogConfig\(max_message_bytes=\d+\)"):
            log.append_batches(encode_batch([Record(BIG)]))


def test_batch_too_large_for_a_segment_names_that_setting(tmp_path: Path) -> None:
    with (
        open_log(tmp_path, segment_bytes=500) as log,
        pytest.raises(RecordTooLarge, match=r"segment.bytes is 500; .*LogConfig\(segment_bytes=\d+\)"),
    ):
        log.append(BIG)


def test_batch_that_no_reader_would_take_names_the_limit(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"compression_type": "zstd", "max_decompressed_bytes": 500}
    with (
        open_log(tmp_path, **settings) as log,
        pytest.raises(RecordTooLarge, match=r"max.decompressed.bytes, 500; .*LogConfig\(max_decompressed_bytes=\d+\)"),
    ):
        log.append(BIG)


# ---------------------------------------------------------------- words of Kafka's clients


@pytest.mark.parametrize(
    ("call", "word", "advice"),
    [
        ("consumer", "group_id", "pass group="),
        ("consumer", "bootstrap_servers", "leave it out: the path passed to seeklog.open stands for it"),
        ("consumer", "value_deserializer", "pass value=, for example value=json or value=json.loads"),
        ("consumer", "key_deserializer", "pass key=, for example key=str"),
        ("consumer", "session_timeout_ms", "leave it out: a member that dies"),
        ("consumer", "auto_ofset_reset", r"did you mean auto_offset_reset=\?"),
        ("consumer", "zzz", "it takes topics, group, key, value"),
        ("producer", "value_serializer", "pass value=, for example value=json"),
        ("producer", "key_serializer", "pass key=, for example key=str"),
        ("producer", "acks", r'set it on the topic: config=\{"flush": "batch"\}'),
        ("producer", "enable_idempotence", "pass idempotence="),
        ("producer", "transactional_id", "pass name="),
        ("producer", "linger", r"did you mean linger_ms=\?"),
    ],
)
def test_argument_of_a_kafka_client_names_ours(tmp_path: Path, call: str, word: str, advice: str) -> None:
    with (
        open_store(tmp_path) as store,
        pytest.raises(UsageError, match=f"^{call} has no argument '{word}'; {advice}"),
    ):
        getattr(store, call)(**{word: "x"})


def test_advice_about_arguments_names_arguments_that_exist() -> None:
    for call, habits in _HABITS.items():
        known = inspect.signature(getattr(Store, call)).parameters
        for word, advice in habits.items():
            assert word not in known
            assert set(re.findall(r"pass (\w+)=", advice)) <= set(known), advice


# ---------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    ("path", "meant"),
    [("s3:/bucket/cold", "s3://bucket/cold"), ("S3:/bucket", "S3://bucket"), ("file:/data/cold", "file:///data/cold")],
)
def test_url_with_one_slash_is_refused_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, meant: str
) -> None:
    """It would create a directory with this name."""
    monkeypatch.chdir(tmp_path)
    words = re.escape(f"{path!r} looks like a URL with a slash missing; write {meant}, or ./{path} for a directory")
    check_doors_refuse(path, tmp_path, words)
    open_store(f"./{path}").close()


def test_empty_path_is_refused_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would make a store of the current directory."""
    monkeypatch.chdir(tmp_path)
    check_doors_refuse("", tmp_path, "the path is empty; name a directory, or pass . for the current one")


def check_doors_refuse(path: str, tmp_path: Path, words: str) -> None:
    with open_store(tmp_path / "store") as store:
        doors: list[Callable[[], object]] = [
            lambda: open_store(path),
            lambda: open_store(path, read_only=True),
            lambda: Log(path),
            lambda: LogReader(path),
            lambda: store.archive(path),
            lambda: find_targets([path]),
            lambda: check_can_be_written(path),
        ]
        for door in doors:
            with pytest.raises(InvalidName, match=words):
                door()
    assert list(tmp_path.iterdir()) == [tmp_path / "store"]


@pytest.mark.parametrize("path", ["a:/b", "./s3:/bucket", "/data/s3:/bucket", "s3-cold/x", "2026-01-01T03:04/x"])
def test_directory_whose_name_has_a_colon_is_not_taken_for_a_url(path: str) -> None:
    assert absolute(path).endswith(path.removeprefix("."))


# ---------------------------------------------------------------- topics, stores, settings


def test_unknown_topic_among_several_is_named_with_its_nearest(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for topic in ("orders", "payments", "refunds"):
            store.create_topic(topic, partitions=1)
        with pytest.raises(TopicNotFound, match=r"there is no topic 'payment' in .*; did you mean 'payments'\?"):
            store.consumer(["orders", "payment", "refunds"])


def test_store_without_topics_says_how_to_create_one(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, pytest.raises(TopicNotFound, match="none yet, create one with create_topic"):
        store.topic("orders")


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda store: store.create_topic("more"), "open it without read_only"),
        (lambda store: store.producer(), "open it without read_only=True"),
        (lambda store: store.consumer(group="g"), "open it without read_only=True"),
        (lambda store: store.compact(), "open it without read_only=True"),
    ],
)
def test_change_through_a_reader_names_the_cure(tmp_path: Path, work: Callable[[Store], object], words: str) -> None:
    open_store(tmp_path).close()
    with open_store(tmp_path, read_only=True) as store, pytest.raises(UsageError, match=words):
        work(store)


def test_missing_store_says_how_to_create_it(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match=r"there is no store at .*nowhere; check the path, or open it without"):
        open_store(tmp_path / "nowhere", read_only=True)


def test_closed_log_and_store_say_to_open_them_again(tmp_path: Path) -> None:
    log, store = Log(tmp_path / "log"), open_store(tmp_path / "store")
    log.close()
    store.close()

    with pytest.raises(LogClosed, match="is closed; open it again"):
        log.append(b"")
    with pytest.raises(LogClosed, match="is closed; open it again"):
        log.read(0)
    with pytest.raises(LogClosed, match="is closed; open it again"):
        store.topics()


def test_advice_of_damage_is_one_sentence_on_the_command_line() -> None:
    error = CorruptBatch("stored CRC 0x1, computed 0x2", path="a.log", position=0, advice=ADVICE)

    assert str(error).endswith("Run verify for the extent; nothing was changed on disk.")
    assert line(error).endswith("computed 0x2; run `seeklog verify` for the extent; nothing was changed on disk")


def test_job_on_a_missing_store_does_not_advise_to_create_one() -> None:
    with pytest.raises(NotALog, match=r"there is no store at /nowhere; check the path$"):
        find_partitions("/nowhere", topics=None, config=LogConfig(), files=OsFiles())
