"""The kernel built with the compiler's sanitizers, in a directory of its own, and processes that run with it.

What is built is kept by the bytes that it is built from, under build/, which `make clean` removes.
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

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src"
FLAGS: Final = ("-O0", "-g1", "-fwrapv", "-fno-strict-aliasing", "-fno-omit-frame-pointer", "-fPIC", "-shared")
SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
# What both of them begin a report with.
REPORTS: Final = ("ERROR: AddressSanitizer", "runtime error:")


def compiler() -> str | None:
    """Return the compiler if it is one that brings the sanitizers along."""
    found = shutil.which("gcc")
    return found if found is not None and os.path.isabs(library(found)) else None


def library(gcc: str, name: str = "libasan.so") -> str:
    """Return where the sanitizer's library lies, or its bare name."""
    asked = subprocess.run([gcc, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def build(gcc: str) -> Path:
    """Return a directory to import seeklog from, with the kernel sanitized; builds it if it has not been built."""
    record = SOURCE / "seeklog" / "record"
    inputs = sorted([*record.glob("kernel.p*"), *record.glob("*.h")])
    words = (*FLAGS, *SANITIZERS, sys.version)
    digest = hashlib.sha256("".join(words).encode() + b"".join(path.read_bytes() for path in inputs)).hexdigest()[:16]
    built = ROOT / "build" / f"sanitized-{digest}" / f"kernel{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
            _compile(gcc, record, Path(scratch), built)
    package = Path(tempfile.mkdtemp(prefix="seeklog-sanitized-"))
    shutil.copytree(SOURCE, package / "src", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    shutil.copy(built, package / "src" / "seeklog" / "record")
    return package


def _compile(gcc: str, record: Path, scratch: Path, built: Path) -> None:
    """Translate a copy of the kernel, so that nothing changes in the sources, and compile it."""
    place = scratch / "seeklog" / "record"
    shutil.copytree(record, place, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    (scratch / "seeklog" / "__init__.py").touch()
    directives = ["boundscheck=False", "wraparound=False", "cdivision=True", "initializedcheck=False"]
    words = [word for directive in directives for word in ("-X", directive)]
    translate = [
        sys.executable,
        "-m",
        "cython",
        "-3",
        *words,
        str(place / "kernel.py"),
        "-o",
        str(scratch / "kernel.c"),
    ]
    subprocess.run(translate, check=True, capture_output=True)
    include = [f"-I{place}", f"-I{sysconfig.get_paths()['include']}"]
    made = scratch / "kernel.so"
    subprocess.run([gcc, *FLAGS, *SANITIZERS, *include, str(scratch / "kernel.c"), "-o", str(made)], check=True)
    made.rename(built)


def run(gcc: str, package: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments and the sanitized kernel."""
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
