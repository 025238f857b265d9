"""The class data archive: what the JVM has loaded and checked in one start, ready for the next ones.

The first start writes it when it ends (`-XX:ArchiveClassesAtExit`), under a name of its own, and waits for that; it, or
a later start if it was killed, gives the archive its proper name. The JVM writes the header last, so a file whose first
bytes are zero is still being written, or its writer was killed. The proper name has the file's size in it: a truncated
archive kills the JVM (SIGBUS). An archive that does not fit is ignored by the JVM.
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

_RECORDING = ".jsa.recording-"
_RECORDS = "-XX:ArchiveClassesAtExit="
# Archives of other Javas and jars that are kept: each has 160 MB.
KEPT = 2
# How long a first start waits for the JVM to write; it takes some seconds.
WAIT_S = 60.0
# Held while this process records, so that of many processes that start at once one does.
_locks: list[int] = []
# Longer than any session's last seconds, in which it is written; a recording that is older and not whole was given up.
GIVEN_UP_S = 3600.0
# Nothing that happens to the archive is worth a line on the user's terminal.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"


def archive_options(java: Java, *, cache: Path, jars: Path, version: str) -> str:
    """Return the JVM's options that use the archive of earlier starts, or record one for later ones."""
    if not java.has_archive:
        return ""
    stem = f"classes-{_key(java, jars=jars, version=version)}"
    archive = _find(cache, stem)
    if archive is None and _is_first(cache / f"{stem}.lock"):
        _adopt(cache, stem)
        archive = _find(cache, stem)
        if archive is None:
            return f"{_RECORDS}{cache / stem}{_RECORDING}{os.getpid()} {_SILENT}"
    if archive is None:
        return _SILENT
    os.utime(archive)
    return f"-XX:SharedArchiveFile={archive} {_SILENT}"


def keep_recording(spark: SparkSession, options: str) -> None:
    """Make a start that records leave a good archive: with the classes of a query, and before the process ends."""
    if _RECORDS not in options:
        return
    recording = Path(options.partition(_RECORDS)[2].partition(" ")[0])
    # Whatever this session is for, the next one's first query finds its classes.
    spark.range(1).mapInArrow(lambda batches: batches, "id long").count()
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if isinstance(process, subprocess.Popen):
        atexit.register(_finish, process, recording)


def _finish(process: subprocess.Popen[bytes], recording: Path) -> None:
    """End the JVM, which ends when its input does, and wait until it has written."""
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(WAIT_S)
        _adopt(recording.parent, recording.name.partition(_RECORDING)[0])


def _find(cache: Path, stem: str) -> Path | None:
    """Return the archive if it has the size in its name, and remove it if not."""
    for path in cache.glob(f"{stem}.*.jsa"):
        with contextlib.suppress(OSError):
            if path.name.split(".")[-2] == str(path.stat().st_size):
                return path
            path.unlink()
    return None


def _is_first(lock: Path) -> bool:
    """Tell whether no other running process records this archive."""
    number = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return False
    _locks.append(number)
    return True


def _key(java: Java, *, jars: Path, version: str) -> str:
    """Return a hash of all that an archive depends on."""
    listing = sorted((entry.name, entry.stat().st_size) for entry in os.scandir(jars))
    facts = (version, java.version, java.vendor, str(java.home), platform.machine(), str(jars), listing)
    return f"{version}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"


def _adopt(cache: Path, stem: str) -> None:
    """Give a whole recording its proper name; remove recordings that were given up, and old archives."""
    for recording in sorted(cache.glob(f"classes-*{_RECORDING}*")):
        with contextlib.suppress(OSError):
            if recording.name.startswith(f"{stem}{_RECORDING}") and is_whole(recording) and not _find(cache, stem):
                recording.replace(cache / f"{stem}.{recording.stat().st_size}.jsa")
                logger.debug("Spark starts with a class data archive from now on: %s", stem)
            elif is_whole(recording) or time.time() - recording.stat().st_mtime > GIVEN_UP_S:
                recording.unlink()
    others = [path for path in cache.glob("classes-*.jsa") if not path.name.startswith(f"{stem}.")]
    for path in sorted(others, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        with contextlib.suppress(OSError):
            path.unlink()


def is_whole(recording: Path) -> bool:
    """Tell whether the JVM has written a recording to its end."""
    with recording.open("rb") as file:
        first = file.read(4)
    return len(first) == 4 and any(first)
