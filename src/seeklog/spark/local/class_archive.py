"""The class data archive: classes that one JVM loaded and verified, mapped by later JVMs to start faster.

The first session records the archive when its JVM exits (`-XX:ArchiveClassesAtExit`), under a temporary name, and waits
for that. It then renames the archive; if it was killed, a later session does. The JVM writes the header last, so a file
whose first bytes are zero is incomplete. The final name includes the file's size, because a truncated archive kills the
JVM (SIGBUS). The JVM ignores an archive that does not match.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import logging
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from seeklog.spark.local.java import Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("seeklog")

_TEMPORARY = ".jsa.recording-"
_RECORD_OPTION = "-XX:ArchiveClassesAtExit="
# Archives kept for other versions of Java and the jars, 160 MB each.
MAX_KEPT = 2
# The wait for the JVM to write the archive, which takes a few seconds.
WAIT_S = 60.0
# Held while this process records, so that only one of many processes does.
_locks: list[int] = []
# An incomplete recording older than this was abandoned.
ABANDONED_S = 3600.0
# Problems with the archive do not concern the user.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"


def archive_options(java: Java, *, cache: Path, jars: Path, version: str) -> str:
    """Return the JVM options that use an existing archive, or record one."""
    if not java.has_archive:
        return ""
    stem = f"classes-{_key(java, jars=jars, version=version)}"
    archive = _find(cache, stem)
    if archive is None and _is_first(cache / f"{stem}.lock"):
        _adopt(cache, stem)
        archive = _find(cache, stem)
        if archive is None:
            return f"{_RECORD_OPTION}{cache / stem}{_TEMPORARY}{os.getpid()} {_SILENT}"
    if archive is None:
        return _SILENT
    os.utime(archive)
    return f"-XX:SharedArchiveFile={archive} {_SILENT}"


def keep_recording(spark: SparkSession, options: str) -> None:
    """If this session records, run a query so that its classes are archived, and complete the archive at exit."""
    if _RECORD_OPTION not in options:
        return
    recording = Path(options.partition(_RECORD_OPTION)[2].partition(" ")[0])
    spark.range(1).mapInArrow(lambda batches: batches, "id long").count()
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if isinstance(process, subprocess.Popen):
        atexit.register(_finish, process, recording)


def _finish(process: subprocess.Popen[bytes], recording: Path) -> None:
    """Close the JVM's input, which makes it exit, and wait until it has written the archive."""
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(WAIT_S)
        _adopt(recording.parent, recording.name.partition(_TEMPORARY)[0])


def _find(cache: Path, stem: str) -> Path | None:
    """Return the archive, or remove it if its size is not the one in its name."""
    for path in cache.glob(f"{stem}.*.jsa"):
        with contextlib.suppress(OSError):
            if path.name.split(".")[-2] == str(path.stat().st_size):
                return path
            path.unlink()
    return None


def _is_first(lock: Path) -> bool:
    """Return whether no other running process records this archive."""
    number = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return False
    _locks.append(number)
    return True


def _key(java: Java, *, jars: Path, version: str) -> str:
    """Return a hash of everything that an archive depends on."""
    listing = sorted((entry.name, entry.stat().st_size) for entry in os.scandir(jars))
    facts = (version, java.version, java.vendor, str(java.home), platform.machine(), str(jars), listing)
    return f"{version}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"


def _adopt(cache: Path, stem: str) -> None:
    """Rename a complete recording; remove abandoned recordings and old archives."""
    for recording in sorted(cache.glob(f"classes-*{_TEMPORARY}*")):
        with contextlib.suppress(OSError):
            if recording.name.startswith(f"{stem}{_TEMPORARY}") and is_complete(recording) and not _find(cache, stem):
                recording.replace(cache / f"{stem}.{recording.stat().st_size}.jsa")
                logger.debug("%s: Spark starts with this class data archive from now on", stem)
            elif is_complete(recording) or time.time() - recording.stat().st_mtime > ABANDONED_S:
                recording.unlink()
    others = [path for path in cache.glob("classes-*.jsa") if not path.name.startswith(f"{stem}.")]
    for path in sorted(others, key=lambda path: path.stat().st_mtime)[:-MAX_KEPT]:
        with contextlib.suppress(OSError):
            path.unlink()


def is_complete(recording: Path) -> bool:
    """Return whether the JVM has finished writing a recording."""
    with recording.open("rb") as file:
        first = file.read(4)
    return len(first) == 4 and any(first)
