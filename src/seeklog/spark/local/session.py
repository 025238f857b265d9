"""`session()`: a local Spark session that starts fast and logs little.

Most of the time to the first result is spent loading the same classes and modules each time. A cache directory keeps a
class data archive for the JVM, and a SPARK_HOME without the zip of PySpark. The zip has no compiled modules; without it
workers import PySpark from site-packages.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from seeklog.errors import UsageError
from seeklog.spark.local.class_archive import archive_options, keep_recording
from seeklog.spark.local.java import find_java, home_for_spark, write_if_changed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("seeklog")

MEMORY = "2g"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = """\
# Errors only, on stderr.
rootLogger.level = error
# The caller gets an exception with the cause of a failed task; these log it five more times with the JVM's stack.
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.scheduler.name = org.apache.spark.scheduler.TaskSetManager
logger.scheduler.level = off
logger.writing.name = org.apache.spark.sql.execution.datasources.v2
logger.writing.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
# If this level differs from the root's, Spark prints two lines about it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
# Skipping Arrow's bounds checks makes writing Arrow about a tenth cheaper.
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def session(
    app_name: str = "seeklog",
    *,
    master: str = "local[*]",
    memory: str = MEMORY,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a tuned local session, or the existing session unchanged, active in this thread.

    Nothing is tuned under `spark-submit`, with a remote server in the environment, or if `master` is a cluster.
    `config` overrides every setting made here. Sets JAVA_HOME, SPARK_HOME, and PYSPARK_PYTHON of this process if they
    are not set.
    """
    from pyspark.sql import SparkSession

    running = running_session()
    if running is not None:
        if config:
            logger.warning("a Spark session is already running and is used unchanged: %s is not set", ", ".join(config))
        return running
    builder = SparkSession.builder.appName(app_name)
    if has_master():
        tuned: Mapping[str, str] = {}
    elif not master.startswith("local") or master.startswith("local-cluster"):
        tuned = {"spark.master": master}
    else:
        tuned = prepare(master, memory)
    merged = {**tuned, **(config or {})}
    if _JAVA_OPTIONS in tuned:
        # JVM options are combined, and the JVM uses the last of two equal options.
        merged[_JAVA_OPTIONS] = f"{tuned[_JAVA_OPTIONS]} {(config or {}).get(_JAVA_OPTIONS, '')}".strip()
    for name, value in merged.items():
        builder = builder.config(name, value)
    running = builder.getOrCreate()
    keep_recording(running, tuned.get(_JAVA_OPTIONS, ""))
    return running


def running_session() -> SparkSession | None:
    """Return the session of this process, made active in this thread, or None.

    Spark keeps an active session per JVM thread, and every Python thread has its own JVM thread. A write looks up its
    data source in the active session, so without this the first write of a thread fails with `DATA_SOURCE_NOT_FOUND`.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    other: SparkSession | None = getattr(SparkSession, "_instantiatedSession", None)
    if other is None or other.sparkContext._jsc is None:
        return None
    make_active(other)
    return other


def make_active(spark: SparkSession) -> None:
    """Make a session active in this thread."""
    # PySpark offers no direct way. This call sets the active session of the JVM thread and runs no job.
    spark.createDataFrame([], "nothing int")


def has_master() -> bool:
    """Return whether the environment already decides where Spark runs."""
    return any(
        os.environ.get(name)
        for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "MASTER")
    ) or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "")


def prepare(master: str, memory: str) -> dict[str, str]:
    """Prepare the environment and the cache for a local session, and return its configuration."""
    import pyspark

    cache = cache_directory()
    java = find_java()
    spark_home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    options = [_ARROW]
    if cache is not None:
        os.environ["JAVA_HOME"] = str(home_for_spark(java, cache=cache))
        if "SPARK_HOME" not in os.environ:
            spark_home = _light_home(spark_home, cache, version=pyspark.__version__)
            os.environ["SPARK_HOME"] = str(spark_home)
        options.append(f"-Dlog4j2.configurationFile={write_if_changed(cache / 'log4j2.properties', _LOGGING).as_uri()}")
        options.append(archive_options(java, cache=cache, jars=spark_home / "jars", version=pyspark.__version__))
    else:
        os.environ["JAVA_HOME"] = str(java.home)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    _add_to_python_path()
    return {
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        _JAVA_OPTIONS: " ".join(filter(None, options)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(_cores(master)),
        # Shows where native code crashed.
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    }


def _cores(master: str) -> int:
    """Return the number of tasks that `local[…]` runs at once."""
    inside = master[len("local") :].strip("[]").partition(",")[0].strip()
    if inside == "*":
        return os.cpu_count() or 1
    if inside and not inside.isdigit():
        raise UsageError(f"master is {master!r}; a local master is local, local[2] or local[*]")
    return int(inside or 1)


def cache_directory() -> Path | None:
    """Return the cache directory, or None if it cannot be written.

    It is SEEKLOG_CACHE, else a directory in the virtual environment, else the user's cache directory.
    """
    if given := os.environ.get("SEEKLOG_CACHE"):
        cache = Path(given)
    elif sys.prefix != sys.base_prefix:
        cache = Path(sys.prefix) / "var" / "seeklog"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seeklog"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.debug("Spark starts without a cache: %s", error)
        return None
    # Spark splits JVM options at whitespace and cannot escape it.
    if not os.access(cache, os.W_OK) or any(character.isspace() for character in str(cache.absolute())):
        logger.debug("%s is not writable or has whitespace in its name: Spark starts without a cache", cache)
        return None
    return cache.absolute()


def _light_home(real: Path, cache: Path, *, version: str) -> Path:
    """Return a SPARK_HOME like the real one, but without the zip of PySpark."""
    home = cache / f"spark-{version}"
    home.mkdir(exist_ok=True)
    (home / "python" / "lib").mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "sbin", "data", "licenses"):
        link, target = home / name, real / name
        if target.exists() and (not link.is_symlink() or link.resolve() != target.resolve()):
            new = link.with_name(f"{name}.{os.getpid()}")
            new.symlink_to(target)
            new.replace(link)
    return home


def _add_to_python_path() -> None:
    """Add the directory that seeklog was imported from to the path of the workers, unless it is site-packages."""
    home = Path(__file__).parents[3]
    if home.name not in ("site-packages", "dist-packages"):
        paths = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(home)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
