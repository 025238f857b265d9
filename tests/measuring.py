"""What a test does about being measured by coverage.py, which follows it into the processes that it starts."""

from __future__ import annotations

from collections.abc import Mapping


def unmeasured(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose processes are not measured.

    For a child that gets no room on its disk: it would fail over the data that coverage.py writes as it ends.
    """
    return {name: value for name, value in environment.items() if not name.startswith("COVERAGE_")}
