"""Booleans that callers pass to jobs: anything but True and False is refused, before a session is used."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from seeklog.errors import UsageError
from seeklog.spark import jobs

FLAGS = {
    (name, parameter.name)
    for name in jobs.__all__
    if inspect.isfunction(job := getattr(jobs, name))
    for parameter in inspect.signature(job).parameters.values()
    if parameter.annotation == "bool"
}


def test_flags_of_jobs_are_found() -> None:
    assert {("verify", "progress"), ("read_lake", "fail_on_data_loss"), ("archive", "allow_gaps")} < FLAGS


@pytest.mark.parametrize(("name", "flag"), sorted(FLAGS))
def test_anything_but_true_and_false_is_refused(tmp_path: Path, name: str, flag: str) -> None:
    job: Any = getattr(jobs, name)
    target = [tmp_path / "target"] if name in ("archive", "to_lake", "read_lake") else []
    with pytest.raises(UsageError, match=f"{flag} must be True or False, not 'false'"):
        job(None, tmp_path / "store", *target, **{flag: "false"})
    assert list(tmp_path.iterdir()) == []
