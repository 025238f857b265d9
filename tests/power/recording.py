"""Runs works on a file system whose disk records a tape, from which an image of any moment can be made."""

from __future__ import annotations

import bisect
import contextlib
import os
import pickle
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from power import device
from power.filesystems import copy_sparse, mounted, punch_zeros, run_tool
from power.tape import Loss, Tape

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from power.filesystems import FileSystem
    from power.works import Work

PATIENCE_S: Final = 30.0
TRIES: Final = 30  # to draw an image that was not drawn before


@dataclass(frozen=True, slots=True)
class Marked:
    """A promise, and the part of the tape in which it was valid."""

    first: int
    """The number of events when it was known to hold at first."""
    end: int
    """And at last."""
    promise: bytes


@dataclass(frozen=True, slots=True)
class Recorded:
    """All promises of one work."""

    work: Work
    directory: str
    marks: list[Marked]

    def draw(self, tape: Tape, *, chance: random.Random) -> tuple[Marked, Loss]:
        """Choose a random moment of this work, and a random state after a power loss at it.

        Every other time all promises are equally likely, else all moments.
        """
        if chance.random() < 0.5:
            marked = chance.choice(self.marks)
            moment = chance.randint(marked.first, marked.end)
        else:
            moment = chance.randint(self.marks[0].first, self.marks[-1].end)
            marked = self.marks[bisect.bisect_left(self.marks, moment, key=lambda one: one.end)]
        return marked, tape.draw_loss(moment, chance=chance)


@dataclass(frozen=True, slots=True)
class Image:
    """A possible disk after a power loss, with the promise before it."""

    recorded: Recorded
    marked: Marked
    loss: Loss


class Recording:
    """One file system, its works, and the images after power losses."""

    def __init__(self, system: FileSystem, scratch: Path) -> None:
        self.system = system
        self._scratch = scratch
        self._base = scratch / "base"
        self._mountpoint = scratch / "mounted"
        self._mountpoint.mkdir()
        self.works: list[Recorded] = []
        self.tape: Tape

    def record(self, works: Sequence[Work], *, seed: int) -> None:
        """Run works one after the other, each in a new process and directory."""
        self.system.format(self._base)
        punch_zeros(self._base)
        served, tape = self._scratch / "served", self._scratch / "tape"
        copy_sparse(self._base, served)
        with _device(self._scratch / "device", served, tape) as image, mounted(self.system, image, self._mountpoint):
            for number, work in enumerate(works):
                _run_apart(work, self._mountpoint / f"{number}", tape, self._marks(number), seed=seed)
        served.unlink()
        self.tape = Tape(tape)
        tape.unlink()
        for number, work in enumerate(works):
            self.works.append(Recorded(work, f"{number}", _read_marks(self._marks(number), self.tape)))

    def _marks(self, number: int) -> Path:
        return self._scratch / f"marks-{number}"

    def draw(self, count: int, *, works: Sequence[Recorded], chance: random.Random) -> list[Image]:
        """Choose this many different random images, equally many of each work.

        If possible two thirds have writes in flight, as only these may survive or not.
        """
        drawn: dict[tuple[str, Marked, Loss], Image] = {}
        for number in range(count):
            recorded = works[number % len(works)]
            any_will_do = chance.random() < 1 / 3
            for attempt in range(TRIES):
                marked, loss = recorded.draw(self.tape, chance=chance)
                key = (recorded.directory, marked, loss)
                is_wanted = any_will_do or loss.moment > loss.durable or attempt == TRIES - 1
                if is_wanted and key not in drawn:
                    drawn[key] = Image(recorded, marked, loss)
                    break
        return list(drawn.values())

    def last(self, recorded: Recorded) -> Image:
        """Return the image after a work if only flushed writes have reached the disk."""
        marked = recorded.marks[-1]
        return Image(recorded, marked, Loss(marked.end, self.tape.flushed(marked.end), ()))

    def replay(self, images: Sequence[Image]) -> Iterator[tuple[Image, str]]:
        """Mount the images one after the other, in the order of the tape; yield each with the root of its work."""
        durable, path = self._scratch / "durable", self._scratch / "image"
        copy_sparse(self._base, durable)
        done = 0
        with open(durable, "r+b", buffering=0) as written:
            for image in sorted(images, key=lambda one: one.loss.durable):
                self.tape.apply_durable(written.fileno(), first=done, end=image.loss.durable)
                done = image.loss.durable
                copy_sparse(durable, path)
                with open(path, "r+b", buffering=0) as left:
                    self.tape.apply_loss(left.fileno(), image.loss)
                with mounted(self.system, path, self._mountpoint):
                    yield image, str(self._mountpoint / image.recorded.directory)
        durable.unlink()


@contextlib.contextmanager
def _device(mountpoint: Path, served: Path, tape: Path) -> Iterator[Path]:
    """Serve an image in a separate process; yield its path."""
    mountpoint.mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, device.__file__, str(mountpoint), str(served), str(tape)]
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    try:
        image = mountpoint / device.IMAGE
        deadline = time.monotonic() + PATIENCE_S
        while not image.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                output = server.communicate()[1].decode() if server.poll() is not None else "nothing"
                raise OSError(f"the FUSE file system did not start: {output}")
            time.sleep(0.01)
        yield image
    finally:
        with contextlib.suppress(OSError):
            run_tool(["umount", "--lazy", str(mountpoint)])
        try:
            server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _run_apart(work: Work, root: Path, tape: Path, marks: Path, *, seed: int) -> None:
    """Run a work in a child, and record its marks with the size of the tape at that moment."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        if status:
            raise AssertionError(f"{work.name}: the work itself went wrong: {marks.with_suffix('.error').read_text()}")
        return
    # No exit handler of the parent may run here.
    status = 1
    try:
        root.mkdir()
        with open(marks, "wb") as file:
            last = b""

            def mark(promise: object) -> None:
                nonlocal last
                before, last = last, pickle.dumps(promise)
                pickle.dump((os.stat(tape).st_size, last if last != before else None), file)

            pickle.dump((os.stat(tape).st_size, None), file)
            work.run(str(root), seed=seed, mark=mark)
        status = 0
    except BaseException:
        marks.with_suffix(".error").write_text(traceback.format_exc())
    finally:
        os._exit(status)


def _read_marks(path: Path, tape: Tape) -> list[Marked]:
    found: list[Marked] = []
    promise = b""
    with open(path, "rb") as file:
        first = tape.moment(pickle.load(file)[0])
        with contextlib.suppress(EOFError):
            while True:
                size, another = pickle.load(file)
                promise, moment = another or promise, tape.moment(size)
                found.append(Marked(first, moment, promise))
                first = moment
    path.unlink()
    return found
