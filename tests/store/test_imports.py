"""Packages of the extras that cannot be imported: missing, or installed and broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seeklog.errors import SeeklogError, UsageError, import_failed
from seeklog.files.remote import open_filesystem
from seeklog.record.arrow import import_pyarrow
from seeklog.store.sql import import_duckdb

NO_MEMORY = "libarrow.so: failed to map segment from shared object: Cannot allocate memory"


class _Broken:
    """An importer whose package is there and cannot be loaded."""

    def __init__(self, package: str, error: ImportError) -> None:
        self._package = package
        self._error = error

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == self._package:
            raise self._error


def break_import(monkeypatch: pytest.MonkeyPatch, package: str, error: ImportError) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Broken(package, error), *sys.meta_path])


@pytest.mark.parametrize(("package", "load"), [("pyarrow", import_pyarrow), ("duckdb", import_duckdb)])
def test_package_that_cannot_be_loaded_keeps_its_cause(
    monkeypatch: pytest.MonkeyPatch, package: str, load: Any
) -> None:
    pytest.importorskip(package)
    break_import(monkeypatch, package, ImportError(NO_MEMORY, name=f"_{package}"))

    with pytest.raises(SeeklogError) as caught:
        load()

    assert not isinstance(caught.value, UsageError)
    assert str(caught.value) == (
        f"{package} is installed but cannot be loaded: {NO_MEMORY}; raise the memory limit of the process if it has "
        f"one (ulimit -v), or reinstall the package: pip install --force-reinstall {package}"
    )


@pytest.mark.parametrize(("package", "load"), [("pyarrow", import_pyarrow), ("duckdb", import_duckdb)])
def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, package: str, load: Any) -> None:
    pytest.importorskip(package)
    break_import(monkeypatch, package, ModuleNotFoundError(f"No module named {package!r}", name=package))

    with pytest.raises(UsageError, match=rf'{package}: pip install "seeklog\[(arrow|sql)\]"'):
        load()


def test_module_that_a_package_itself_misses_is_not_taken_for_it() -> None:
    error = import_failed(ModuleNotFoundError("No module named 'lib'", name="lib"), "pyarrow", missing="install it")

    assert "pyarrow is installed but cannot be loaded: No module named 'lib'" in str(error)


@pytest.mark.parametrize(
    ("cause", "kind", "words"),
    [
        (ModuleNotFoundError("No module named 's3fs'", name="s3fs"), UsageError, r'pip install "seeklog\[s3\]"'),
        (ImportError(NO_MEMORY, name="_ssl"), SeeklogError, "cannot be loaded: .*Cannot allocate memory"),
    ],
    ids=["missing", "broken"],
)
def test_backend_of_a_url_is_missing_or_broken(
    monkeypatch: pytest.MonkeyPatch, cause: ImportError, kind: type[SeeklogError], words: str
) -> None:
    """fsspec raises its own `ImportError` from the cause."""
    fsspec = pytest.importorskip("fsspec")

    def fail(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3") from cause

    monkeypatch.setattr(fsspec.core, "url_to_fs", fail)

    with pytest.raises(SeeklogError, match=words) as caught:
        open_filesystem("s3://bucket/path", {})
    assert isinstance(caught.value, UsageError) == (kind is UsageError)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is enforced on Linux")
def test_memory_limit_is_not_taken_for_a_missing_package(tmp_path: Path) -> None:
    """Under a real limit, whatever fails first: the words are never `pip install "seeklog[…]"`."""
    pytest.importorskip("duckdb")
    script = (
        "import resource, seeklog.store.sql as sql; "
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize(); "
        "resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20),) * 2); sql.import_duckdb()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.returncode != 0
    assert "seeklog[" not in done.stderr.splitlines()[-1], done.stderr
