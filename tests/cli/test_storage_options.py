"""The option --storage-option of all commands that take a URL, against a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

import seeklog
from cli.workbench import MORNING_MS, Run
from cold.conftest import s3
from cold.s3_server import BUCKET, S3Server

__all__ = ["s3"]  # the fixture

SECRET = "secret-word"


def given(server: S3Server) -> list[str]:
    return [
        word
        for name, value in (("key", "test"), ("secret", SECRET), ("endpoint_url", server.endpoint))
        for word in ("--storage-option", f"{name}={value}")
    ]


@pytest.fixture
def url(s3: S3Server, tmp_path: Path) -> str:
    """A bucket with a backup of a store `data`."""
    found = f"s3://{BUCKET}/options"
    with seeklog.open(tmp_path / "data", background=False) as made:
        made.create_topic("orders", partitions=1, config={"segment.bytes": 1000})
        with made.writer("orders", 0) as log:
            for number in range(20):
                log.append(b'{"n": %d}' % number, key=b"k%d" % number, timestamp_ms=MORNING_MS + number)
        made.commit_offsets("billing", {seeklog.TopicPartition("orders", 0): 5})
        s3.system.rm(f"{BUCKET}/options", recursive=True) if s3.system.exists(f"{BUCKET}/options") else None
        made.archive(found, include_active=True, storage_options=s3.options)
    return found


READING = (
    ["ls"],
    ["config", "orders"],
    ["cat", "orders"],
    ["tail", "orders"],
    ["seek", "orders", "3"],
    ["key", "orders", "k7"],
    ["export", "orders", "-o", "orders.csv"],
    ["sql", "select count(*) from orders"],
    ["info"],
    ["verify"],
    ["report", "-o", "report.html"],
    ["groups"],
    ["lag"],
    ["archive", "again"],
    ["restore", "back"],
)


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_command_reads_bucket_and_shows_no_secret(run: Run, s3: S3Server, url: str, words: list[str]) -> None:
    verb, *more = words
    ran = run(verb, url, *more, *given(s3))
    refused = run(verb, url, *more, "-v", *given(s3)[:-1], "endpoint_url=http://127.0.0.1:1")

    assert ran.code == 0, ran.err
    assert refused.code in (1, 4), refused.err
    assert SECRET not in ran.err + ran.text + refused.err + refused.text


def test_store_is_archived_to_bucket(run: Run, s3: S3Server, url: str) -> None:
    ran = run("archive", "data", url, "--all", *given(s3))

    assert (ran.code, ran.err.partition(",")[0]) == (0, "copied 0 segments")


@pytest.mark.parametrize("value", [SECRET, f"={SECRET}", f"client_kwargs={{{SECRET}"])
def test_invalid_option_is_refused_and_not_shown(run: Run, value: str) -> None:
    ran = run("ls", f"s3://{BUCKET}/options", "--storage-option", value)

    assert ran.code == 2
    assert SECRET not in ran.err


@pytest.mark.parametrize("words", READING[:13], ids=lambda words: words[0])
def test_option_without_url_is_refused(run: Run, tmp_path: Path, words: list[str]) -> None:
    with seeklog.open(tmp_path / "data") as made:
        made.create_topic("orders", partitions=1)
    verb, *more = words
    ran = run(verb, "data", *more, "--storage-option", f"key={SECRET}")

    assert ran.code == 2
    assert "--storage-option is for a URL, and data is a directory" in ran.err
    assert SECRET not in ran.err
