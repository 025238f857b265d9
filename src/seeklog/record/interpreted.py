"""Runs the compiled modules from their sources: slower, but an oracle for the tests.

Set `SEEKLOG_PURE=1`; Cython must be installed. A finder placed before all others prefers a source file to the extension
module next to it, in a checkout, an editable install or a wheel. It maps imports from `cython.cimports` to the
interpreted modules.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

PACKAGE: Final = "seeklog"
CIMPORTS: Final = "cython.cimports."


class InterpretedFinder(MetaPathFinder):
    """Finds the sources of compiled modules."""

    def __init__(self, loader: Callable[[str, str], Loader] = SourceFileLoader) -> None:
        self._loader = loader

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith(f"{CIMPORTS}{PACKAGE}."):
            return ModuleSpec(fullname, _Alias())
        if not fullname.startswith(f"{PACKAGE}."):
            return None
        spec = PathFinder.find_spec(fullname, path)
        source = None if spec is None or spec.origin is None else source_of(spec.origin)
        if source is None:
            return None
        return spec_from_file_location(fullname, source, loader=self._loader(fullname, source))


class _Alias(Loader):
    """Loads the module of the same name without the prefix `cython.cimports.`."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system uses the entry in sys.modules when this returns.
        sys.modules[module.__name__] = importlib.import_module(module.__name__.removeprefix(CIMPORTS))


def source_of(origin: str) -> str | None:
    """Return the source file of an extension module, or None if the file is not one."""
    for suffix in EXTENSION_SUFFIXES:
        if origin.endswith(suffix):
            return origin.removesuffix(suffix) + ".py"
    return None


def install(finder: InterpretedFinder) -> None:
    """Interpret all compiled modules imported after this call."""
    # Importing it creates the module that stands for all C declarations.
    importlib.import_module("cython")
    sys.modules[CIMPORTS + PACKAGE] = sys.modules[PACKAGE]
    sys.meta_path.insert(0, finder)
