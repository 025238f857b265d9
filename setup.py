"""Compile the kernel: one module in Cython's pure Python mode. Everything else stands in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

NEEDS_COMPILER = (
    "seeklog compiles its kernel on install and found no working C compiler: "
    "install one (Debian/Ubuntu: apt-get install gcc python3-dev; Fedora: dnf install gcc python3-devel; "
    "macOS: xcode-select --install) and run the same command again."
)


class BuildKernel(build_ext):
    """Says in one line what to install where the compiler is missing."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except (CCompilerError, ExecError, PlatformError, FileNotFoundError) as error:
            raise SystemExit(f"{NEEDS_COMPILER} ({error})") from None


setup(
    ext_modules=cythonize(
        [
            Extension(
                "seeklog.record.kernel",
                ["src/seeklog/record/kernel.py"],
                include_dirs=["src/seeklog/record"],
                depends=["src/seeklog/record/kernel.pxd", "src/seeklog/record/native.h"],
                extra_compile_args=["-O3", "-fno-strict-aliasing"],
            )
        ],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": False,
        },
    ),
    cmdclass={"build_ext": BuildKernel},
)
