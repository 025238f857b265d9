"""Many power losses on one file system, in private namespaces."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from power.filesystems import ALONE, FILE_SYSTEMS, missing_tools, run_tool
from power.peers import PEER_WORKS
from power.recording import Recording
from power.works import BROKEN_WORKS, ENGINE_WORKS, Work, judge_quietly
from proof.part import Missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORKS: Final[dict[str, Work]] = {**ENGINE_WORKS, **BROKEN_WORKS, **PEER_WORKS}


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on one image."""

    file_system: str
    work: str
    loss: str
    in_flight: int
    """So many writes no flush had covered."""
    violations: list[str]

    def __str__(self) -> str:
        return f"{self.file_system}, {self.work}, {self.loss}: {'; '.join(self.violations[:3])}"


def lose_power(file_system: str, works: Sequence[str], *, images: int, seed: int, scratch: Path) -> Iterator[Judged]:
    """Run works on a new file system, and judge this many images after power losses."""
    missing = missing_tools(FILE_SYSTEMS[file_system])
    if missing:
        raise Missing(missing)
    scratch.mkdir()
    here = str(Path(__file__).parent)
    arguments = ["--file-system", file_system, "--images", str(images), "--seed", str(seed), "--scratch", str(scratch)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = subprocess.Popen(
        [*ALONE, sys.executable, here, *arguments, *works],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert program.stdout is not None
        for line in program.stdout:
            yield Judged(**json.loads(line))
        _, errors = program.communicate()
        if program.returncode:
            raise OSError(f"{file_system}: the program failed: {errors.strip()}")
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()


def main() -> int:
    """Judge images in this process, which mounts over its scratch directory: call it with `lose_power`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("works", nargs="+")
    parser.add_argument("--file-system", required=True, choices=FILE_SYSTEMS)
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    asked = parser.parse_args()
    run_tool(["mount", "-t", "tmpfs", "tmpfs", str(asked.scratch)])
    works = [WORKS[name] for name in asked.works]
    for judged in judge_images(asked.file_system, works, images=asked.images, seed=asked.seed, scratch=asked.scratch):
        print(json.dumps(asdict(judged)), flush=True)
    return 0


def judge_images(file_system: str, works: Sequence[Work], *, images: int, seed: int, scratch: Path) -> Iterator[Judged]:
    """Judge random images of all sound works, and the last moment of each broken work."""
    recording = Recording(FILE_SYSTEMS[file_system], scratch)
    recording.record(works, seed=seed)
    chance = random.Random(f"{file_system}, seed {seed}")
    broken = [one for one in recording.works if one.work.name in BROKEN_WORKS]
    sound = [one for one in recording.works if one not in broken]
    drawn = recording.draw(images, works=sound, chance=chance) if sound else []
    for image, root in recording.replay([*drawn, *map(recording.last, broken)]):
        violations = judge_quietly(image.recorded.work, root, pickle.loads(image.marked.promise))
        in_flight = image.loss.moment - image.loss.durable
        yield Judged(file_system, image.recorded.work.name, str(image.loss), in_flight, violations)
