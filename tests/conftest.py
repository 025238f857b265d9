"""Makes the packages under tests/ importable, configures Hypothesis, and starts Spark."""

from __future__ import annotations

import fcntl
import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    # pytest's importlib mode adds nothing to the path.
    sys.path.insert(0, str(HERE))

# The same examples every time, so a failure repeats. SEEKLOG_MODEL_EXAMPLES asks for more, random examples: Hypothesis
# prints how to repeat a failing one.
_MORE = int(os.environ.get("SEEKLOG_MODEL_EXAMPLES", "0"))
settings.register_profile(
    "seeklog",
    deadline=None,  # the machine is shared; bench/ measures speed
    derandomize=not _MORE,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("seeklog")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests unless `-m` is given."""
    if config.option.markexpr:
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with -m slow"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give whole files to the workers, and all users of the Spark session to one: each more would start a session."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return "Spark" if _uses_spark(path) else path

    # Slow tests start their own processes: any worker may run them.
    return None if config.option.markexpr else Files(config, log)


@functools.cache
def _uses_spark(path: str) -> bool:
    return "SparkSession" in (HERE.parent / path).read_text()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session with two tasks at a time, whose workers import from tests/ too."""
    from seeklog.spark import session

    paths = [str(HERE.parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    home = tmp_path_factory.mktemp("spark")
    logging = home / "log4j2.properties"
    logging.write_text("rootLogger.level = off\n")
    config = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        # The tests are short: code that is compiled once and quickly is what they need. What goes wrong on purpose
        # is not logged.
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={logging}",
    }
    with session("seeklog tests", master="local[2]", config=config) as running:
        yield running


@pytest.fixture
def connect_alone() -> Iterator[None]:
    """Serialise starts of a Spark Connect server, which always uses the same port, across processes."""
    with open(Path(tempfile.gettempdir()) / "seeklog-tests-connect.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
