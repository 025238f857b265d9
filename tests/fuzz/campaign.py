"""Runs a target: with a few damaged inputs in this process, or in a libFuzzer campaign in a child.

libFuzzer ends its process, so a campaign is a child that writes its result to a file. A crash of the child is a
finding, whose input libFuzzer keeps.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from fuzz.mutation import scrambler
from fuzz.target import Target
from fuzz.watch import Tally, Watch

HAS_ATHERIS = importlib.util.find_spec("atheris") is not None
# An input that takes longer hangs, and libFuzzer keeps it.
HANG_S = 20


def damage(target: Target, *, runs: int, seed: int) -> Tally:
    """Run a target on its seeds and on `runs` random mutations of them, without libFuzzer."""
    watch = Watch(target)
    chance = random.Random(f"{target.name} {seed}")
    scramble = scrambler(chance, size_most=target.size_most)
    seeds = list(target.seeds())
    for data in seeds:
        watch(data)
    data = seeds[0]
    for _ in range(runs):
        if not chance.randrange(3):
            data = chance.choice(seeds)
        data = target.mutate(data, chance, scramble)[: target.size_most]
        watch(data)
    return watch.finish()


def run_campaign(name: str, *, runs: int, seed: int, corpus: Path, findings: Path) -> Tally:
    """Run libFuzzer on a target in a child. Interesting inputs are added to the corpus."""
    for directory in (corpus, findings):
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch) / "answer.json"
        command = [sys.executable, str(Path(__file__).parent), name, "--runs", str(runs), "--seed", str(seed)]
        command += ["--corpus", str(corpus), "--findings", str(findings), "--answer", str(answer)]
        # The target's files are in the scratch directory, because libFuzzer ends its process without cleanup.
        environment = {**os.environ, "TMPDIR": scratch}
        child = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)
        if answer.exists():
            return Tally(**json.loads(answer.read_text()))
        kept = sorted(path.name for path in findings.glob(f"{name}-*"))
        last = (child.stderr.strip().splitlines() or ["nothing was said"])[-1]
        what = f"{name}: the process died, exit code {child.returncode}: {last}; {', '.join(kept)}"
        return Tally(name, findings=[what], finding_count=1)


def fuzz_here(target: Target, *, runs: int, seed: int, corpus: Path, findings: Path, answer: Path | None) -> None:
    """Run a campaign in this process, which it ends."""
    import atheris

    chance = random.Random(seed)
    watch = Watch(target, findings=findings)
    for number, data in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(data)

    def execute(data: bytes) -> None:
        watch(data)
        if watch.tally.executions >= runs:
            tally = json.dumps(asdict(watch.finish()))
            if answer is None:
                print(tally, flush=True)
            else:
                answer.write_text(tally)
            os._exit(0)

    def mutate(data: bytes, size_most: int, _: int) -> bytes:
        return target.mutate(data, chance, lambda part: bytes(atheris.Mutate(part, size_most)))[:size_most]

    arguments = [f"-seed={seed}", f"-max_len={target.size_most}", "-len_control=0", f"-timeout={HANG_S}"]
    arguments += [f"-artifact_prefix={findings}/{target.name}-", "-rss_limit_mb=2048"]
    atheris.Setup([sys.argv[0], str(corpus), *arguments], execute, custom_mutator=mutate)
    atheris.Fuzz()
