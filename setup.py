"""Compile the hot loops: modules in Cython's pure Python mode. Everything else stands in pyproject.toml."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

MODULES = (
    "seeklog.clients.gathering",
    "seeklog.record.arrow_rows",
    "seeklog.record.batch_header",
    "seeklog.record.columns",
    "seeklog.record.compaction",
    "seeklog.record.crc",
    "seeklog.record.cursor",
    "seeklog.record.decode",
    "seeklog.record.encode",
    "seeklog.record.growing",
    "seeklog.record.index_lookup",
    "seeklog.record.key_hash",
    "seeklog.record.key_table",
    "seeklog.record.markers",
    "seeklog.record.offset_map",
    "seeklog.record.record",
    "seeklog.record.segment_state",
    "seeklog.wire.codec",
)
RECORD = Path("src/seeklog/record")
WIRE = Path("src/seeklog/wire")
# A change of what is inlined is a change of all.
INLINED = [str(path) for path in sorted([*RECORD.glob("*.pxd"), *RECORD.glob("*.h"), *WIRE.glob("*.pxd")])]
JOBS = os.cpu_count() or 1
# Symbol tables are half of an extension. The linker of macOS ignores the option with a warning.
STRIPPED = ["-Wl,-s"] if sys.platform != "darwin" else []
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    # A module's own type of functions, and code to pickle every class, are a third of the machine code. Plain built-in
    # functions show their signature through the clinic's form of it.
    "binding": False,
    "embedsignature": True,
    "embedsignature.format": "clinic",
    "auto_pickle": False,
}

NEEDS_COMPILER = (
    "seeklog compiles its hot loops on install and found no working C compiler: "
    "install one (Debian/Ubuntu: apt-get install gcc python3-dev; Fedora: dnf install gcc python3-devel; "
    "macOS: xcode-select --install) and run the same command again."
)


class BuildExtensions(build_ext):
    """Compiles side by side, and says in one line what to install where the compiler is missing."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or JOBS

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except (CCompilerError, ExecError, PlatformError, FileNotFoundError) as error:
            raise SystemExit(f"{NEEDS_COMPILER} ({error})") from None


def extension(name: str) -> Extension:
    return Extension(
        name,
        [f"src/{name.replace('.', '/')}.py"],
        include_dirs=[str(RECORD)],
        depends=INLINED,
        extra_compile_args=["-O2", "-fno-tree-vectorize", "-fno-strict-aliasing", "-g0"],
        extra_link_args=STRIPPED,
    )


setup(
    ext_modules=cythonize(
        [extension(name) for name in MODULES],
        include_path=["src"],
        compiler_directives=DIRECTIVES,
    ),
    cmdclass={"build_ext": BuildExtensions},
)
