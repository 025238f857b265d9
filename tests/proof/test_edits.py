"""Edits of the source by function name and syntax: matching, writing, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.edits import Edit, EditFailed, edited

SOURCE = '''\
class Log:
    def close(self):
        """Close it."""
        with self._lock:
            self.files.sync(  # first
                self.handle,
                whole=True,
            )
            if self.end > self.start and not self.failed:
                self.files.close(self.handle)

    def size(self):
        return self.end - self.start


def size(log):
    return log.end
'''


@pytest.mark.parametrize(
    ("edit", "line", "becomes"),
    [
        (Edit("close", "self.files.close(...)"), "self.files.close(self.handle)", "pass"),
        (Edit("close", "self.end>self.start", "False"), "self.end > self.start", "(False)"),
        (
            Edit("close", "self.end > self.start and ...", "..."),
            "self.end > self.start and not self.failed",
            "(not self.failed)",
        ),
        (
            Edit("close", "self.files.close(...)", "self.abort(...)"),
            "self.files.close(self.handle)",
            "(self.abort(self.handle))",
        ),
        (Edit("size", "self.end - self.start", "self.end"), "self.end - self.start", "(self.end)"),
        (Edit("Log.size", "return ...", "return [...]"), "self.end - self.start", "[self.end - self.start]"),
        (Edit("size", "return log.end", "look()\nreturn 0"), "return log.end", "look()\n    return 0"),
    ],
)
def test_edit_changes_only_its_place(edit: Edit, line: str, becomes: str, tmp_path: Path) -> None:
    (tmp_path / "log.py").write_text(SOURCE)

    assert edited([edit], source=tmp_path) == {"log.py": SOURCE.replace(line, becomes)}


def test_edit_removes_statement_around_block(tmp_path: Path) -> None:
    (tmp_path / "log.py").write_text(SOURCE)

    changed = edited([Edit("close", "with self._lock: ...", "...")], source=tmp_path)["log.py"]

    assert "with" not in changed
    assert "        self.files.sync(self.handle, whole=True)\n        if self.end" in changed


def test_later_edit_sees_result_of_earlier_edit(tmp_path: Path) -> None:
    (tmp_path / "log.py").write_text(SOURCE)

    changed = edited([Edit("size", "log.end", "log.stop"), Edit("size", "log.stop", "log.last")], source=tmp_path)

    assert "return ((log.last))" in changed["log.py"]


@pytest.mark.parametrize(
    "edit",
    [
        Edit("open", "self.files.sync(...)"),
        Edit("close", "self.files.flush(...)"),
        Edit("Log.size", "log.end", "0"),
        Edit("size", "return ..."),
        Edit("close", "self.handle", "None"),
    ],
)
def test_edit_without_exactly_one_place_is_refused(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "log.py").write_text(SOURCE)

    with pytest.raises(EditFailed):
        edited([edit], source=tmp_path)


def test_edit_finds_its_function_in_any_file(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "renamed.py").write_text(SOURCE)

    assert [*edited([Edit("size", "log.end", "0")], source=tmp_path)] == ["room/renamed.py"]
