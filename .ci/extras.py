"""Runs the pages in fresh environments, each with the wheel and only the extras that its pages tell readers to install.

    extras.py                        build a wheel, then run every set of extras that is advertised
    extras.py none cli,sql           only these sets
    extras.py --python PYTHON        build and run with another Python
    extras.py --here cli             create nothing: run what needs no more than these extras, in this Python

A page advertises the extras of its first `pip install "seeklog[...]"`, and none if it has no such line. Each extra is
also run on its own, with a short program. Imports nothing but the standard library, as it runs in a wheel's tests, too.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import blocks  # noqa: E402  # under docs/

Extras = frozenset[str]

INSTALL: Final = re.compile(r'pip install "(?:seeklog|\.)\[([\w,]+)\]"')
OTHER_PACKAGE: Final = re.compile(r"`pip install (\w+)`")
# Its section on installing names them one by one.
README: Final = frozenset({"cli", "sql", "spark"})

FILL: Final = """
import seeklog

with seeklog.open("data") as store:
    store.create_topic("orders", partitions=2)
    with store.producer() as producer:
        for number in range(100):
            producer.send("orders", b"%d" % number, key=b"%d" % (number % 9))
"""
# What each set of extras is for, without a page.
PROGRAMS: Final = {
    "none": f"""{FILL}
    with store.consumer(["orders"], group="g", auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        assert sum(1 for _ in consumer) == 100
""",
    "arrow": f"""{FILL}
    assert store.topic("orders").scan_arrow().read_all().num_rows == 100
    assert store.topic("orders").dataset().count_rows() == 100
""",
    "cli": f"""{FILL}
import subprocess, sys
from pathlib import Path
command = Path(sys.executable).with_name("seeklog")
listed = subprocess.run([command, "ls", "data"], check=True, capture_output=True, text=True)
assert '"records": 100' in listed.stdout, listed.stdout
""",
    "sql": f"""{FILL}
    import duckdb
    orders = store.topic("orders").dataset()
    assert duckdb.sql("select count(*) from orders").fetchall() == [(100,)]
""",
    "spark": f"""{FILL}
from seeklog.spark import jobs, session
spark = session(master="local[2]")
assert spark.read.format("seeklog").option("subscribe", "orders").load("data").count() == 100
assert jobs.verify(spark, "data", progress=False).count() == 0  # findings
spark.stop()
""",
    "remote": f"""{FILL}
    store.archive("memory://archive")
with seeklog.open("memory://archive") as archive:
    assert archive.topics() == ["orders"]
""",
    "s3": """
import seeklog
try:
    seeklog.open("s3://bucket/store", storage_options={
        "key": "k", "secret": "s", "client_kwargs": {"endpoint_url": "http://127.0.0.1:9"},
        "config_kwargs": {"retries": {"max_attempts": 0}},
    })
except seeklog.errors.NotAccessible as error:
    assert "s3://bucket/store" in str(error), error
else:
    raise SystemExit("nothing listens there")
""",
    "msgpack": f"""{FILL}
    from seeklog import serializers
    assert serializers.msgpack.loads(serializers.msgpack.dumps({{"id": 1}})) == {{"id": 1}}
    consumer = store.consumer(["orders"], key=str, value=serializers.msgpack, on_error="skip", consumer_timeout_ms=0)
    assert list(consumer) == []
""",
    "avro": """
from seeklog import serializers
schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
avro = serializers.Avro({7: schema}, schema_id=7)
assert avro.dumps({"id": 1}) == bytes.fromhex("000000000702")
assert avro.loads(avro.dumps({"id": 1})) == {"id": 1}
""",
    "plots": """
from matplotlib.figure import Figure
Figure().savefig("empty.png")
""",
    "plots,spark": f"""
import subprocess, sys
payments = [sys.executable, "-m", "pipelines.payments"]
environment = {{"PYTHONPATH": {str(ROOT)!r}, **__import__("os").environ}}
for arguments in (["generate", "data", "--count", "3000"], ["run", "data", "output"]):
    subprocess.run([*payments, *arguments], check=True, env=environment)
""",
}


def extras_of(name: str) -> Extras:
    return frozenset() if name == "none" else frozenset(name.split(","))


def name_of(extras: Extras) -> str:
    return ",".join(sorted(extras)) or "none"


def advertised(page: Path) -> Extras:
    """Return the extras that a page tells its reader to install."""
    if page == ROOT / "README.md":
        return README
    found = INSTALL.search(page.read_text())
    return extras_of(found[1]) if found else frozenset()


def sets_to_run() -> list[Extras]:
    pages = {advertised(page) for page in pages_with_blocks()}
    return sorted(
        pages | {extras_of(name) for name in (*PROGRAMS, "all")}, key=lambda extras: (len(extras), name_of(extras))
    )


def pages_with_blocks() -> list[Path]:
    return [page for page in blocks.pages() if blocks.program_of(page.read_text())]


def pages_for(extras: Extras) -> list[Path]:
    """Return the pages that advertise just these extras; for `all` those that advertise any."""
    every = pages_with_blocks()
    return [page for page in every if advertised(page) == extras or (extras == {"all"} and advertised(page))]


def programs_for(extras: Extras) -> list[str]:
    names = [name for name in PROGRAMS if extras_of(name) == extras]
    return [*PROGRAMS] if extras == {"all"} else names


def other_packages(pages: list[Path]) -> list[str]:
    """Return the packages that pages install besides seeklog, where a block that runs imports them."""
    found = set()
    for page in pages:
        text = page.read_text()
        program = blocks.program_of(text)
        found |= {
            name for name in OTHER_PACKAGE.findall(text) if re.search(rf"^import {name}\b", program, re.MULTILINE)
        }
    return sorted(found)


def run_all(extras: Extras, python: str) -> Iterator[str]:
    """Run the pages and programs of a set of extras; yield what failed."""
    surroundings = plain_surroundings()
    for page in pages_for(extras):
        name = str(page.relative_to(ROOT))
        if failure := blocks.run(page.read_text(), name=name, python=python, surroundings=surroundings):
            yield f"{name}: {failure}"
    for name in programs_for(extras):
        page_of_one = f"```python\n{PROGRAMS[name]}```\n"
        if failure := blocks.run(page_of_one, name=f"program {name}", python=python, surroundings=surroundings):
            yield f"program {name}: {failure}"


def plain_surroundings() -> dict[str, str]:
    """Return the environment variables of a user who has activated nothing and set no path."""
    own = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


def build_wheel(python: str, directory: Path) -> Path:
    """Build a wheel from a source distribution, as an installer without a fitting wheel does."""
    build = [sys.executable, "-m", "build", "--sdist", "--outdir", str(directory), str(ROOT)]
    subprocess.run(build, check=True, env=plain_surroundings(), stdout=subprocess.DEVNULL)
    (source,) = directory.glob("seeklog-*.tar.gz")
    pip = [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(directory), str(source)], check=True, env=plain_surroundings())
    (built,) = directory.glob("seeklog-*.whl")
    return built


def install(python: str, home: Path, wheel: Path, extras: Extras) -> str:
    """Create an environment with the wheel and these extras; return its Python."""
    subprocess.run([python, "-m", "venv", home], check=True)
    inside = str(home / "bin" / "python")
    requirement = f"{wheel}[{','.join(sorted(extras))}]" if extras else str(wheel)
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, requirement, *other_packages(pages_for(extras))], check=True, env=plain_surroundings())
    # The README unpacks test data of the checkout that the package is in. Here that is this directory.
    (library,) = (home / "lib").glob("python*")
    (library / "tests").symlink_to(ROOT / "tests")
    return inside


def report(extras: Extras, failures: list[str], *, seconds: float) -> None:
    for failure in failures:
        print(f"{name_of(extras)}: {failure}", file=sys.stderr)
    counts = f"{len(pages_for(extras))} pages, {len(programs_for(extras))} programs"
    print(f"{name_of(extras)}: {counts}, {len(failures) or 'none'} failed ({seconds:.0f} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="EXTRAS", help="names joined by commas, or none")
    parser.add_argument("--python", default=sys.executable, help="the Python of the environments")
    parser.add_argument("--here", metavar="EXTRAS", help="run what needs no more than these, in this Python")
    options = parser.parse_args()
    failed = 0
    if options.here is not None:
        for extras in [each for each in sets_to_run() if each <= extras_of(options.here)]:
            began = time.monotonic()
            failures = list(run_all(extras, sys.executable))
            report(extras, failures, seconds=time.monotonic() - began)
            failed += len(failures)
        return 1 if failed else 0
    with tempfile.TemporaryDirectory(prefix="seeklog-extras-") as scratch:
        wheel = build_wheel(options.python, Path(scratch))
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB", flush=True)
        for extras in map(extras_of, options.sets) if options.sets else sets_to_run():
            began = time.monotonic()
            home = Path(scratch, name_of(extras))
            failures = list(run_all(extras, install(options.python, home, wheel, extras)))
            report(extras, failures, seconds=time.monotonic() - began)
            failed += len(failures)
            shutil.rmtree(home)  # half a gigabyte with Spark
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
