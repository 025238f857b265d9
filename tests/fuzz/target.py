"""A target of the fuzzers: a decoder, seeds, and a mutator whose damage passes the first checks."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

Scramble: TypeAlias = Callable[[bytes], bytes]
"""Damages bytes without knowing what they are."""
Mutate: TypeAlias = Callable[[bytes, random.Random, Scramble], bytes]
"""Damages bytes knowing what they are: most of the time their checksums are right afterwards."""


class Broken(AssertionError):
    """A decoder has accepted an impossible value, or two decoders disagree."""


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder, or several that read the same bytes."""

    name: str
    check: Callable[[bytes], object]
    """Reads the bytes. Only errors of seeklog may come out of it."""
    seeds: Callable[[], Iterable[bytes]]
    mutate: Mutate
    reseal: Scramble
    """Makes the checksums right again; bytes that have none come back as they are."""
    size_most: int = 4096
    is_timed: bool = True
    """Whether one input is to take at most so long; the interpreted kernel and the disk are not held to it."""


TARGETS: Final[dict[str, Target]] = {}


def enter(target: Target) -> None:
    assert target.name not in TARGETS, f"two targets are called {target.name}"
    TARGETS[target.name] = target


def load_targets() -> dict[str, Target]:
    """Import every module of `targets` and return their targets."""
    from fuzz import targets

    for module in pkgutil.iter_modules(targets.__path__):
        importlib.import_module(f"{targets.__name__}.{module.name}")
    return TARGETS
