"""A pytest plugin: tells coverage.py which test is running, if `run_covered` asks for it.

coverage.py's own `dynamic_context` uses the name of the running function and so loses fixtures and threads. This one
uses pytest's node id.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    measured = coverage.Coverage.current() if os.environ.get("SEEKLOG_COVERED_BY_TEST") else None
    if measured is not None:
        measured.switch_context(item.nodeid)
    result = yield
    if measured is not None:
        measured.switch_context("")
    return result
