"""Runs a store on a simulated disk and records its promises.

It does for a store what `recorder` does for a log; `store_promise` judges crashed disks.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import seeklog
from crash.faulty import FaultyFiles
from crash.recorder import Content, Outcome, PowerLoss, Promise, look
from crash.sim import Detail, Disk, Rename, SimFiles, copied
from crash.store_promise import (
    CONFIG,
    GroupFound,
    GroupPromise,
    StoreOutcome,
    StorePromise,
    TopicFound,
    TopicPromise,
    TransactionUnfinished,
)
from crash.transaction_promise import Replayed, TransactionPromise, replay, replayable
from log.workbench import START_MS, FakeClock
from seeklog import Log, LogReader, Record, names
from seeklog.errors import GroupNotFound, SeeklogError, TopicNotFound
from seeklog.log import take_durable_snapshot
from seeklog.log.transaction import read_transaction
from seeklog.names import CONSUMER_OFFSETS, TopicPartition
from seeklog.store import Store, transactions_of
from seeklog.topics.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from seeklog.clients.consumer import Consumer
    from seeklog.files import Files
    from seeklog.topics.transactions import Staged


ROOT: Final = "/data/store"
NEW_STORE: Final = Disk.of({}, directories=["/data"])
SENTINEL: Final = b"sent after the crash"
PROBE: Final = "probe"
# Every topic name of the workloads: if no such topic exists after a crash, it can be created again.
TOPICS: Final = ("orders", "payments", "audit")


@contextlib.contextmanager
def seeded_names(seed: object) -> Iterator[None]:
    """Make topic ids, members, and names of deleted directories reproducible from a seed.

    All of them are version 4 UUIDs.
    """
    chance, before = random.Random(f"names of {seed}"), (uuid.uuid4, random.choice)
    uuid.uuid4 = lambda: uuid.UUID(int=chance.getrandbits(128), version=4)  # type: ignore[assignment]
    random.choice = chance.choice  # type: ignore[assignment]  # which partition a producer sticks to
    try:
        yield
    finally:
        uuid.uuid4, random.choice = before  # type: ignore[assignment]


class TurnsClock(FakeClock):
    """A clock whose sleepers give the background threads of all stores time to look who waits for a partition."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: list[Store] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        for store in self.stores:
            store._table.end_idle_turns()


class StoreRecorder:
    """A store on a simulated disk, and its promise."""

    def __init__(
        self,
        *,
        chance: random.Random,
        observe: Callable[[StoreRecorder], None] | None = None,
        disk: Disk = NEW_STORE,
        disk_type: type[SimFiles] = SimFiles,
    ) -> None:
        self.chance = chance
        self.clock = TurnsClock()
        self.disk_type = disk_type
        self._first_disk = disk
        self.sim = disk_type(disk)
        self.files: Files = self.sim
        self.door: Callable[[Files], Files] = lambda files: files
        """What stands between the store and whatever disk it is opened on."""
        self.promise = StorePromise()
        self.boundaries = 0
        self.observed_boundaries = 0
        self.is_observed = True
        """A workload may clear it while it prepares what it is about."""
        self.calls = 0
        self.observe = observe
        self._crash_at = -1
        self._crash_after = ""
        self._renames_left = 0
        self._crashed: SimFiles | None = None
        self.deaths = 0
        """How often the process has died inside of a call."""
        self._store: Store | None = None
        self._handles_of: dict[Store, Collection[int]] = {}
        """The handles that other processes have open."""
        self.is_open = False
        """Whether the store has been opened, and what a crash left of it has been looked at."""
        self.sim.on_boundary = self._at_boundary

    @property
    def store(self) -> Store:
        assert self._store is not None
        return self._store

    @contextlib.contextmanager
    def unobserved(self) -> Iterator[None]:
        """Prepare a workload without observing crash states."""
        self.is_observed = False
        try:
            yield
        finally:
            self.is_observed = True

    def twin(self, observe: Callable[[StoreRecorder], None] | None = None) -> StoreRecorder:
        """Return a fresh recorder with the same random choices."""
        chance = random.Random()
        chance.setstate(self.chance.getstate())
        return StoreRecorder(chance=chance, observe=observe, disk=self._first_disk)

    # Calls of the store.

    def open(self, *, finishes: bool = True) -> None:
        """Open for writing; its content is the new promise.

        A store that does not finish interrupted transactions simulates one that was opened before them.
        """
        self._forget_store()
        files = self.door(self.files)
        with contextlib.nullcontext() if finishes else _finishing_nothing(files):
            self._store = open_store(files, clock=self.clock)
        self.clock.stores.append(self._store)
        self._settle()
        if finishes:
            self._settle_transactions()
        topics, groups = look_at(self.store)
        outcome = StoreOutcome(topics=topics, groups=groups, unrecovered=topics)
        # Records above the recovery point are not recovered yet, so only those below count here.
        violations = self.promise.violations(outcome, is_power_loss=True)
        assert not violations, violations
        self.is_open = True

    def create_topic(self, name: str, *, partitions: int = 1, **config: object) -> None:
        settings = {word.replace("_", "."): value for word, value in config.items()}
        made = TopicPromise(name, settings, [Promise() for _ in range(partitions)])
        with self._topic_changing(name, made):
            made.topic_id = self.store.create_topic(name, partitions=partitions, config=settings).topic_id

    def alter_topic(self, name: str, **config: object) -> None:
        old = self.topic(name)
        settings = {word.replace("_", "."): value for word, value in config.items()}
        merged = {word: value for word, value in (old.config | settings).items() if value is not None}
        altered = TopicPromise(name, merged, old.logs, old.topic_id)
        with self._topic_changing(name, altered):
            self.store.alter_topic(name, settings)

    def add_partitions(self, name: str, partitions: int) -> None:
        old = self.topic(name)
        added = [Promise() for _ in range(partitions - len(old.logs))]
        grown = TopicPromise(name, old.config, old.logs + added, old.topic_id)
        with self._topic_changing(name, grown):
            self.store.add_partitions(name, partitions=partitions)

    def delete_topic(self, name: str) -> None:
        promise = self.promise
        for group, possible in promise.groups.items():
            promise.groups[group] = [*possible, possible[-1].without(name)]
        promise.going = name
        with self._topic_changing(name, None):
            self.store.delete_topic(name)

    def topic(self, name: str) -> TopicPromise:
        found = self.promise.topics[name][-1]
        assert found is not None
        return found

    @contextlib.contextmanager
    def _topic_changing(self, name: str, target: TopicPromise | None) -> Iterator[None]:
        # More than one state before: an earlier call has failed with an unknown effect.
        self.promise.topics[name] = [*self.promise.topics.get(name, [None]), target]
        yield
        self.promise.topics[name] = [target]
        for group, possible in self.promise.groups.items():
            self.promise.groups[group] = possible[-1:]
        self.promise.going = ""
        self.calls += 1

    def send(self, topic: str, *counts: int, size: int = 40, by: Store | None = None) -> None:
        """Send a number of records to each partition in turns, with a producer of this store or of another."""
        promised = self.topic(topic)
        waiting = [number for number, count in enumerate(counts) for _ in range(count)]
        self.chance.shuffle(waiting)
        with (by or self.store).producer() as producer:
            futures = []
            for number in waiting:
                value, key = self.chance.randbytes(self.chance.choice((5, size))), b"key"
                self.clock.advance(self.chance.choice((0, 1, 40)))
                log = promised.logs[number]
                offset = max(log.possible, default=log.acknowledged_end - 1) + 1
                log.possible[offset] = [Content(key, value, (), self.clock.now_ms())]
                future = producer.send(topic, value, key=key, partition=number, timestamp_ms=self.clock.now_ms())
                futures.append((number, offset, future))
            producer.flush()
            for number, offset, future in futures:
                where = future.result(timeout=0)
                assert (where.topic, where.partition, where.offset) == (topic, number, offset)
        for number in set(waiting):
            self._settle_log(promised, number, grows=True, by=by)
        self.calls += 1

    def _settle_log(self, topic: TopicPromise, number: int, *, grows: bool = False, by: Store | None = None) -> None:
        """Record the durable content of one partition, as its last writer knows it."""
        log, promise = (by or self.store).log(topic.name, number), topic.logs[number]
        start = promise.start_at_least = promise.start_at_most = log.log_start_offset
        promise.possible = {at: found for at, found in promise.possible.items() if at >= start}
        if grows:
            promise.acknowledged_end = max(promise.possible, default=start - 1) + 1
            assert log.log_end_offset == promise.acknowledged_end
            promise.durable_end = take_durable_snapshot(log).recovery_point
            if topic.flush == "batch":
                assert promise.durable_end == promise.acknowledged_end, "acknowledged without a sync"

    # Transactions.

    def transact(
        self, app: str, version: int, counts: Mapping[tuple[str, int], Sequence[int]], *, keep: bool = True
    ) -> bool:
        """Stage a number of records in each file of each partition and commit them; return whether they were appended.

        An earlier version of this application is staged and committed again with the same records.
        """
        transaction = self.transaction(app, version, counts, keep=keep)
        if transaction not in self.promise.transactions:
            self.promise.transactions.append(transaction)
        return self.commit_staged(transaction, transaction.stage(self.store))

    def transaction(
        self, app: str, version: int, counts: Mapping[tuple[str, int], Sequence[int]], *, keep: bool = True
    ) -> TransactionPromise:
        """Return a transaction to stage and commit."""
        for each in self.promise.transactions:
            if (each.app, each.version) == (app, version):
                return each
        # The tasks take turns, like concurrent tasks of a job that write to the same partitions.
        places = [(TopicPartition(*place), sizes) for place, sizes in counts.items()]
        turns = max(len(sizes) for _, sizes in places)
        files = [
            (place, [self._record_of(app, version) for _ in range(sizes[turn])])
            for turn in range(turns)
            for place, sizes in places
            if turn < len(sizes)
        ]
        ids = {place.topic: self.topic(place.topic).topic_id for place, _ in places}
        return TransactionPromise(app, version, files, ids, keep=keep)

    def _record_of(self, app: str, version: int) -> Record:
        mark = self.chance.randbytes(6).hex()
        filling = "." * self.chance.choice((0, 0, 30, 700))
        return Record(f"{app} {version} {mark}{filling}".encode(), key=b"key", timestamp_ms=self.clock.now_ms())

    def commit_staged(self, transaction: TransactionPromise, staged: Sequence[Staged]) -> bool:
        """Commit a staged transaction."""
        if transaction not in self.promise.transactions:
            self.promise.transactions.append(transaction)
        self._widen(transaction)
        was_there = transaction.state == "committed"
        added = transactions_of(self.store).commit(
            transaction.app, transaction.version, staged, keep=transaction.keep, wait_s=0
        )
        assert not (added and was_there and transaction.keep), f"{transaction} was committed a second time"
        transaction.state = "committed"
        topics = look_at_topics(self.store)
        violations = list(transaction.violations(topics, must_be_there=True))
        assert not violations, violations
        if not was_there:
            self._learn(transaction, topics)
        self.calls += 1
        return added

    def _widen(self, transaction: TransactionPromise) -> None:
        """Record where the records of a transaction may be from now on."""
        if transaction.state != "void":
            return
        transaction.state = "possible"
        stamps = any(self.topic(place.topic).config.get("message.timestamp.type") for place in transaction.places)
        transaction.time_ms = self.clock.now_ms() if stamps else None
        for place in transaction.places:
            log = self.topic(place.topic).logs[place.partition]
            base = max(log.possible, default=log.acknowledged_end - 1) + 1
            for offset, content in enumerate(transaction.contents(place), base):
                log.possible.setdefault(offset, []).append(content)

    def _learn(self, transaction: TransactionPromise, topics: Mapping[str, TopicFound]) -> None:
        """Promise the current content of a transaction's partitions, which a commit has synced."""
        for place in transaction.present(topics):
            _learn_log(self.topic(place.topic).logs[place.partition], topics[place.topic].logs[place.partition])

    def _settle_transactions(self) -> None:
        """Accept the result of an open for interrupted transactions, and that of recovery for logs."""
        if not self.promise.transactions:
            return
        topics = look_at_topics(self.store)
        for each in self.promise.transactions:
            if each.state == "possible":
                if self._is_unfinished(each):
                    raise TransactionUnfinished(f"{each} is not finished")
                violations = list(each.violations(topics))
                assert not violations, violations
                each.state = "committed" if each.is_there(topics) else "void"
        for topic in self._present():
            for number, (promise, found) in enumerate(zip(topic.logs, topics[topic.name].logs, strict=True)):
                _learn_log(promise, found)
                # Only a part, if a failing disk prevented the recovery, which is reported.
                promise.durable_end = self.store.log(topic.name, number).recovery_point

    def _is_unfinished(self, transaction: TransactionPromise) -> bool:
        """Return whether the store could not finish a transaction when it was opened, as on a failing disk."""
        noted = read_transaction(self.files, ROOT, names.app_key(transaction.app))
        return noted is not None and noted.is_open and noted.version == transaction.version

    def discard(self, app: str) -> None:
        """Discard the staged files of a job, as a failing driver does."""
        with open_store(self.door(self.files), read_only=True, clock=self.clock) as store:
            transactions_of(store).discard(app)
        self.calls += 1

    def append_through_log(self, topic: str, number: int, value: bytes | None) -> None:
        """Open one partition without the store, append a record unless it is None, and close it."""
        promised = self.topic(topic)
        log = Log(
            f"{ROOT}/{topic}-{number}",
            config=CONFIG.with_settings(promised.config),
            files=self.door(self.files),
            clock=self.clock,
            background=False,
        )
        promise = promised.logs[number]
        if value is not None:
            content = Content(b"key", value, (), self.clock.now_ms())
            promise.possible.setdefault(log.log_end_offset, []).append(content)
            log.append(value, key=b"key", timestamp_ms=self.clock.now_ms())
        log.close()
        with LogReader(f"{ROOT}/{topic}-{number}", files=self.files, clock=self.clock) as closed:
            found = look(closed)
        assert not found.problem, found.problem
        _learn_log(promise, found)
        self.calls += 1

    # Maintenance of the store.

    def maintain(self) -> None:
        """Run the store's maintenance, after which all sent records are durable."""
        for topic in self._present():
            for log in topic.logs:
                log.start_at_most = log.acknowledged_end
        self.store.maintain()
        for topic in self._present():
            for number, log in enumerate(topic.logs):
                log.durable_end = log.acknowledged_end
                self._settle_log(topic, number)
        self.calls += 1

    def open_another(self) -> Store:
        """Open the same directory as another process. A kill ends both."""
        files = FaultyFiles(self.files, methods=())
        other = open_store(files, clock=self.clock)
        self.clock.stores.append(other)
        self._handles_of[other] = files.handles
        return other

    def kill_another(self, other: Store) -> None:
        """Kill the process that has opened the directory beside this one."""
        self.clock.stores.remove(other)
        self.sim.process_crash(self._handles_of.pop(other))

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int], *, by: Store | None = None) -> None:
        """Commit as a consumer with manually assigned partitions, of this store or of another."""
        consumer = (by or self.store).consumer(group=group, enable_auto_commit=False)
        consumer.assign(offsets)
        with self._group_changing(group, offsets):
            consumer.commit({TopicPartition(*partition): offset for partition, offset in offsets.items()})
        consumer.close()

    def join(self, group: str, topics: Sequence[str], **settings: Any) -> Consumer:
        """Add a consumer to a group."""
        with self._group_changing(group, {}):
            consumer = self.store.consumer(
                topics, group=group, auto_offset_reset="earliest", **{"enable_auto_commit": False, **settings}
            )
        assert consumer.member_id in look_at_groups(self.store)[group].members
        return consumer

    def poll(self, group: str, consumer: Consumer) -> int:
        """Poll a consumer, which may gain or lose partitions. Return the number of records."""
        with self._group_changing(group, {}):
            return len(consumer.poll(0))

    def commit_of(self, group: str, consumer: Consumer) -> None:
        """Commit the position of a consumer."""
        offsets = {partition: consumer.position(partition) for partition in consumer.assignment}
        with self._group_changing(group, offsets):
            consumer.commit()

    def leave(self, group: str, consumer: Consumer, *, commits: bool = False) -> None:
        """Close a consumer; with `commits` it commits before."""
        member_id = consumer.member_id
        offsets = {partition: consumer.position(partition) for partition in consumer.assignment} if commits else {}
        with self._group_changing(group, offsets):
            consumer.close()
        assert member_id not in look_at_groups(self.store)[group].members

    def reset_offsets(self, group: str, topic: str, to: int) -> None:
        partitions = range(len(self.topic(topic).logs))
        with self._group_changing(group, {(topic, number): to for number in partitions}):
            self.store.reset_offsets(group, topic, to=to)

    def delete_group(self, group: str) -> None:
        promise = self.promise
        promise.groups[group] = [promise.groups[group][-1], GroupPromise()]
        self.store.delete_group(group)
        promise.groups[group] = [GroupPromise()]
        self.calls += 1

    @contextlib.contextmanager
    def _group_changing(self, group: str, offsets: Mapping[tuple[str, int], int]) -> Iterator[None]:
        """Widen the promise of a group during a change; then it is the state of the store with the expected offsets."""
        possible = self.promise.groups.get(group, [GroupPromise()])
        before = possible[-1]
        merged = {**before.offsets, **{TopicPartition(*partition): offset for partition, offset in offsets.items()}}
        self.promise.groups[group] = [*possible, replace(before, offsets=merged)]
        yield
        found = look_at_groups(self.store).get(group, GroupFound())
        after = GroupPromise(merged, max(found.generation, before.generation_at_least))
        violations = after.violations(found)
        assert not violations, violations
        self.promise.groups[group] = [after]
        self.calls += 1

    def close(self) -> None:
        self.store.close()
        self._forget_store()
        for topic in self._present():
            for log in topic.logs:
                log.durable_end = log.acknowledged_end
        self.calls += 1

    def _present(self) -> list[TopicPromise]:
        return [possible[-1] for possible in self.promise.topics.values() if possible[-1] is not None]

    def _forget_store(self) -> None:
        self._store, self.is_open = None, False
        self.clock.stores.clear()
        self._handles_of.clear()

    # Crashes within a workload.

    def kill(self) -> None:
        """Kill the process between two calls. Its writes stay visible and pending."""
        self.sim.process_crash()
        self._forget_store()
        self.files = self.sim

    def lose_power_during(self, action: Callable[[], object], *, at: int, leaving: str = "") -> bool:
        """Run `action`, lose power at its nth boundary, and continue with a random crash state.

        `leaving` is a prefix of the labels of the states to choose from. Return whether there were that many
        boundaries; if not, power is lost after the action.
        """
        crashed = self._run_until(action, at=at)
        states = list((crashed or self.sim).crash_states(Detail(prefixes=16, sectors=4)))
        chosen = [disk for label, disk in states if label.startswith(leaving)]
        self._restart(self.disk_type(self.chance.choice(chosen or [states[0][1]])))
        for possible in self.promise.topics.values():
            for topic in possible:
                for log in topic.logs if topic is not None else ():
                    log.acknowledged_end = log.durable_end
        return crashed is not None

    def kill_during(self, action: Callable[[], object], *, at: int) -> bool:
        """Run `action` and kill the process at its nth boundary, or after it."""
        crashed = self._run_until(action, at=at)
        self._restart(crashed or self.sim)
        return crashed is not None

    def kill_when(self, action: Callable[[], object], name: str, *, times: int = 1) -> None:
        """Run `action` and kill the process right after a rename to this name, which is not durable yet."""
        crashed = self._run_until(action, renamed=name, times=times)
        assert crashed is not None, f"nothing was renamed to {name}"
        self._restart(crashed)

    def _run_until(
        self, action: Callable[[], object], *, at: int = 1 << 30, renamed: str = "", times: int = 1
    ) -> SimFiles | None:
        self._crash_at, self._crash_after, self._renames_left = self.boundaries + at, renamed, times
        self._crashed = None
        try:
            action()
        except PowerLoss:
            pass
        finally:
            self._crash_at, self._crash_after = -1, ""
        return self._crashed

    def _restart(self, sim: SimFiles) -> None:
        self.sim.on_boundary = None
        sim.process_crash()
        sim.on_boundary = self._at_boundary
        self.sim = self.files = sim
        self._forget_store()

    def _at_boundary(self, sim: SimFiles) -> None:
        if self._crashed is not None and self._crash_at >= 0:
            raise PowerLoss
        if self.is_observed:
            self.observed_boundaries += 1
            if self.observe is not None:
                self.observe(self)
        self.boundaries += 1
        last = sim.pending[-1] if sim.pending else None
        if isinstance(last, Rename) and last.target == self._crash_after:
            self._renames_left -= 1
        if self.boundaries == self._crash_at or (self._crash_after and not self._renames_left):
            sim.on_boundary = None
            self._crashed = copied(sim)
            self.deaths += 1
            sim.on_boundary = self._at_boundary
            raise PowerLoss

    def _settle(self) -> None:
        """Accept the topics and groups after an open: their last change was made or not."""
        topics, groups = look_at(self.store)
        for name, possible in self.promise.topics.items():
            found = topics.get(name)
            if found is None:
                chosen = [None] if None in possible else possible
            else:
                # This only selects one of the valid states; the promise is judged later.
                there = [topic for topic in possible if topic is not None]
                fitting = [
                    topic
                    for topic in there
                    if len(topic.logs) == len(found.logs)
                    and topic.config == found.config
                    and topic.topic_id in (None, found.topic_id)
                ]
                chosen = (fitting or there)[-1:]
                if fitting:
                    fitting[-1].topic_id = found.topic_id
            self.promise.topics[name] = list(chosen)
        for name, alternatives in self.promise.groups.items():
            group = groups.get(name, GroupFound())
            fits = [promised for promised in alternatives if not promised.violations(group)]
            if fits:
                self.promise.groups[name] = [replace(fits[-1], generation_at_least=group.generation)]
        self.promise.going = ""
        self.calls += 1


def _learn_log(promise: Promise, found: Outcome) -> None:
    """Promise the content of a closed log: it is synced, and nothing else can return."""
    assert found.log_end_offset >= promise.durable_end, f"ends at {found.log_end_offset}, not {promise.durable_end}"
    promise.possible = {offset: [content] for offset, content in found.records.items()}
    promise.acknowledged_end = promise.durable_end = found.log_end_offset


@contextlib.contextmanager
def _finishing_nothing(files: Files) -> Iterator[None]:
    """Make the stores of one disk finish no transaction; stores that judge a copy still do."""
    before = Transactions.finish_open

    def finish_open(self: Transactions) -> None:
        if self._files is not files:
            before(self)

    Transactions.finish_open = finish_open  # type: ignore[method-assign]
    try:
        yield
    finally:
        Transactions.finish_open = before  # type: ignore[method-assign]


def open_store(
    files: Files, *, read_only: bool = False, clock: FakeClock | None = None, now_ms: int = START_MS
) -> Store:
    """Open the store of a simulated disk."""
    return seeklog.open(
        ROOT, config=CONFIG, read_only=read_only, background=False, clock=clock or FakeClock(now_ms), files=files
    )


def look_at(store: Store) -> tuple[dict[str, TopicFound], dict[str, GroupFound]]:
    """Return the content of an open store as its readers see it."""
    return look_at_topics(store), look_at_groups(store)


def look_at_topics(store: Store) -> dict[str, TopicFound]:
    topics = {}
    for name in store.topics(internal=True):
        described = store.describe_topic(name)
        logs = tuple(look(store.log(name, found.partition)) for found in described.partitions)
        topics[name] = TopicFound(described.topic_id, dict(described.configured), logs)
    return topics


def look_at_groups(store: Store) -> dict[str, GroupFound]:
    groups = {}
    for name in store.groups():
        with contextlib.suppress(GroupNotFound):
            group = store.describe_group(name)
            members = frozenset(member.member_id for member in group.members)
            groups[name] = GroupFound(dict(group.offsets), members, group.generation)
    return groups


def reopen_store(
    disk: Disk, *, now_ms: int = START_MS, transactions: Sequence[TransactionPromise] = ()
) -> StoreOutcome:
    """Open a crashed disk as a reader, then as a writer; append, commit, create, close, and open it again.

    The `transactions` are committed again in between. The result has what was found first; its `problem` is what else
    went wrong.
    """
    try:
        read_only = look_read_only(disk, now_ms)
        sim = SimFiles(open_by_another(disk, transactions, now_ms))
        with open_store(sim, now_ms=now_ms) as store:
            unrecovered, groups = look_at(store)
            check_directories(sim, unrecovered)
            topics = {name: unrecovered[name] for name in unrecovered if name == CONSUMER_OFFSETS}
            topics |= write_everywhere(store, unrecovered)
            added = replay(store, replayable(transactions), topics)
            # What was not committed again is compared with the first look alone.
            replayed = Replayed(look_at_topics(store) if added else {}, added)
            check_no_staging(sim, [each for each in transactions if added.get((each.app, each.version))])
            check_groups_go_on(store, topics, groups)
            check_names_are_free(store, [name for name in TOPICS if name not in topics])
            expected = look_at(store)
            check_directories(sim, expected[0])
        assert not sim.open_handles, f"{sim.open_handles} files are still open after the close"
        # Lose power again: a clean close must have made everything durable.
        again = SimFiles(sim.durable_disk())
        with open_store(again, now_ms=now_ms) as store:
            second = look_at(store)
            check_directories(again, second[0])
        assert second[1] == expected[1], f"second open: groups {second[1]}, expected {expected[1]}"
        for name in {*second[0], *expected[0]}:
            assert second[0].get(name) == expected[0].get(name), f"second open: {name} is not what was closed"
    except (SeeklogError, AssertionError) as error:
        return StoreOutcome(problem=f"{type(error).__name__}: {error}")
    return StoreOutcome(topics=topics, groups=groups, unrecovered=unrecovered, read_only=read_only, replayed=replayed)


def open_by_another(disk: Disk, transactions: Sequence[TransactionPromise], now_ms: int) -> Disk:
    """Let somebody else come first who finishes a transaction, all of it or until power is lost once more.

    Who it is, and how far he gets, is drawn by lot from what is on the disk, so that the same disk is judged alike.
    """
    if not transactions:
        return disk
    chance = random.Random(disk.digest())
    place = chance.choice(transactions[-1].places)
    config = CONFIG
    who = chance.choice(("nobody", "a store", "a log", "a log"))
    if who == "nobody":
        return disk
    sim = SimFiles(disk)
    left = chance.choice((1 << 30, chance.randrange(1, 30)))

    def count(_: SimFiles) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise PowerLoss

    with contextlib.suppress(PowerLoss, TopicNotFound):
        if who == "a log":
            with open_store(SimFiles(disk), read_only=True, now_ms=now_ms) as store:
                config = store.describe_topic(place.topic).config
            sim.on_boundary = count
            clock = FakeClock(now_ms)
            Log(f"{ROOT}/{place}", config=config, files=sim, clock=clock, background=False).close()
        else:
            sim.on_boundary = count
            open_store(sim, now_ms=now_ms).close()
    sim.on_boundary = None
    survivors = list(sim.crash_states(Detail(prefixes=2, sectors=1, omissions=8, samples=2)))
    return chance.choice(survivors)[1]


def check_no_staging(sim: SimFiles, transactions: Sequence[TransactionPromise]) -> None:
    """Check that no staged file of a committed transaction remains, of any attempt."""
    keys = {names.app_key(each.app) for each in transactions}
    for each in transactions:
        for place in each.places:
            if sim.kinds(ROOT).get(str(place)) == "directory":
                staged = filter(None, map(names.parse_staged_name, sim.list(f"{ROOT}/{place}")))
                assert not [key for key, _ in staged if key in keys], f"{place} has staged files of {each}"


def look_read_only(disk: Disk, now_ms: int) -> dict[str, TopicFound] | None:
    """Return what a read-only store sees, or None if it is refused. It changes nothing."""
    sim = SimFiles(disk)
    found = None
    try:
        with open_store(sim, read_only=True, now_ms=now_ms) as store:
            found = look_at_topics(store)
            look_at_groups(store)
    except SeeklogError:
        pass  # It may refuse an unrecovered store; it must not invent records.
    assert sim.disk() == disk, "a read-only open has changed the disk"
    assert not sim.pending, "a read-only open has written"
    assert not sim.open_handles, f"{sim.open_handles} files are still open after a read-only open"
    return found


def check_directories(sim: SimFiles, topics: Mapping[str, TopicFound]) -> None:
    """Check that directories and partitions match, and that each has its topic's id."""
    found = {name for name, kind in sim.kinds(ROOT).items() if kind == "directory"}
    expected = {f"{name}-{number}" for name, topic in topics.items() for number in range(len(topic.logs))}
    assert found == expected, f"directories {sorted(found - expected)} too many, {sorted(expected - found)} missing"
    for name, topic in topics.items():
        for number in range(len(topic.logs)):
            text = sim.read_file(f"{ROOT}/{name}-{number}/{names.PARTITION_METADATA}")
            assert text == f"version: 0\ntopic_id: {topic.topic_id}".encode(), f"{name}-{number} says {text!r}"


def write_everywhere(store: Store, topics: Mapping[str, TopicFound]) -> dict[str, TopicFound]:
    """Send a record to each partition, which recovers it, and return the content before that record."""
    found = {}
    with store.producer() as producer:
        for name, topic in topics.items():
            if name != CONSUMER_OFFSETS:
                for number in range(len(topic.logs)):
                    producer.send(name, SENTINEL, key=b"key", partition=number)
        producer.flush()
    for name, topic in topics.items():
        if name != CONSUMER_OFFSETS:
            logs = tuple(_before_last(store, TopicPartition(name, number)) for number in range(len(topic.logs)))
            found[name] = replace(topic, logs=logs)
    return found


def _before_last(store: Store, partition: TopicPartition) -> Outcome:
    outcome = look(store.log(*partition))
    assert not outcome.problem, outcome.problem
    last = outcome.log_end_offset - 1
    records = dict(outcome.records)
    assert records.pop(last).value == SENTINEL, f"{partition} ends with another record than the one just sent"
    return replace(outcome, log_end_offset=last, high_watermark=outcome.high_watermark - 1, records=records)


def check_groups_go_on(store: Store, topics: Mapping[str, TopicFound], groups: Mapping[str, GroupFound]) -> None:
    """Check that a new group can commit and read its offsets, and that other groups are unchanged."""
    name = next((name for name in topics if name != CONSUMER_OFFSETS), None)
    if name is None:
        return
    consumer = store.consumer(group=PROBE, enable_auto_commit=False)
    consumer.assign([(name, 0)])
    consumer.commit({TopicPartition(name, 0): 1})
    consumer.close()
    after = look_at_groups(store)
    assert after.pop(PROBE).offsets == {TopicPartition(name, 0): 1}
    assert after == groups, f"another group's commit changed {groups} to {after}"


def check_names_are_free(store: Store, free: Sequence[str]) -> None:
    """Check that a free name can be used for a new topic, whose offsets start at 0."""
    for name in free:
        store.create_topic(name, partitions=2)
    with store.producer() as producer:
        for name in free:
            sent = producer.send(name, SENTINEL, key=b"key", partition=1)
            producer.flush()
            assert sent.result(timeout=0).offset == 0, f"{name} was created again, but is not empty"
