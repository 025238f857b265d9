"""A bucket for the tests of a module, and a memory file system that each test has for itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import fsspec
import pytest

if TYPE_CHECKING:
    from cold.s3_server import S3Server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    from cold.s3_server import s3_server

    with s3_server() as server:
        yield server


@pytest.fixture
def memory() -> Iterator[str]:
    """The URL of an empty place in memory."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield "memory://cold"
    system.store.clear()
    system.pseudo_dirs[:] = [""]
