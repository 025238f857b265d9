"""The judge of a fuzzer: counts results, and keeps inputs that cause anything but a declared error."""

from __future__ import annotations

import hashlib
import resource
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.target import Target
from seeklog.errors import SeeklogError

MAX_SECONDS = 0.05
MAX_MEMORY_MIB = 64
FINDINGS_KEPT = 20


@dataclass(slots=True)
class Tally:
    """The results of one target."""

    target: str
    executions: int = 0
    refused: int = 0
    """How many ended in a declared error."""
    findings: list[str] = field(default_factory=list)
    finding_count: int = 0
    slow: int = 0
    slowest_ms: float = 0.0
    memory_mib: float = 0.0
    """How far the peak of the process has risen above its start, over all inputs."""
    greedy: int = 0
    """How many inputs have raised it by more than is allowed."""
    seconds: float = 0.0


class Watch:
    """Runs a target on inputs, one after the other."""

    def __init__(self, target: Target, *, findings: Path | None = None) -> None:
        self.tally = Tally(target.name)
        self._target = target
        self._findings = findings
        self._places: set[str] = set()
        self._start = self._peak = _peak_mib()
        self._began = time.perf_counter()

    def __call__(self, data: bytes) -> None:
        tally = self.tally
        tally.executions += 1
        started = time.perf_counter()
        self._run(data)
        # Wall time is too long on a busy machine: an input that seems slow is timed again, and counts as slow only if
        # it is slow each time.
        if time.perf_counter() - started > tally.slowest_ms / 1000:
            took = self._processor_time(data)
            if took > MAX_SECONDS and self._target.is_timed:
                took = min(took, self._processor_time(data), self._processor_time(data))
                tally.slow += took > MAX_SECONDS
            tally.slowest_ms = max(tally.slowest_ms, round(1000 * took, 2))
        peak = _peak_mib()
        if peak > self._peak:
            if peak - self._peak > MAX_MEMORY_MIB:
                tally.greedy += 1
                self._keep(data, f"{peak - self._peak:.0f} MiB for one input")
            self._peak = peak

    def _processor_time(self, data: bytes) -> float:
        started = time.thread_time()
        self._run(data)
        return time.thread_time() - started

    def _run(self, data: bytes) -> None:
        try:
            self._target.check(data)
        except SeeklogError:
            self.tally.refused += 1
        except Exception as error:
            self._found(data, error)

    def finish(self) -> Tally:
        self.tally.seconds = round(time.perf_counter() - self._began, 1)
        self.tally.memory_mib = round(self._peak - self._start, 1)
        return self.tally

    def _found(self, data: bytes, error: Exception) -> None:
        self.tally.finding_count += 1
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} in {Path(where.filename).name}:{where.name}"
        if place not in self._places:
            self._places.add(place)
            self._keep(data, f"{place}: {error}")

    def _keep(self, data: bytes, what: str) -> None:
        tally = self.tally
        if len(tally.findings) >= FINDINGS_KEPT:
            return
        shown = data.hex() if len(data) <= 100 else f"{data[:100].hex()}… ({len(data)} bytes)"
        if self._findings is not None:
            kept = self._findings / f"{tally.target}-{hashlib.sha256(data).hexdigest()[:16]}"
            kept.write_bytes(data)
            shown = str(kept)
        tally.findings.append(f"{tally.target}: {what[:300]}: {shown}")


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
