"""`session()`: a Spark session on this machine that starts quickly and keeps quiet.

Of the seconds that a session takes to its first result, most go into loading the same classes and modules each time.
A cache keeps what can be kept: a class data archive of the JVM, and a SPARK_HOME without the zip of PySpark, which has
no compiled modules in it, so that workers import from site-packages instead.
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
# The caller gets an exception that says why a task failed; these log it five times more, with the JVM's stack.
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.scheduler.name = org.apache.spark.scheduler.TaskSetManager
logger.scheduler.level = off
logger.writing.name = org.apache.spark.sql.execution.datasources.v2
logger.writing.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
# Where this one differs from the root, Spark says so in two lines.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
# Without Arrow's own checks of indexes an Arrow writer costs about a tenth less.
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def session(
    app_name: str = "seeklog",
    *,
    master: str = "local[*]",
    memory: str = MEMORY,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a tuned local session, or the one that is there already, as it is, made the active one of this thread.

    Under `spark-submit`, with a remote server in the environment, or with a `master` that is a cluster, nothing is
    tuned: that session is the user's own. `config` overrides everything that is set here. Sets JAVA_HOME, SPARK_HOME
    and PYSPARK_PYTHON of this process where they are not set.
    """
    from pyspark.sql import SparkSession

    running = running_session()
    if running is not None:
        if config:
            logger.warning("a Spark session is running and used as it is: %s is not set", ", ".join(config))
        return running
    builder = SparkSession.builder.appName(app_name)
    if is_given():
        tuned: Mapping[str, str] = {}
    elif not master.startswith("local") or master.startswith("local-cluster"):
        tuned = {"spark.master": master}
    else:
        tuned = prepare(master, memory)
    merged = {**tuned, **(config or {})}
    if _JAVA_OPTIONS in tuned:
        # Options of the JVM add up; of two that are the same the last one counts.
        merged[_JAVA_OPTIONS] = f"{tuned[_JAVA_OPTIONS]} {(config or {}).get(_JAVA_OPTIONS, '')}".strip()
    for name, value in merged.items():
        builder = builder.config(name, value)
    running = builder.getOrCreate()
    keep_recording(running, tuned.get(_JAVA_OPTIONS, ""))
    return running


def running_session() -> SparkSession | None:
    """Return the session of this process, made active in this thread, or None if there is none.

    Spark keeps the active session by the thread of its JVM, and every Python thread has one of its own there. A read
    goes by the session that it is called on. A write looks for its data source in the active session, so that without
    this the first write of a thread fails with `DATA_SOURCE_NOT_FOUND`, and the second succeeds.
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
    """Make a session the active one of this thread."""
    # No job runs: it is what PySpark offers that says so to the JVM.
    spark.createDataFrame([], "nothing int")


def is_given() -> bool:
    """Tell whether the environment has decided where this program's Spark runs."""
    return any(
        os.environ.get(name)
        for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "MASTER")
    ) or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "")


def prepare(master: str, memory: str) -> dict[str, str]:
    """Prepare what a local session needs outside of itself, and return its configuration."""
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
        # A crash of native code shows where it was.
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    }


def _cores(master: str) -> int:
    """Return how many tasks `local[…]` runs at once."""
    inside = master[len("local") :].strip("[]").partition(",")[0].strip()
    if inside == "*":
        return os.cpu_count() or 1
    if inside and not inside.isdigit():
        raise UsageError(f"master is {master!r}; a local one is local, local[2] or local[*]")
    return int(inside or 1)


def cache_directory() -> Path | None:
    """Return where to keep what makes later starts quick, or None if nothing can be written there.

    SEEKLOG_CACHE says where; else it is inside the virtual environment, if there is one, or the user's cache directory.
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
    # Spark takes its options apart at blanks, and has no way to write one.
    if not os.access(cache, os.W_OK) or any(character.isspace() for character in str(cache.absolute())):
        logger.debug("Spark starts without a cache: %s cannot be written, or has a blank in its name", cache)
        return None
    return cache.absolute()


def _light_home(real: Path, cache: Path, *, version: str) -> Path:
    """Return a SPARK_HOME like the real one, but without the zip that workers would import PySpark from."""
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
    """Put the directory that seeklog was imported from on the workers' path: a script may have found it elsewhere."""
    home = Path(__file__).parents[3]
    if home.name not in ("site-packages", "dist-packages"):
        paths = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(home)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
