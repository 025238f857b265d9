"""Running child processes without coverage.py, which otherwise follows a test into them."""

from __future__ import annotations

from collections.abc import Mapping


def unmeasured(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose processes are not measured.

    For a child on a full disk: it would fail on the data that coverage.py writes at its end.
    """
    return {name: value for name, value in environment.items() if not name.startswith("COVERAGE_")}
