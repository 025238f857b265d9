"""The inlined loads, stores and varints agree with their interpreted twin; so do the two layouts."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from fastcrc.crc32 import iscsi

from record.hostile import VARINTS
from seeklog.record import layout, primitives

ROOT: Final = Path(__file__).resolve().parents[2]
RECORD: Final = ROOT / "src/seeklog/record"
PROBE: Final = Path(__file__).with_name("probe.pyx")
SEED: Final = 2026
# Values around every boundary: of a byte, of a varint's byte, of a sign, of a word.
EDGES: Final = sorted(
    {sign * ((1 << bits) + near) for bits in range(63) for near in range(-2, 3) for sign in (1, -1)}
    | {2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1}
)
UNSIGNED: Final = sorted({value % 2**64 for value in EDGES})
LOADS: Final = ("load_i16", "load_i32", "load_u32", "load_i64", "load_u64", "load_little_u32", "load_little_u64")
PLACED: Final = ("get_u32_at", "get_u64_at")
STORES: Final = ("store_i16", "store_i32", "store_i64", "put_i32", "put_i64", "put_u32_at")
UNSIGNED_STORES: Final = ("store_u64", "store_little_u32", "put_u64_at")


@pytest.fixture(scope="module")
def probe() -> Any:
    """Return the inlined functions, each compiled into a Python function."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"no compiler: {compiler}")
    inputs = [PROBE, *sorted(RECORD.glob("*.pxd")), RECORD / "native.h"]
    digest = hashlib.sha256(sys.version.encode() + b"".join(path.read_bytes() for path in inputs)).hexdigest()[:16]
    built = ROOT / "build" / f"probe-{digest}" / f"probe{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
            source, made = f"{scratch}/probe.c", f"{scratch}/probe.so"
            translate = [sys.executable, "-m", "cython", "-I", str(ROOT / "src"), str(PROBE), "-o", source]
            subprocess.run(translate, check=True, capture_output=True)
            include = [f"-I{RECORD}", f"-I{sysconfig.get_paths()['include']}"]
            subprocess.run(
                [compiler, "-O2", "-fPIC", "-shared", "-fno-strict-aliasing", *include, source, "-o", made], check=True
            )
            os.replace(made, built)
    spec = importlib.util.spec_from_file_location("probe", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_inlined_function_has_a_tested_twin(probe: Any) -> None:
    declared = set(re.findall(r"^cdef inline [\w *(),]*?\*?(\w+)\(", (RECORD / "primitives.pxd").read_text(), re.M))
    twins = {name for name, value in vars(primitives).items() if callable(value) and name[0] != "_"} - {"Any"}

    assert twins == declared
    assert declared - {name for name in vars(probe) if name[0] != "_"} == {"finished", "new_pointer"}


def test_two_layouts_have_the_same_numbers() -> None:
    text = (RECORD / "layout.pxd").read_text()
    compiled = {name: int(value, 0) for name, value in re.findall(r"^    ([A-Z_0-9]+) = (\S+)$", text, re.M)}
    (widest,) = re.findall(r"#define SEEKLOG_INT64_MAX (0x\w+)LL", text)
    interpreted = {name: value for name, value in vars(layout).items() if isinstance(value, int)}

    assert {**compiled, "INT64_MAX": int(widest, 0)} == interpreted
    fields = re.findall(r"^    (?:Py_ssize_t|long long) (\w+)$", text.partition("cdef struct Place:")[2], re.M)
    assert sorted(fields) == sorted(layout.Place.__slots__)


def test_all_16_bit_numbers_load_and_store_the_same(probe: Any) -> None:
    for number in range(2**16):
        data = number.to_bytes(2, "big")
        assert probe.load_i16(data, 0) == primitives.load_i16(data, 0)
        stored = bytearray(2)
        probe.store_i16(stored, 0, number)
        assert stored == data


@pytest.mark.parametrize("name", [*LOADS, *PLACED, "get_i32", "get_i64"])
def test_loads_agree_on_every_byte_at_every_position(probe: Any, name: str) -> None:
    chance = random.Random(SEED)
    mine, twin = getattr(probe, name), getattr(primitives, name)
    for place, byte in itertools.product(range(24), range(256)):
        data = bytearray(chance.choice([bytes(24), b"\xff" * 24, chance.randbytes(24)]))
        data[place] = byte
        for at in range(3 if name.startswith("get_i") else 17):
            assert mine(bytes(data), at) == twin(bytes(data), at), f"seed {SEED}: {data.hex()} at {at}"


@pytest.mark.parametrize("name", [*STORES, *UNSIGNED_STORES])
def test_stores_agree_on_every_edge(probe: Any, name: str) -> None:
    for value in UNSIGNED if name in UNSIGNED_STORES else EDGES:
        for at in (0, 1, 2):
            mine, twin = bytearray(b"\x5a" * 32), bytearray(b"\x5a" * 32)
            getattr(probe, name)(mine, at, value)
            getattr(primitives, name)(twin, at, value)
            assert mine == twin, f"{value} at {at}"


def test_bits_agree(probe: Any) -> None:
    for byte, index in itertools.product(range(256), range(16)):
        data = bytes([byte, 255 - byte])
        assert probe.bit_at(data, index) == primitives.bit_at(data, index)


def test_numbers_agree_on_every_edge(probe: Any) -> None:
    for value in EDGES:
        assert probe.zigzag(value) == primitives.zigzag(value)
        assert probe.wrapped(value) == primitives.wrapped(value)
        assert primitives.wrapped(value + 2**64) == primitives.wrapped(value - 2**64) == value
    for value in UNSIGNED:
        assert probe.low_half(value) == primitives.low_half(value)


def test_varints_are_stored_and_measured_the_same(probe: Any) -> None:
    for value in [*range(-(2**14) - 2, 2**14 + 3), *EDGES]:
        mine, twin = bytearray(12), bytearray(12)
        assert (
            probe.store_varint(mine, 1, value)
            == primitives.store_varint(twin, 1, value)
            == 1 + (probe.varint_size(value))
        )
        assert mine == twin, value
        assert probe.varint_size(value) == primitives.varint_size(value), value
        assert probe.load_varint(bytes(mine), 1, 12) == (value, 1 + probe.varint_size(value))


def varints() -> Iterator[bytes]:
    """All varints of one and two bytes; every last byte after any number of continuation bytes; hostile ones."""
    yield b""
    yield from (bytes([byte]) for byte in range(256))
    yield from (bytes(pair) for pair in itertools.product(range(256), repeat=2))
    for count, filler, byte in itertools.product(range(12), (0x80, 0x81, 0xFF), range(256)):
        yield bytes([filler]) * count + bytes([byte])
    yield from (raw for raw, _ in VARINTS.values())


def test_varints_load_the_same_wherever_the_bytes_end(probe: Any) -> None:
    for raw in varints():
        for end in range(len(raw) + 1):
            # The bytes after the end exist, and must not be read.
            assert probe.load_varint(raw + b"\x01", 0, end) == primitives.load_varint(raw + b"\x01", 0, end), raw.hex()


@pytest.mark.parametrize("size", [0, 1, 7, 300])
def test_buffers_agree(probe: Any, size: int) -> None:
    data = random.Random(SEED).randbytes(size)
    twin: dict[str, Callable[..., Any]] = {
        "pointer": lambda: bytes(primitives.pointer(data)),
        "buffer_pointer": lambda: bytes(primitives.buffer_pointer(bytearray(data))),
        "view_pointer": lambda: bytes(primitives.view_pointer(memoryview(data))),
        "view_of": lambda: bytes(primitives.view_of(data)),
    }
    for name, call in twin.items():
        given = bytearray(data) if name == "buffer_pointer" else data
        assert getattr(probe, name)(given) == call() == data
    assert probe.view_of(None) == bytes(primitives.view_of(None)) == b""
    assert probe.new_bytes(data) == data
    assert type(primitives.finished(primitives.new_bytes(size))) is bytes
    assert probe.new_buffer(size) == len(primitives.new_buffer(size)) == size
    for wanted in (0, size, 2 * size + 1):
        assert probe.resize(bytearray(data), wanted) == wanted
        cut = bytearray(data)
        primitives.resize(cut, wanted)
        assert len(cut) == wanted
        assert cut[:size] == data[:wanted]
    for at in range(min(size, 5)):
        assert probe.slice_bytes(data, at, size - at) == primitives.slice_bytes(data, data, at, size - at) == data[at:]
        assert probe.bytes_at(data, at, size - at) == primitives.bytes_at(data, at, size - at) == data[at:]
        target = bytearray(size)
        primitives.copy(target, at, data, 0, size - at)
        assert probe.copy(bytearray(size), at, data, 0, size - at) == bytes(target)
    half = size // 2
    assert probe.view_at(data, half, size - half) == bytes(primitives.view_at(data, half, size - half)) == data[half:]
    probe.fetch_ahead(data)
    primitives.fetch_ahead(data, 0)


@pytest.mark.parametrize("text", ["", "orders", "za\N{LATIN SMALL LETTER Z WITH DOT ABOVE}", "\N{GRINNING FACE}\0"])
def test_text_agrees_at_every_byte(probe: Any, text: str) -> None:
    data = text.encode()
    for at, size in itertools.combinations_with_replacement(range(len(data) + 1), 2):
        outcomes = set()
        for module in (probe, primitives):
            try:
                outcomes.add(module.text_at(data, at, size - at))
            except UnicodeDecodeError:
                outcomes.add(None)
        assert len(outcomes) == 1, (at, size)


def test_short_strings_are_copied_from_any_place_before_the_end(probe: Any) -> None:
    source = random.Random(SEED).randbytes(400)
    for size, start in itertools.product(range(301), (0, 1, 31, 63, 99)):
        twin = bytearray(size + 33)
        primitives.copy_string(twin, 1, source, start, size, len(source))
        for end in (start + size, min(start + size + 31, len(source)), len(source)):
            copied = probe.copy_string(bytearray(size + 33), 1, source, start, size, end)
            assert copied[: 1 + size] == twin[: 1 + size] == b"\0" + source[start : start + size]


def test_string_at_the_end_changes_no_byte_after_it(probe: Any) -> None:
    for size in range(301):
        source = bytes(range(1, 256)) * 2
        assert probe.copy_string(bytearray(400), 0, source, 0, size, size) == source[:size] + bytes(400 - size)


def test_crc_by_instruction_is_that_of_the_library(probe: Any) -> None:
    if not probe._has_crc_instruction():
        pytest.skip("this processor has no instruction for it")
    data = random.Random(SEED).randbytes(20_000)
    # All sizes around the parts of a block, and the sizes of many blocks.
    for size in [*range(1300), *range(3060, 3480), 6144, 16_456, 20_000]:
        for initial in (0, 0xFFFFFFFF, 0x12345678):
            whole = iscsi(data[:size], initial)
            assert probe._crc32c(data[:size], initial) == whole, f"seed {SEED}, size {size}"
            assert probe._crc_narrow(data[:size], initial) == whole, f"seed {SEED}, size {size}"
