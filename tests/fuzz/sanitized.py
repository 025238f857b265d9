"""Builds the compiled modules with the compiler's sanitizers in a separate directory, and runs processes with them.

Builds are kept under build/ by a hash of their sources; `make clean` removes them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from record.twins import compiled_modules

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src"
FLAGS: Final = ("-O0", "-g1", "-fwrapv", "-fno-strict-aliasing", "-fno-omit-frame-pointer", "-fPIC", "-shared")
SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
# The start of a report of both.
REPORTS: Final = ("ERROR: AddressSanitizer", "runtime error:")


def compiler() -> str | None:
    """Return the compiler if it has the sanitizers."""
    found = shutil.which("gcc")
    return found if found is not None and os.path.isabs(library(found)) else None


def library(gcc: str, name: str = "libasan.so") -> str:
    """Return the path of the sanitizer's library, or its bare name."""
    asked = subprocess.run([gcc, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def build(gcc: str) -> Path:
    """Return a directory with a sanitized seeklog, building it if necessary."""
    record = SOURCE / "seeklog" / "record"
    modules = compiled_modules()
    inputs = [*sorted(record.glob("*.pxd")), *sorted(record.glob("*.h")), *(source_of(name) for name in modules)]
    options = (*FLAGS, *SANITIZERS, sys.version)
    digest = hashlib.sha256("".join(options).encode() + b"".join(path.read_bytes() for path in inputs)).hexdigest()[:16]
    built = ROOT / "build" / f"sanitized-{digest}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
            _compile(gcc, modules, Path(scratch)).rename(built)
    package = Path(tempfile.mkdtemp(prefix="seeklog-sanitized-"))
    shutil.copytree(SOURCE, package / "src", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    shutil.copytree(built, package / "src", dirs_exist_ok=True)
    return package


def source_of(module: str) -> Path:
    return SOURCE / f"{module.replace('.', '/')}.py"


def _compile(gcc: str, modules: Sequence[str], scratch: Path) -> Path:
    """Translate a copy of the modules, so that the sources do not change; return its directory."""
    copied = scratch / "src"
    shutil.copytree(SOURCE / "seeklog", copied / "seeklog", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    directives = ["boundscheck=False", "wraparound=False", "cdivision=True", "initializedcheck=False"]
    options = [word for directive in directives for word in ("-X", directive)]
    include = [f"-I{copied}/seeklog/record", f"-I{sysconfig.get_paths()['include']}"]
    built = scratch / "built"
    for module in modules:
        place = module.replace(".", "/")
        translate = [sys.executable, "-m", "cython", "-3", *options, "-I", str(copied), str(copied / f"{place}.py")]
        subprocess.run(translate, check=True, capture_output=True)
        made = built / f"{place}{sysconfig.get_config_var('EXT_SUFFIX')}"
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([gcc, *FLAGS, *SANITIZERS, *include, str(copied / f"{place}.c"), "-o", str(made)], check=True)
    return built


def run(gcc: str, package: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments and the sanitized modules."""
    environment = {
        **os.environ,
        "LD_PRELOAD": library(gcc),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(package / "src"),
    }
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, errors="replace", check=False
    )
