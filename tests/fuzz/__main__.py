"""`python tests/fuzz TARGET --runs N`: fuzz one of the decoders with atheris, libFuzzer for Python.

Prints the result as JSON. Inputs that cause anything but a declared error are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description="The decoders under fuzz.")
    parser.add_argument("target", nargs="?", help="which one; without it the names are printed")
    parser.add_argument("--runs", type=int, default=10_000_000, help="how many inputs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="inputs to begin with, and where those worth keeping go")
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"), help="(default: %(default)s)")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    instrumented: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if arguments.target:
        import atheris

        instrumented = atheris.instrument_imports(include=["seeklog"])
    with instrumented:
        from fuzz.campaign import fuzz_here
        from fuzz.target import load_targets

        targets = load_targets()
    if arguments.target not in targets:
        print("\n".join(targets))
        return 2 if arguments.target else 0
    arguments.findings.mkdir(parents=True, exist_ok=True)
    corpus = arguments.corpus or Path(tempfile.mkdtemp(prefix="seeklog-fuzz-"))
    corpus.mkdir(parents=True, exist_ok=True)
    fuzz_here(
        targets[arguments.target],
        runs=arguments.runs,
        seed=arguments.seed,
        corpus=corpus,
        findings=arguments.findings,
        answer=arguments.answer,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
