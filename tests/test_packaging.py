"""What an install includes and leaves out, and the error for a missing compiler."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import metadata, packages_distributions, requires
from pathlib import Path

import pytest

from record.twins import compiled_modules

ROOT = Path(__file__).resolve().parent.parent
CORE = {"cramjam", "fastcrc", "seeklog"}
# More would delay the start of the command line beyond 150 ms. Measured: 30 ms, 70 ms on a busy machine.
MAX_MODULES = 200


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
        "plots",
        "cli",
        "remote",
        "s3",
        "sql",
        "all",
        "dev",
    ]


def test_core_depends_only_on_crc_and_codecs() -> None:
    core = [line for line in requires("seeklog") or [] if "extra ==" not in line]

    assert sorted(re.split(r"[<>=~! ]", line)[0] for line in core) == ["cramjam", "fastcrc"]


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


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a directory with the contents of a source distribution."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    return tmp_path


def run_setup(tree: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "-q", *arguments],
        cwd=tree,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )


def test_build_includes_type_marker_stubs_and_sources_of_compiled_modules(tree: Path) -> None:
    done = run_setup(tree, "build_py", "--build-lib", "built")

    assert done.returncode == 0, done.stderr
    assert (tree / "built/seeklog/py.typed").exists()
    for module in compiled_modules():
        place = tree / "built" / module.replace(".", "/")
        assert place.with_suffix(".pyi").exists()
        assert place.with_suffix(".py").exists(), "SEEKLOG_PURE=1 needs it"
    for inlined in ("primitives.pxd", "layout.pxd", "native.h"):
        assert (tree / "built/seeklog/record" / inlined).exists(), "another extension may cimport it"


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
