"""A part of the proof: one kind of damage, done many times, and the result.

A part is a function, registered with `@part`, that works on a `Run`:

    @part(4, "Fail each sync in turn", covers=("log",))
    def failing_syncs(run: Run) -> None:
        for number in run.choose(range(1, 200), short=10):
            run.case()
            if not survives(number, run.scratch / str(number)):
                run.violation(f"sync {number}: an acknowledged record is lost")

`make test` runs every part in its short size, `make proof` in full.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Size: TypeAlias = Literal["short", "full"]

VIOLATIONS_KEPT: Final = 20  # enough to see a pattern; all of them are counted

T = TypeVar("T")


class Missing(Exception):
    """This machine lacks something that a part needs. The message names it and how to get it."""


@dataclass(slots=True)
class Run:
    """One run of a part: its size, and its results so far."""

    size: Size
    seed: int
    scratch: Path
    """An empty directory for this run, removed after it."""
    cases: int = 0
    violations: int = 0
    samples: list[str] = field(default_factory=list)
    """The first violations."""
    notes: list[str] = field(default_factory=list)
    peers: dict[str, str] = field(default_factory=dict)

    @property
    def is_short(self) -> bool:
        return self.size == "short"

    @property
    def chance(self) -> random.Random:
        """A new source of random numbers, the same for the same seed."""
        return random.Random(self.seed)

    def choose(self, cases: Iterable[T], *, short: int) -> list[T]:
        """Return all cases, or in a short run this many: the first, the last, and random others."""
        every = list(cases)
        if not self.is_short or len(every) <= short:
            return every
        inner = sorted(self.chance.sample(range(1, len(every) - 1), max(short - 2, 0)))
        return [every[index] for index in dict.fromkeys([0, *inner, len(every) - 1][:short])]

    def case(self, count: int = 1) -> None:
        """Count cases that were run."""
        self.cases += count

    def violation(self, what: str) -> None:
        """Count a broken promise, with enough detail to run the case again."""
        self.violations += 1
        if len(self.samples) < VIOLATIONS_KEPT:
            self.samples.append(what)

    def note(self, what: str) -> None:
        """Add a remark about the cases to the table."""
        self.notes.append(what)

    def peer(self, name: str, what: str) -> None:
        """Add the result of the same work on a peer to the table."""
        self.peers[name] = what


@dataclass(frozen=True, slots=True)
class Part:
    """A registered part."""

    target: int
    """The number of its target."""
    title: str
    """What is done, as the table shows it."""
    name: str
    """The name of its function."""
    work: Callable[[Run], None]
    covers: tuple[str, ...]
    """The packages or modules of seeklog that it tries, as in "log.side". Those that they import are covered too."""
    uses: tuple[str, ...]
    """Files and directories that it runs or reads without importing them, as in "tests/log"."""


PARTS: Final[dict[str, Part]] = {}


def part(
    target: int, title: str, *, covers: tuple[str, ...], uses: tuple[str, ...] = ()
) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Register a function as a part. Its row is current until the code that it covers changes (`staleness.py`)."""

    def enter(work: Callable[[Run], None]) -> Callable[[Run], None]:
        name = work.__name__
        assert name not in PARTS, f"two parts are called {name}"
        PARTS[name] = Part(target, title, name, work, covers, uses)
        return work

    return enter


def load_parts() -> list[Part]:
    """Import every module of `parts` and return the registered parts in the order of the targets."""
    from proof import parts

    for module in pkgutil.iter_modules(parts.__path__):
        importlib.import_module(f"{parts.__name__}.{module.name}")
    return sorted(PARTS.values(), key=lambda entered: (entered.target, entered.name))
