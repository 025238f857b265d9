"""The packages: the documents draw the import contracts, and only `files` accesses the disk."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

import seeklog

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src" / "seeklog"
# Packages of the engine. The command line and a local Spark session also access files of their user.
ENGINE: Final = ("record", "wire", "log", "topics", "archive", "groups", "clients", "store", "handover", "server")
# Calls that access the disk; reading the environment or registering a fork handler does not.
DISK_CALLS: Final = frozenset(
    {"access", "chmod", "close", "fdatasync", "fsync", "ftruncate", "link", "listdir", "lstat", "makedirs", "mkdir"}
    | {"open", "pread", "pwrite", "read", "readlink", "remove", "rename", "replace", "rmdir", "scandir", "stat"}
    | {"symlink", "truncate", "unlink", "utime", "walk", "write"}
)


def contracts() -> list[dict[str, object]]:
    found: list[dict[str, object]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


@pytest.mark.id("rooms-are-drawn")
def test_drawn_direction_matches_import_contract() -> None:
    text = (ROOT / "docs" / "design" / "README.md").read_text()
    drawn = re.search(r"^ground floor <- (.+)$", text, re.MULTILINE)
    assert drawn is not None
    layers = next(each["layers"] for each in contracts() if each["type"] == "layers" and "containers" not in each)
    assert isinstance(layers, list)
    rooms = [
        frozenset(re.findall(r"seeklog\.(\w+)", layer)) for layer in reversed(layers) if layer != "pyspark_seeklog"
    ]
    ground = frozenset({"errors", "arguments", "config", "names", "clock", "metrics"})
    assert frozenset().union(*rooms[:3]) == ground
    assert [frozenset(re.findall(r"\w+", each)) for each in drawn[1].split(" <- ")] == rooms[3:]


def test_every_package_is_drawn() -> None:
    text = (ROOT / "docs" / "design" / "README.md").read_text()
    tree = text[text.index("```text\nsrc/seeklog/") :].partition("```\n")[0]
    for package in SOURCE.rglob("__init__.py"):
        room = package.parent.relative_to(SOURCE).parts
        if room and room[0] not in ("spark", "cli"):
            assert f"{room[-1]}/" in tree, f"{'/'.join(room)} is not in the tree of docs/design/README.md"


def test_api_page_has_every_class_that_a_store_returns() -> None:
    """An internal object that slips onto the face of a store is on no page."""
    page = (ROOT / "docs" / "api.md").read_text()
    documented = set(re.findall(r"^\.\. autoclass:: [\w.]+\.(\w+)$", page, re.MULTILINE))
    ours = {
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    returned = {
        name: set(
            re.findall(r"\w+", (member.fget if isinstance(member, property) else member).__annotations__["return"])
        )
        for name, member in vars(seeklog.Store).items()
        if not name.startswith("_")
    }
    assert {
        name: classes & ours - documented for name, classes in returned.items() if classes & ours - documented
    } == {}


@pytest.mark.parametrize("room", ENGINE)
def test_engine_accesses_disk_only_through_files(room: str) -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in (SOURCE / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and is_disk_call(node.func)
    ]
    assert not found


def is_disk_call(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "open"
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "os"
        and function.attr in DISK_CALLS
    )
