"""A row is current until the code that its part covers, or the tests that try it, change."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from proof.part import Part, Run, load_parts
from proof.sources import Repository
from proof.staleness import Age, Ages
from proof.table import ROOT, Row

SRC: Final = "src/seeklog"
TESTS: Final = "tests"
PROJECT: Final = {
    f"{SRC}/__init__.py": "",
    f"{SRC}/errors.py": "class Torn(Exception):\n    pass\n",
    f"{SRC}/record/__init__.py": "",
    f"{SRC}/record/batch.py": "import cython\n\n\ndef size(batch: bytes) -> cython.int:\n    return len(batch)\n",
    f"{SRC}/record/batch.pxd": "cdef int size(bytes batch)  # inlined\n",
    f"{SRC}/record/native.h": "#define CRC 1\n",
    f"{SRC}/log/__init__.py": "",
    f"{SRC}/log/view.py": '''
"""A view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass
class View:
    start: int

    def length(self, end: int) -> int:
        """Return the length."""
        from seeklog.record import batch

        count: int = end - self.start  # records
        return batch.size(bytes(count))
''',
    f"{SRC}/topics/__init__.py": "",
    f"{SRC}/topics/catalog.py": "from seeklog.log.view import View\n",
    f"{TESTS}/proof/parts/kills.py": """
from crash import sim
from faults.dying import kill
from proof.part import Run, part

LIMIT = 5
OTHER_LIMIT = 6


@part(6, "Kill it", covers=("log",))
def kills(run: Run) -> None:
    for number in range(LIMIT):
        checked(kill(number))


def checked(found: object) -> None:
    assert found


@part(6, "Kill another", covers=("log",))
def other_kills(run: Run) -> None:
    sim.run(OTHER_LIMIT)
""",
    f"{TESTS}/proof/part.py": "",
    f"{TESTS}/faults/__init__.py": "",
    f"{TESTS}/faults/dying.py": "from faults import children\nfrom proof import part\n\n\ndef kill(number): ...\n",
    f"{TESTS}/faults/children.py": "",
    f"{TESTS}/faults/flips.py": "",
    f"{TESTS}/crash/__init__.py": "",
    f"{TESTS}/crash/sim.py": "def run(limit): ...\n",
    f"{TESTS}/child.py": "import shared\n",
    f"{TESTS}/shared.py": "",
    f"{TESTS}/golden/batch.bin": "\x00\x01",
}


def kills(run: Run) -> None:
    """Stand for the part in the project."""


kills.__module__ = "proof.parts.kills"
PART: Final = Part(6, "Kill it", "kills", kills, covers=("log",), uses=(f"{TESTS}/golden", f"{TESTS}/child.py"))
ROW: Final = Row(6, "kills", "Kill it", "full", 1, 40, 0, [], [], {}, 3.0, "")


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=tests", "-c", "user.email=tests@localhost", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(root), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit."""
    root = tmp_path_factory.mktemp("project")
    for path, text in PROJECT.items():
        write(root, path, text)
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "Begin")
    return root


@pytest.fixture
def project(committed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(committed, tmp_path / "project")


def age_here(root: Path, row: Row = ROW) -> Age:
    """Return the age of a row that ran at the first commit."""
    commit = row.commit or git(root, "rev-list", "--max-parents=0", "--abbrev-commit", "HEAD")
    return Ages(Repository(root), {PART.name: PART})(dataclasses.replace(row, commit=commit))


def age_after(root: Path, path: str, before: str, after: str) -> Age:
    text = PROJECT.get(path, "")
    assert before in text
    write(root, path, text.replace(before, after, 1) if before else text + after)
    return age_here(root)


def test_row_is_current_at_its_commit(project: Path) -> None:
    assert age_here(project).is_current
    assert str(age_here(project)) == "current"


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (f"{SRC}/log/view.py", "# records", "# the records"),
        (f"{SRC}/log/view.py", '"""A view."""', '"""A view of a log."""'),
        (f"{SRC}/log/view.py", "Return the length.", "Return how long it is."),
        (f"{SRC}/log/view.py", "end: int) -> int", "end: object)"),
        (f"{SRC}/log/view.py", "count: int =", "count ="),
        (f"{SRC}/log/view.py", "start: int", "start: object"),
        (
            f"{SRC}/log/view.py",
            "import ClassVar",
            "import ClassVar, TYPE_CHECKING\nif TYPE_CHECKING:\n    import os",
        ),
        (f"{SRC}/log/view.py", "end - self.start", "(\n            end - self.start\n        )"),
        (f"{SRC}/log/added.py", "", "print()\n"),
        (f"{SRC}/errors.py", "pass", "number = 3"),
        (f"{SRC}/topics/catalog.py", "", "print()\n"),
        (f"{SRC}/record/batch.pxd", "# inlined", "# not a call"),
        (f"{TESTS}/proof/parts/kills.py", "Kill it", "Kill it more than once"),
        (f"{TESTS}/proof/parts/kills.py", "OTHER_LIMIT = 6", "OTHER_LIMIT = 7"),
        (f"{TESTS}/proof/part.py", "", "print()\n"),
        (f"{TESTS}/faults/flips.py", "", "print()\n"),
        (f"{TESTS}/crash/sim.py", "run(limit)", "run(most)"),
    ],
)
def test_change_that_no_covered_code_runs_keeps_row_current(project: Path, path: str, before: str, after: str) -> None:
    assert age_after(project, path, before, after).changed == ()


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (f"{SRC}/log/view.py", "end - self.start", "end"),
        (f"{SRC}/log/view.py", "start: int", "start: int\n    end: int"),
        (f"{SRC}/log/view.py", "start: int", "start: ClassVar[int]"),
        (f"{SRC}/log/view.py", "start: int", "start: int = 0"),
        (f"{SRC}/record/batch.py", "len(batch)", "0"),
        (f"{SRC}/record/batch.py", "cython.int", "cython.long"),
        (f"{SRC}/record/batch.pxd", "int size", "long size"),
        (f"{SRC}/record/native.h", "1", "2"),
        (f"{TESTS}/proof/parts/kills.py", "kill(number)", "kill(1)"),
        (f"{TESTS}/proof/parts/kills.py", "LIMIT = 5", "LIMIT = 4"),
        (f"{TESTS}/proof/parts/kills.py", "assert found", "assert True"),
        (f"{TESTS}/faults/dying.py", "kill(number)", "kill(point)"),
        (f"{TESTS}/faults/children.py", "", "print()\n"),
        (f"{TESTS}/golden/batch.bin", "\x01", "\x02"),
        (f"{TESTS}/golden/added.bin", "", "\x02"),
        (f"{TESTS}/child.py", "", "print()\n"),
        (f"{TESTS}/shared.py", "", "print()\n"),
    ],
)
def test_change_of_covered_code_makes_row_stale(project: Path, path: str, before: str, after: str) -> None:
    assert age_after(project, path, before, after).changed == (path,)


def test_added_module_counts_once_covered_module_imports_it(project: Path) -> None:
    write(project, f"{SRC}/log/added.py", "print()\n")
    age = age_after(
        project,
        f"{SRC}/log/view.py",
        "from seeklog.record",
        "from seeklog.log import added\n        from seeklog.record",
    )

    assert age.changed == (f"{SRC}/log/added.py", f"{SRC}/log/view.py")


def test_removed_module_of_covered_package_makes_row_stale(project: Path) -> None:
    (project / f"{SRC}/log/view.py").unlink()

    assert age_here(project).changed == (f"{SRC}/log/view.py",)


def test_package_created_since_the_run_makes_row_stale(project: Path) -> None:
    write(project, f"{SRC}/archive/__init__.py", "")
    part = dataclasses.replace(PART, covers=("archive",))
    row = dataclasses.replace(ROW, commit=git(project, "rev-parse", "HEAD"))

    assert Ages(Repository(project), {"kills": part})(row).changed == (f"{SRC}/archive/__init__.py",)


def test_changes_are_named_briefly(project: Path) -> None:
    few = age_after(project, f"{SRC}/log/view.py", "end - self.start", "end")
    for path in (f"{SRC}/record/batch.py", f"{SRC}/record/native.h", f"{SRC}/log/__init__.py"):
        write(project, path, "print()\n")
    many = age_here(project)

    assert (str(few), few.mark) == ("stale: log.view", "before changes in log")
    assert (str(many), many.mark) == ("stale: 2 in log and 2 in record", "before changes in log and record")
    assert Age((f"{TESTS}/faults/dying.py",)).mark == "before changes in its tests"


def test_row_of_commit_that_shallow_clone_lacks_is_stale(project: Path, tmp_path: Path) -> None:
    first = git(project, "rev-parse", "HEAD")
    git(project, "commit", "--quiet", "--allow-empty", "--message", "Go on")
    git(tmp_path, "clone", "--quiet", "--depth=1", project.as_uri(), "shallow")

    age = age_here(tmp_path / "shallow", dataclasses.replace(ROW, commit=first))

    assert not age.is_current
    assert (str(age), age.mark) == ("stale: unknown commit", "unknown commit")


def test_row_is_stale_where_no_repository_is(tmp_path: Path) -> None:
    assert age_here(tmp_path, dataclasses.replace(ROW, commit="0a24715")).unknown == "unknown commit"


def test_row_of_uncommitted_changes_is_stale(project: Path) -> None:
    commit = git(project, "rev-parse", "HEAD")

    assert str(age_here(project, dataclasses.replace(ROW, commit=f"{commit}, changed"))) == "stale: uncommitted changes"


def test_each_part_names_code_and_files_that_exist() -> None:
    for one in load_parts():
        for place in [f"src/seeklog/{name.replace('.', '/')}" for name in one.covers]:
            assert (ROOT / place).is_dir() or (ROOT / f"{place}.py").is_file(), f"{one.name} covers {place}"
        for place in one.uses:
            assert (ROOT / place).exists(), f"{one.name} uses {place}"
