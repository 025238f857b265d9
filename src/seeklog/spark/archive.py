"""The class data archive: what the JVM has loaded and checked in one start, ready for the next ones.

The first start is told to write it when it ends (`-XX:ArchiveClassesAtExit`), under a name of its own; a later one
finds it whole, gives it its proper name and uses it. The JVM writes the header last, so a file whose first bytes are
zero is still being written, or its writer was killed. A JVM that finds that an archive does not fit goes on without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import time
import uuid
from pathlib import Path

from seeklog.spark.java import Java

logger = logging.getLogger("seeklog")

_RECORDING = ".recording-"
# Longer than any session's last seconds, in which it is written; what is older and not whole was given up.
GIVEN_UP_S = 3600.0
# Nothing that happens to the archive is worth a line of the user's.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"


def archive_options(java: Java, *, cache: Path, jars: Path, version: str) -> str:
    """Return the JVM's options that use the archive of earlier starts, or record one for later ones."""
    if not java.has_archive:
        return ""
    archive = cache / f"classes-{_key(java, jars=jars, version=version)}.jsa"
    if not archive.exists():
        _adopt(archive)
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive} {_SILENT}"
    return f"-XX:ArchiveClassesAtExit={archive}{_RECORDING}{uuid.uuid4().hex[:8]} {_SILENT}"


def _key(java: Java, *, jars: Path, version: str) -> str:
    """Return what an archive depends on, in short."""
    listing = sorted((entry.name, entry.stat().st_size) for entry in os.scandir(jars))
    facts = (version, java.version, java.vendor, str(java.home), platform.machine(), str(jars), listing)
    return f"{version}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"


def _adopt(archive: Path) -> None:
    """Give the proper name to a recording that is whole; remove those that nobody will finish."""
    for recording in sorted(archive.parent.glob(f"{archive.name}{_RECORDING}*")):
        with contextlib.suppress(OSError):
            if is_whole(recording):
                recording.replace(archive)
                logger.debug("Spark starts with the class data archive %s from now on", archive)
            elif time.time() - recording.stat().st_mtime > GIVEN_UP_S:
                recording.unlink()


def is_whole(recording: Path) -> bool:
    """Tell whether the JVM has written a recording to its end."""
    with recording.open("rb") as file:
        first = file.read(4)
    return len(first) == 4 and any(first)
