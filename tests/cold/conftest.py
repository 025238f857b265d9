"""A bucket shared by the tests of a module, a separate memory file system for each test, and a store to archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from cold.workbench import SEGMENT_BYTES, fill
from store.workbench import append, open_store

if TYPE_CHECKING:
    from cold.s3_server import S3Server
    from seeklog import Store


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    from cold.s3_server import s3_server

    with s3_server() as server:
        yield server


@pytest.fixture
def memory() -> Iterator[str]:
    """The URL of an empty location in memory."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield "memory://cold"
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    """A store with a topic of two partitions. The first has records in five or six segments."""
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=2, config={"retention.ms": 3_600_000})
        fill(store, 1_000)
        append(store, "orders", [b"alone"], partition=1)
        yield store


@pytest.fixture(params=["directory", "file", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """Locations for an archive, with the options that each needs."""
    if request.param == "s3":
        from cold.s3_server import BUCKET

        return f"s3://{BUCKET}/reads", request.getfixturevalue("s3").options
    if request.param == "memory":
        return request.getfixturevalue("memory"), {}
    path = tmp_path / "deep" / "archive"
    return f"file://{path}" if request.param == "file" else str(path), {}
