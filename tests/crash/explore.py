"""Explores the crash states of a workload: every state at every boundary is reopened and judged."""

from __future__ import annotations

import logging
import random
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from crash.recorder import PATH, Content, Outcome, Recorder, open_reader, reopen
from crash.sim import Detail, SimFiles
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from crash.sim import Disk
    from crash.workloads import Workload

VIOLATIONS_MAX: Final = 20  # enough to see a pattern; the exploration of the workload stops
ROUNDS_MAX: Final = 50


@dataclass(slots=True)
class Tally:
    """The result of one workload."""

    workload: str
    seed: int
    boundaries: int = 0
    states: int = 0
    """Different disks under different promises, each judged once."""
    disks: int = 0
    """Different disks, each reopened once."""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)


class Judge(Protocol):
    """The promise."""

    def violations(self, outcome: object, *, is_power_loss: bool) -> list[str]: ...


class Recording(Protocol):
    """A run of a workload that can be observed between two operations of the disk."""

    sim: SimFiles
    calls: int
    boundaries: int
    observed_boundaries: int

    @property
    def promise(self) -> Judge: ...


class Found(Protocol):
    """The content of a crashed disk."""

    @property
    def problem(self) -> str: ...


R = TypeVar("R", bound=Recording)
F = TypeVar("F", bound=Found)


class Explorer(Generic[R, F]):
    """Explores a workload with one seed after the other until enough states are judged."""

    states_least = 4
    """At a boundary that is looked at."""

    def __init__(self, name: str, *, seed: int, disk_type: type[SimFiles]) -> None:
        self._disk_type = disk_type
        self.tally = Tally(name, seed)
        self._outcomes: dict[bytes, F] = {}
        self._judged: set[tuple[Hashable, ...]] = set()
        self._detail = Detail()
        self._states_per_boundary = 0
        self._boundary_likelihood = 1.0
        """Of being looked at: where few states are asked for, the boundaries are drawn by lot as well."""
        self._chance = random.Random(seed)

    # Differences between explorers of logs and of stores.

    def _recorder(self, seed: int, observe: Callable[[R], None] | None = None) -> R:
        raise NotImplementedError

    def _run(self, recorder: R) -> None:
        raise NotImplementedError

    def _reopen(self, recorder: R, disk: Disk) -> F:
        raise NotImplementedError

    def _check_living(self, recorder: R, seen: Disk, outcome: F) -> None:
        """Check what other processes read at this moment, without a crash."""

    def _note(self, outcome: F) -> None:
        """Record the content of one state."""

    def _key(self, recorder: R, disk: Disk) -> bytes:
        """Return a key that two disks share only if they reopen the same."""
        return disk.digest()

    def _moment(self, recorder: R) -> tuple[Hashable, ...]:
        """Return a key of the promises. A disk is judged again if it differs."""
        return (recorder.calls, self.tally.boundaries)

    def _root(self) -> str:
        raise NotImplementedError

    # Common methods.

    def run(self, states: int) -> Tally:
        """Judge about this many states, a few at each boundary, or at fewer boundaries if there are too many."""
        started = time.perf_counter()
        # Each recovery warns; thousands of them would print only warnings.
        logging.getLogger("seeklog").setLevel(logging.CRITICAL)
        for number in range(ROUNDS_MAX):
            before = self.tally.states
            if not self._run_round(self.tally.seed + number, states - before):
                break
            if self.tally.states >= states or self.tally.states == before:
                break
        logging.getLogger("seeklog").setLevel(logging.NOTSET)
        self.tally.disks = len(self._outcomes)
        self.tally.seconds = round(time.perf_counter() - started, 2)
        return self.tally

    def _run_round(self, seed: int, states: int) -> bool:
        """Run the workload once with this seed; return whether to continue."""
        try:
            boundaries = max(self._count_boundaries(seed), 1)
            self._states_per_boundary = max(self.states_least, -(-states // boundaries))
            self._boundary_likelihood = min(1.0, states / (self.states_least * boundaries))
            self._detail = _detail_for(self._states_per_boundary, seed=seed)
            self._run_once(seed)
        except (SeeklogError, AssertionError) as error:
            # A call of the workload failed, without a crash or after one that the engine survived.
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error}"
            self.tally.violations.append(f"{self.tally.workload}, seed {seed}, in {place.name}: {what}")
            return False
        return not self._has_seen_enough

    @property
    def _has_seen_enough(self) -> bool:
        return len(self.tally.violations) >= VIOLATIONS_MAX

    def _count_boundaries(self, seed: int) -> int:
        recorder = self._recorder(seed)
        self._run(recorder)
        return recorder.observed_boundaries

    def _run_once(self, seed: int) -> None:
        recorder = self._recorder(seed, self._observe)
        self._run(recorder)
        self.tally.boundaries += recorder.observed_boundaries

    def _observe(self, recorder: R) -> None:
        if self._chance.random() >= self._boundary_likelihood or self._has_seen_enough:
            return
        survivors = list(recorder.sim.crash_states(self._detail))
        if len(survivors) > self._states_per_boundary:
            survivors = survivors[:2] + self._chance.sample(survivors[2:], self._states_per_boundary - 2)
        for label, disk in survivors:
            outcome = self._judge(recorder, label, disk, is_power_loss=True)
            if outcome is not None and not outcome.problem:
                self._note(outcome)
        seen = recorder.sim.disk()
        outcome = self._judge(recorder, "process crash", seen, is_power_loss=False)
        if outcome is not None:
            self._check_living(recorder, seen, outcome)

    def _judge(self, recorder: R, label: str, disk: Disk, *, is_power_loss: bool) -> F | None:
        digest = self._key(recorder, disk)
        moment = (digest, is_power_loss, *self._moment(recorder))
        if moment in self._judged:
            return self._outcomes.get(digest)
        self._judged.add(moment)
        self.tally.states += 1
        outcome = self._outcomes.get(digest)
        if outcome is None:
            outcome = self._outcomes[digest] = self._reopen(recorder, disk)
        violations = recorder.promise.violations(outcome, is_power_loss=is_power_loss)
        if violations:
            self._report(recorder, label, violations, disk)
        return outcome

    def _report(self, recorder: R, label: str, violations: list[str], disk: Disk) -> None:
        pending = "; ".join(map(str, recorder.sim.pending[-6:]))
        sizes = {path.removeprefix(f"{self._root()}/"): len(data) for path, data in sorted(disk.files.items())}
        self.tally.violations.append(
            f"{self.tally.workload}, seed {self._detail.seed}, call {recorder.calls + 1}, "
            f"boundary {recorder.boundaries}, {label}: {'; '.join(violations[:3])} | pending: {pending} "
            f"| disk: {sizes}"
        )


class LogExplorer(Explorer[Recorder, Outcome]):
    """Explores one workload of a log."""

    def __init__(self, workload: Workload, *, seed: int, disk_type: type[SimFiles] = SimFiles) -> None:
        super().__init__(workload.name, seed=seed, disk_type=disk_type)
        self.workload = workload
        self._ends: list[int] = []

    def _recorder(self, seed: int, observe: Callable[[Recorder], None] | None = None) -> Recorder:
        return Recorder(
            self.workload.config,
            chance=random.Random(f"{self.workload.name}, seed {seed}"),
            observe=observe,
            disk=self.workload.disk,
            disk_type=self._disk_type,
        )

    def _run(self, recorder: Recorder) -> None:
        self.workload.run(recorder)

    def _reopen(self, recorder: Recorder, disk: Disk) -> Outcome:
        return reopen(disk, recorder.config, epochs=recorder.epochs, now_ms=recorder.clock.now_ms())

    def _moment(self, recorder: Recorder) -> tuple[Hashable, ...]:
        return (recorder.calls, recorder.promise.durable_end, self.tally.boundaries)

    def _root(self) -> str:
        return PATH

    def _observe(self, recorder: Recorder) -> None:
        self._ends = []
        super()._observe(recorder)

    def _note(self, outcome: Outcome) -> None:
        self._ends.append(outcome.log_end_offset)

    def _check_living(self, recorder: Recorder, seen: Disk, outcome: Outcome) -> None:
        if recorder.is_open:
            self._check_reader(recorder, seen, min(self._ends, default=0))

    def _check_reader(self, recorder: Recorder, seen: Disk, end: int) -> None:
        """Open a reader in another process at this moment.

        It gets no error, reads all acknowledged records and only appended ones. If the watermark follows the sync, it
        reads no record that a power loss can remove: every state of this moment keeps `end`.
        """
        try:
            with open_reader(SimFiles(seen), recorder.config) as reader:
                start, watermark = reader.log_start_offset, reader.high_watermark
                records = {record.offset: Content.of(record) for record in reader.scan()}
        except SeeklogError as error:
            self._report(recorder, "reader", [f"{type(error).__name__}: {error}"], seen)
            return
        promise, follows_sync = recorder.promise, recorder.config.flush == "batch"
        if recorder.config.high_watermark == "auto":
            if follows_sync and watermark > end:
                violation = f"a reader sees up to {watermark}, power loss may leave {end}"
                self._report(recorder, "reader", [violation], seen)
            acknowledged = promise.durable_end if follows_sync else promise.acknowledged_end
            missing = set(range(start, watermark)) - records.keys() - promise.superseded.keys() - promise.absent
            if watermark < acknowledged or missing:
                violation = f"a reader sees {len(records)} records, {start} to {acknowledged - 1} are there"
                self._report(recorder, "reader", [violation], seen)
        for offset, content in records.items():
            if content not in promise.possible.get(offset, ()):
                self._report(recorder, "reader", [f"offset {offset} holds what was never there: {content}"], seen)


def explore(workload: Workload, *, states: int, seed: int, disk_type: type[SimFiles] = SimFiles) -> Tally:
    """Run one workload until about this many crash states are judged."""
    return LogExplorer(workload, seed=seed, disk_type=disk_type).run(states)


def find_disk(workload: Workload, *, seed: int, boundary: int, label: str) -> tuple[Recorder, Disk]:
    """Return the disk of a reported violation, to examine it."""
    found: list[Disk] = []

    def take(recorder: Recorder) -> None:
        if recorder.boundaries == boundary:
            if label == "process crash":
                found.append(recorder.sim.disk())
            found.extend(disk for name, disk in recorder.sim.crash_states(Detail(seed=seed)) if name == label)

    chance = random.Random(f"{workload.name}, seed {seed}")
    recorder = Recorder(workload.config, chance=chance, observe=take, disk=workload.disk)
    workload.run(recorder)
    return recorder, found[0]


def _detail_for(states_per_boundary: int, *, seed: int) -> Detail:
    """Limit the enumeration to the states that will be judged, because it costs time too."""
    sectors = min(9, max(3, states_per_boundary.bit_length()))
    return Detail(
        prefixes=max(16, states_per_boundary),
        sectors=sectors,
        omissions=max(16, states_per_boundary),
        samples=max(4, states_per_boundary // 2),
        seed=seed,
    )
