"""Whether the row of a part still describes the code.

A row is *current* if the code that its part covers has not changed since the commit at which the part ran, and *stale*
otherwise. That code is

- the packages that the part names in `covers`, as they were then, and all modules of seeklog that these import;
- the function of the part, what it uses of its own module, and all modules of the tests that these import;
- the files and directories that the part names in `uses`: what it runs or reads without an import.

`sources.py` says which differences count. The modules that count and print cases do not, and neither do the versions of
Python, of libraries and of tools.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from proof.part import Part
from proof.sources import Repository, Tree, excerpt
from proof.table import CHANGED, Row

SOURCE: Final = "src"
PRODUCT: Final = "src/seeklog"
TESTS: Final = "tests"
COUNTING: Final = frozenset(f"tests/proof/{name}.py" for name in ("part", "table", "targets"))
NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Age:
    """What has changed since a row was made."""

    changed: tuple[str, ...] = ()
    """The paths of the changed files."""
    unknown: str = ""
    """Why the changes are not known."""

    @property
    def is_current(self) -> bool:
        return not self.changed and not self.unknown

    def __str__(self) -> str:
        """Return the state for a terminal: the modules that changed, or if they are many, how many in each package."""
        if self.is_current:
            return "current"
        if len(self.changed) <= NAMED:
            return f"stale: {self.unknown or _enumerated([*map(_module_of, self.changed)])}"
        return f"stale: {_enumerated([f'{count} in {package}' for package, count in _by_package(self.changed)])}"

    @property
    def mark(self) -> str:
        """What the table says after the commit: the packages that changed since, the most changed first."""
        if self.is_current:
            return ""
        if self.unknown:
            return self.unknown
        named = [package for package, _ in _by_package(path for path in self.changed if path.startswith(PRODUCT))]
        return f"before changes in {_enumerated(named) if named else 'its tests'}"


class Ages:
    """Compares rows with the working tree, as it was at the first comparison."""

    def __init__(self, repository: Repository, parts: Mapping[str, Part]) -> None:
        self._repository = repository
        self._parts = parts
        self._known: dict[tuple[str, str], Age] = {}

    @cached_property
    def _now(self) -> Tree:
        return self._repository.here()

    def __call__(self, row: Row) -> Age:
        """Return what has changed since a row was made. Nothing is known of a commit that this clone lacks."""
        if (row.name, row.commit) not in self._known:
            self._known[row.name, row.commit] = self._compared(self._parts[row.name], row.commit)
        return self._known[row.name, row.commit]

    def _compared(self, part: Part, commit: str) -> Age:
        if commit.endswith(CHANGED):
            return Age(unknown="uncommitted changes")
        then = self._repository.at(commit)
        if then is None:
            return Age(unknown="unknown commit")
        return Age(tuple(sorted({*_changed_product(part, then, self._now), *_changed_tests(part, then, self._now)})))


def _changed_product(part: Part, then: Tree, now: Tree) -> Iterator[str]:
    # A module that was added counts if one that counts imports it. The imports of the working tree are enough: where
    # they differ from those of the commit, the importing module has changed.
    start = [
        path
        for package in part.covers
        for path in _files_of(package, then) or _files_of(package, now)
        if path.endswith(".py")
    ]
    return _changed(now.reached(start, folder=SOURCE), then, now)


def _files_of(package: str, tree: Tree) -> set[str]:
    """Return the files of a package or module of seeklog."""
    place = f"{PRODUCT}/{package.replace('.', '/')}"
    return tree.under(place) | tree.under(f"{place}.py")


def _changed_tests(part: Part, then: Tree, now: Tree) -> Iterator[str]:
    path = f"{TESTS}/{part.work.__module__.replace('.', '/')}.py"
    code = excerpt(now.files[path], part.name)
    assert code is not None, f"{part.name} is not in {path}"
    if path not in then.files or excerpt(then.files[path], part.name) != code:
        yield path
    used = {each for place in part.uses for tree in (then, now) for each in tree.under(place)}
    start = [*used, *now.imported(code, path, folder=TESTS)]
    # The part's own module was compared above, without its other parts.
    yield from _changed(now.reached(start, folder=TESTS) - COUNTING - {path}, then, now)


def _changed(paths: Iterable[str], then: Tree, now: Tree) -> Iterator[str]:
    return (path for path in paths if then.code(path) != now.code(path))


def _module_of(path: str) -> str:
    """Return the name of a module of seeklog without `seeklog`; other files are named by their path."""
    if not path.startswith(f"{PRODUCT}/"):
        return path
    return path.removeprefix(f"{PRODUCT}/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _by_package(paths: Iterable[str]) -> list[tuple[str, int]]:
    """Count the paths in each package of seeklog and each directory of the tests, the most frequent first."""
    counts = Counter(
        _module_of(path).partition(".")[0] if path.startswith(PRODUCT) else posixpath.dirname(path) for path in paths
    )
    return sorted(counts.items(), key=lambda counted: (-counted[1], counted[0]))


def _enumerated(names: list[str]) -> str:
    if len(names) <= NAMED:
        return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"
