"""An installation without the extras: what works, and how each missing package is named."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ("cramjam", "fastcrc")
# The packages of the extra `cli`, with what rich depends on.
CLI = ("click", "rich", "markdown_it", "mdurl", "pygments")

FIRST_USE = """
import seeklog

with seeklog.open("data") as store:
    store.create_topic("payments", partitions=2)
    with store.producer() as producer:
        for number in range(100):
            producer.send("payments", b"%d" % number, key=b"merchant-%d" % (number % 9))
    with store.consumer(["payments"], group="g", auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        print(sum(1 for record in consumer), store.topic("payments").latest(b"merchant-4").value)
        consumer.commit()
"""
# A call that needs an extra, and the error without it.
DOORS = {
    "spark": ("import seeklog.spark", 'Spark is not installed; run: pip install "seeklog[spark]"'),
    "session": ("from seeklog.spark import session", 'Spark is not installed; run: pip install "seeklog[spark]"'),
    "scan_arrow": ("topic.scan_arrow()", 'Arrow columns need pyarrow: pip install "seeklog[arrow]"'),
    "scan of a log": ("store.log('t', 0).scan_arrow()", 'Arrow columns need pyarrow: pip install "seeklog[arrow]"'),
    "to_pandas": ("topic.to_pandas()", 'Arrow columns need pyarrow: pip install "seeklog[arrow]"'),
    "to_polars": ("topic.to_polars()", 'Arrow columns need pyarrow: pip install "seeklog[arrow]"'),
    "query": ("store.sql('select 1')", 'sql needs duckdb: pip install "seeklog[sql]"'),
    "dataset": ("topic.dataset()", 'Arrow columns need pyarrow: pip install "seeklog[arrow]"'),
    "sql": (
        "from seeklog.store.sql import import_duckdb; import_duckdb()",
        'sql needs duckdb: pip install "seeklog[sql]"',
    ),
    "s3": ("seeklog.open('s3://bucket/store')", 's3:// needs fsspec: pip install "seeklog[s3]"'),
    "remote": ("seeklog.open('memory://store')", 'memory:// needs fsspec: pip install "seeklog[remote]"'),
    "archive": ("store.archive('s3://bucket/store')", 's3:// needs fsspec: pip install "seeklog[s3]"'),
    "msgpack": (
        "store.consumer(['t'], value=seeklog.serializers.msgpack)",
        'this serializer needs msgpack: pip install "seeklog[msgpack]"',
    ),
    "avro": ("seeklog.serializers.Avro({})", 'this serializer needs fastavro: pip install "seeklog[avro]"'),
}
COMMANDS = {
    "sql": (["sql", "data", "select 1"], 'sql needs duckdb: pip install "seeklog[sql]"'),
    "export": (["export", "data", "t", "-o", "out.parquet"], 'need pyarrow: pip install "seeklog[arrow]"'),
    "archive": (["archive", "data", "s3://bucket/store"], 's3:// needs fsspec: pip install "seeklog[s3]"'),
    "ls": (["ls", "gs://bucket/store"], 'gs:// needs fsspec: pip install "seeklog[remote]"'),
    "pipeline": (["pipeline", "stats", "data"], 'Spark is not installed; run: pip install "seeklog[spark]"'),
    "reindex": (["reindex", "data", "--spark"], 'Spark is not installed; run: pip install "seeklog[spark]"'),
}


def environment_with(home: Path, packages: tuple[str, ...]) -> Path:
    """Create a virtual environment with seeklog and these packages, linked from this one; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    (site,) = (home / "lib").glob("python*/site-packages")
    for name in packages:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (site / name).symlink_to(Path(spec.origin).parent)
    (site / "seeklog.pth").write_text(f"{ROOT / 'src'}\n")
    return python


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(tmp_path_factory.mktemp("core") / "environment", CORE)


@pytest.fixture(scope="module")
def with_cli(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(tmp_path_factory.mktemp("cli") / "environment", CORE + CLI)


def run(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SEEKLOG_PURE")}
    return subprocess.run([python, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_engine_producer_and_consumer_need_no_extra(core: Path, tmp_path: Path) -> None:
    done = run(core, "-c", FIRST_USE, cwd=tmp_path)

    assert (done.stderr, done.stdout) == ("", "100 b'94'\n")


@pytest.mark.parametrize("door", DOORS)
def test_missing_package_is_an_import_error_that_names_its_extra(core: Path, tmp_path: Path, door: str) -> None:
    statement, message = DOORS[door]
    program = (
        "import seeklog\nstore = seeklog.open('data', background=False)\nstore.create_topic('t')\n"
        "topic = store.topic('t')\n"
        f"try:\n    {statement}\n"
        "except ImportError as error:\n"
        "    assert isinstance(error, seeklog.errors.UsageError), error\n    print(error)\n"
    )

    done = run(core, "-c", program, cwd=tmp_path)

    assert (done.stderr, done.stdout) == ("", f"{message}\n")


def test_command_without_click_names_its_extra(core: Path, tmp_path: Path) -> None:
    done = run(core, "-m", "seeklog.cli", "--version", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'seeklog: the command line needs click and rich: pip install "seeklog[cli]"\n'


def test_command_line_needs_only_its_own_extra(with_cli: Path, tmp_path: Path) -> None:
    done = run(with_cli, "-m", "seeklog.cli", "create", "data", "orders", cwd=tmp_path)
    listed = run(with_cli, "-m", "seeklog.cli", "ls", "data", "--format", "table", cwd=tmp_path)

    assert (done.returncode, listed.returncode, listed.stderr) == (0, 0, "")
    assert "orders" in listed.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_command_that_needs_another_extra_names_it(with_cli: Path, tmp_path: Path, command: str) -> None:
    run(with_cli, "-c", "import seeklog; seeklog.open('data').create_topic('t')", cwd=tmp_path)
    arguments, message = COMMANDS[command]

    done = run(with_cli, "-m", "seeklog.cli", *arguments, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("seeklog: ")
    assert done.stderr.endswith(f"{message}\n")
    assert done.stderr.count("\n") == 1


def test_pipeline_without_matplotlib_stops_before_the_work(core: Path, tmp_path: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from pipelines.payments.__main__ import main; "

    done = run(core, "-c", f"{program}sys.exit(main(['run', 'data', 'out']))", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'payments: the plots need matplotlib: pip install "seeklog[plots]"\n'
