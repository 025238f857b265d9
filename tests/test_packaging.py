"""What the distributions and an install include and leave out, and the error for a missing compiler."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from importlib.metadata import metadata, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from record.twins import compiled_modules

ROOT = Path(__file__).resolve().parent.parent
CORE = {"cramjam", "fastcrc", "seeklog"}
# More would delay the start of the command line beyond 150 ms. Measured: 30 ms, 70 ms on a busy machine.
MAX_MODULES = 210


def run_python(code: str, *, python: str = sys.executable, env: dict[str, str] | None = None) -> str:
    """Return the output of a fresh interpreter, with the kernel compiled whatever this process uses."""
    clean = {name: value for name, value in os.environ.items() if name != "SEEKLOG_PURE"}
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, env=clean | (env or {}))
    return done.stdout


def modules_after(statement: str) -> set[str]:
    return set(json.loads(run_python(f"{statement}\nimport sys, json; print(json.dumps(list(sys.modules)))")))


def test_extras_are_as_listed() -> None:
    assert metadata("seeklog").get_all("Provides-Extra") == [
        "arrow",
        "spark",
        "pandas",
        "polars",
        "plots",
        "cli",
        "remote",
        "s3",
        "sql",
        "msgpack",
        "avro",
        "all",
        "dev",
    ]


def test_core_depends_only_on_crc_and_codecs() -> None:
    core = [line for line in requires("seeklog") or [] if "extra ==" not in line]

    assert sorted(re.split(r"[<>=~! ]", line)[0] for line in core) == ["cramjam", "fastcrc"]


def packages_of(extra: str) -> set[str]:
    """Return the packages that an extra names, and those of the extras that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    waiting = [Requirement(line) for line in project["optional-dependencies"][extra]]
    while waiting:
        requirement = waiting.pop()
        if requirement.name == "seeklog":
            lines = [line for name in requirement.extras for line in project["optional-dependencies"][name]]
            waiting += map(Requirement, lines)
            continue
        found.add(requirement.name)
        needed = map(Requirement, (requires(requirement.name) or []) if requirement.extras else [])
        waiting += [each for each in needed for name in requirement.extras if _is_of(each, name)]
    return found


def _is_of(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


@pytest.mark.parametrize("extra", ["spark", "all"])
def test_extra_with_spark_installs_what_its_session_imports(extra: str) -> None:
    """Without pandas PySpark refuses `mapInArrow`, which the session and the jobs use."""
    assert {"pyspark", "pandas", "pyarrow", "numpy"} <= packages_of(extra)


def test_import_loads_only_core_dependencies() -> None:
    distributions = packages_distributions()
    loaded = {
        name.partition(".")[0]
        for name in modules_after("import seeklog; seeklog.open, seeklog.Log") - modules_after("pass")
    }

    assert "seeklog" in loaded
    assert {owner for name in loaded for owner in distributions.get(name, [])} <= CORE


def test_import_does_not_load_cython() -> None:
    assert not {"cython", "Cython"} & modules_after("import seeklog")


@pytest.mark.parametrize("module", compiled_modules())
def test_module_is_compiled_unless_environment_requests_its_source(module: str) -> None:
    code = f"import {module} as module; print(module.__file__)"

    assert run_python(code).strip().endswith(".so")
    assert run_python(code, env={"SEEKLOG_PURE": "1"}).strip().endswith(f"{module.replace('.', '/')}.py")


def test_import_loads_few_modules() -> None:
    """Goal: a command that imports it starts at once. Rarely needed modules are loaded on demand."""
    loaded = modules_after("import seeklog; seeklog.open, seeklog.Log") - modules_after("pass")

    assert not {"asyncio", "concurrent", "difflib", "email", "fsspec", "http", "ssl", "unittest"} & loaded
    assert len(loaded) < MAX_MODULES


def copy_of_checkout(place: Path) -> Path:
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy2(ROOT / name, place)
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    return place


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a checkout without tests."""
    return copy_of_checkout(tmp_path)


@pytest.fixture(scope="module")
def distributed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout with `dist/`, its source distribution, and `built/`, a wheel's content but for its extensions.

    An editable install and a failed one have left files there.
    """
    tree = copy_of_checkout(tmp_path_factory.mktemp("checkout"))
    for name in ("left.so", "left.c"):
        (tree / "src" / "seeklog" / "record" / name).write_bytes(b"")
    (tree / "tests").mkdir()
    (tree / "tests" / "test_left.py").write_bytes(b"")
    done = run_setup(tree, "build_py", "--build-lib", "built", "sdist")
    assert done.returncode == 0, done.stderr
    return tree


def run_setup(tree: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "-q", *arguments],
        cwd=tree,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )


def test_build_includes_type_marker_stubs_and_sources_of_compiled_modules(distributed: Path) -> None:
    assert (distributed / "built/seeklog/py.typed").exists()
    for module in compiled_modules():
        place = distributed / "built" / module.replace(".", "/")
        assert place.with_suffix(".pyi").exists()
        assert place.with_suffix(".py").exists(), "SEEKLOG_PURE=1 needs it"
    for inlined in ("primitives.pxd", "layout.pxd", "native.h"):
        assert (distributed / "built/seeklog/record" / inlined).exists(), "another extension may cimport it"


def test_build_leaves_out_generated_c_and_other_leftovers(distributed: Path) -> None:
    suffixes = {path.suffix for path in (distributed / "built").rglob("*") if path.is_file()}

    assert suffixes == {".py", ".pyi", ".pxd", ".h", ".css", ".js", ".txt", ".typed"}


def test_source_distribution_has_what_a_build_needs_and_nothing_built(distributed: Path) -> None:
    (archive,) = (distributed / "dist").glob("seeklog-*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}

    assert {"pyproject.toml", "setup.py", "README.md", "CHANGELOG.md", "LICENSE"} <= names
    sources = [
        path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".pyi", ".pxd", ".h", ".css", ".js")
    ]
    assert {str(path.relative_to(ROOT)) for path in sources} <= names
    assert not [name for name in names if name.endswith((".c", ".so")) or name.startswith("tests")]


@pytest.mark.slow
@pytest.mark.parametrize("editable", [False, True], ids=["wheel", "editable install"])
def test_install_runs_compiled_and_interpreted(tree: Path, editable: bool) -> None:
    """Goal: outside this checkout, too, every compiled module is found in either form."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "installed"], cwd=tree, check=True)
    python = str(tree / "installed/bin/python")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", python, "install", "--no-deps"]
    what = ["-e", "."] if editable else ["."]
    # Dependencies and build requirements come from this environment.
    paths = {"PYTHONPATH": sysconfig.get_paths()["purelib"], "PYTHONSAFEPATH": "1"}
    subprocess.run([*pip, "--no-build-isolation", *what], cwd=tree, env=os.environ | paths, check=True)
    place = tree / ("src" if editable else "installed/lib")
    imports = f"import importlib; files = [importlib.import_module(m).__file__ for m in {compiled_modules()!r}]"
    use = "from seeklog.record.batch import encode_batch, decode_records; from seeklog.record.record import Record"
    code = f"{imports}; {use}; print(*files, *decode_records(encode_batch([Record(b'whole')])), sep='\\n')"

    for pure, suffix in (("", ".so"), ("1", ".py")):
        *files, record = run_python(code, python=python, env={"SEEKLOG_PURE": pure, **paths}).splitlines()
        assert "whole" in record
        assert all(file.startswith(str(place)) and file.endswith(suffix) for file in files)
        if suffix == ".so" and sys.platform == "linux":
            assert not [file for file in files if b".symtab" in Path(file).read_bytes()], "their symbols take more room"


def test_build_without_compiler_fails_with_one_line_of_advice(tree: Path) -> None:
    done = run_setup(tree, "build_ext", env={"CC": "/bin/false"})

    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "compiler" in line]
    assert "apt-get install gcc" in line
    assert line == done.stderr.splitlines()[-1]


def test_install_includes_the_command(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("seeklog")

    for words, told in (
        (["--version"], "seeklog, version "),
        (["create", "data", "orders"], ""),
        (["ls", "data"], "orders"),
    ):
        done = subprocess.run([command, *words], capture_output=True, text=True, check=True, cwd=tmp_path)
        assert told in done.stdout
