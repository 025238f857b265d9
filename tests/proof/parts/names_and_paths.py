"""Target 17: hostile names at every entry point, links and pipes instead of files, and the modes of new files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proof.part import Run, part
from seeklog import Log, LogConfig, Record, Store, TopicPartition, names
from seeklog.errors import SeeklogError
from seeklog.files import OsFiles
from seeklog.log.check.inspection import inspect_partition
from seeklog.record.batch import encode_batch
from seeklog.store import transactions_of
from seeklog.topics.transactions import Staged
from store.hostile_names import HOSTILE
from store.workbench import open_store, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE: Final = TopicPartition("payments", 0)
# An open that takes this long is blocked by a pipe.
PATIENCE_S: Final = 60
RULES: Final = LogConfig(flush="os", segment_bytes=400, retention_ms=-1)

# Entry points for the name of a topic: each must refuse it.
TOPIC_DOORS: Final[dict[str, Callable[[Store, str], Any]]] = {
    "create": lambda store, name: store.create_topic(name),
    "describe": lambda store, name: store.describe_topic(name),
    "alter": lambda store, name: store.alter_topic(name, {"retention.ms": 5}),
    "add partitions": lambda store, name: store.add_partitions(name, partitions=9),
    "delete": lambda store, name: store.delete_topic(name),
    "log": lambda store, name: store.log(name, 0),
    "key": lambda store, name: store.topic(name).contains(b"k"),
    "produce": lambda store, name: _produce(store, name),
    "consume": lambda store, name: store.consumer([name], group="g").close(),
    "commit": lambda store, name: store.commit_offsets("g", {TopicPartition(name, 0): 1}),
    "stage": lambda store, name: transactions_of(store).stager("app", TopicPartition(name, 0)),
    "archive": lambda store, name: store.archive(store.path.parent / "archive", topics=[name]),
    "compact": lambda store, name: store.compact(name),
}
# Entry points for any text: each accepts the name or raises a seeklog error, and makes no path of it.
TEXT_DOORS: Final[dict[str, Callable[[Store, str], Any]]] = {
    "group": lambda store, name: store.commit_offsets(name, {HERE: 1}),
    "group of a consumer": lambda store, name: store.consumer(["payments"], group=name).close(),
    "group to delete": lambda store, name: store.delete_group(name),
    "producer": lambda store, name: store.producer(name=name).close(),
    "application": lambda store, name: _commit(store, name),
    "client id": lambda store, name: store.consumer(["payments"], group="g", client_id=name).close(),
}


def _produce(store: Store, name: str) -> None:
    with store.producer(linger_ms=0) as producer:
        producer.send(name, b"v").result(PATIENCE_S)


def _commit(store: Store, app: str, version: int = 1) -> None:
    stager = transactions_of(store).stager(app, HERE)
    stager.add(encode_batch([Record(b"v", timestamp_ms=5)]), record_count=1)
    staged = Staged(HERE.topic, store.describe_topic(HERE.topic).topic_id, HERE.partition, stager.finish())
    transactions_of(store).commit(app, version, [staged])


@part(
    17,
    "Pass hostile names of topics, groups, producers and applications to every entry point of a store",
    covers=("cli.verbs.topics", "store"),
)
def hostile_names(run: Run) -> None:
    doors = [*TOPIC_DOORS, *TEXT_DOORS]
    for name in run.choose(HOSTILE, short=8):
        root = fresh(run, "store")
        outside = snapshot(root.parent / "beside")
        with open_store(root) as store:
            store.create_topic("payments", partitions=1)
            for door in doors:
                run.case()
                what = knock(store, door, name)
                if what:
                    run.violation(f"{door} with {name[:60]!a}: {what}")
        wrong = [path.name for path in root.iterdir() if not is_lawful(path)]
        if wrong or snapshot(root.parent / "beside") != outside:
            run.violation(f"{name[:60]!a} has left {wrong}")
    if not run.is_short:
        command_line(run)
    run.note(f"{len(HOSTILE)} names, {len(doors)} entry points and the command line")


def knock(store: Store, door: str, name: str) -> str:
    """Return what is wrong with how an entry point handled a name."""
    call = TOPIC_DOORS.get(door) or TEXT_DOORS[door]
    try:
        call(store, name)
    except SeeklogError:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted" if door in TOPIC_DOORS else ""


def is_lawful(path: Path) -> bool:
    """Return whether a store creates a file of this name in its root."""
    if path.is_dir():
        return names.parse_partition_name(path.name) is not None
    return path.name in (names.LOCK, *ROOT_NAMES) or path.name.startswith((names.PRODUCER, names.TRANSACTION))


ROOT_NAMES: Final = (
    names.TOPICS,
    names.TOPICS_LOCK,
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.CLEANED_OFFSETS,
)


def command_line(run: Run) -> None:
    """Give the names to the command line, if arguments can hold them."""
    root = fresh(run, "store")
    open_store(root).close()
    before = snapshot(root)
    for name in HOSTILE:
        if "\0" in name or len(name) > 1000 or not name.isprintable():
            continue
        run.case()
        command = [sys.executable, "-m", "seeklog.cli", "create", "--", str(root), name]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        if child.returncode == 0 or "Traceback" in child.stderr or snapshot(root) != before:
            run.violation(f"seeklog create with {name!a}: exit code {child.returncode}: {child.stderr[-200:]}")


# ---------------------------------------------------------------- links and pipes


@part(17, "Replace each file and directory of a store by a link or a pipe", covers=("archive", "store"))
def links_in_place_of_files(run: Run) -> None:
    model = fresh(run, "model")
    fill(model)
    places = sorted(str(path.relative_to(model)) for path in model.rglob("*"))
    cases = [(place, how) for place in places for how in ("link", "dangling", "pipe")]
    for place, how in run.choose(cases, short=6):
        run.case()
        root = fresh(run, "store")
        shutil.copytree(model, root, dirs_exist_ok=True)
        outside = root.parent / "beside"
        put(root / place, outside, how)
        before = snapshot(outside)
        with alarm(f"{place} as a {how}: it blocks", run):
            use(root)
        if snapshot(outside) != before:
            run.violation(f"{place} as a {how}: a file outside was changed")
    run.note(f"{len(places)} files and directories, in 3 ways each")


def put(place: Path, outside: Path, how: str) -> None:
    """Move a file or directory out of the store, and replace it by a link or a pipe."""
    place.rename(outside / "moved")
    if how == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(outside / ("moved" if how == "link" else "nothing"))


@contextlib.contextmanager
def alarm(what: str, run: Run) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(PATIENCE_S)
    try:
        yield
    except TimeoutError:
        run.violation(what)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fill(root: Path) -> None:
    """Create a store with a file of every kind: sealed segments, keys, producers, groups, a transaction."""
    with open_store(root, segment_bytes=400, flush="batch") as store:
        store.create_topic("payments", partitions=2)
        store.create_topic("latest", partitions=1, config={"cleanup.policy": "compact"})
        for topic in ("payments", "latest"):
            with store.producer(linger_ms=0, name=f"loader-{topic}") as producer:
                for number in range(12):
                    producer.send(topic, b"v" * 60, key=b"k%d" % (number % 3), partition=0).result(PATIENCE_S)
        store.log("payments", 0).latest_for_key(b"k1")
        store.commit_offsets("group", {HERE: 5})
        _commit(store, "app")
        store.compact("latest")
        store.maintain()
        transactions_of(store).stager("other", HERE).finish()


def use(root: Path) -> None:
    """Use a store in every way. seeklog errors are accepted."""
    for read_only in (True, False):
        with contextlib.suppress(SeeklogError), open_store(root, read_only=read_only) as store:
            steps: list[Callable[[Store], Any]] = [
                lambda store: list(store.log("payments", 0).scan()),
                lambda store: store.log("latest", 0).latest_for_key(b"k1"),
                lambda store: store.lag("group"),
            ]
            if not read_only:
                steps += [
                    lambda store: _produce(store, "payments"),
                    lambda store: store.commit_offsets("group", {HERE: 6}),
                    lambda store: _commit(store, "app", 2),
                    lambda store: store.producer(name="loader-payments").close(),
                    lambda store: store.compact("latest"),
                    lambda store: store.maintain(),
                    lambda store: store.create_topic("new", partitions=1),
                    lambda store: store.archive(root.parent / "archive"),
                    lambda store: store.delete_topic("payments"),
                ]
            for step in steps:
                with contextlib.suppress(SeeklogError):
                    step(store)
    for directory in root.glob("*-0"):
        # `files` lets errors of the operating system pass; the packages above translate them.
        with contextlib.suppress(SeeklogError, OSError):
            inspect_partition(str(directory))


# ---------------------------------------------------------------- a race


@part(17, "Swap files and directories for links while a log opens, rolls, recovers and is deleted", covers=("log",))
def racing_links(run: Run) -> None:
    rounds = 8 if run.is_short else 2_500
    root = fresh(run, "store")
    fill(root)
    outside = root.parent / "beside"
    shutil.copytree(root / "payments-0", outside / "payments-0")
    (outside / "file").write_bytes(b"mine" * 100)
    before = snapshot(outside)
    kept = run.scratch / "kept"
    shutil.copytree(root, kept, symlinks=True)
    swaps = 0
    for number in range(rounds):
        run.case()
        is_directory = number % 3 == 0
        with swapping(root / "payments-0", outside, directory=is_directory) as count:
            work(root, number)
        swaps += count[0]
        if snapshot(outside) != before:
            run.violation(f"round {number}: a file outside was changed")
            return
        shutil.rmtree(root)
        shutil.copytree(kept, root, symlinks=True)
    run.note(f"{swaps:,} swaps")


def work(root: Path, number: int) -> None:
    """Open a log, append over some rolls, close it, reopen it as after a crash, or delete its topic."""
    with contextlib.suppress(SeeklogError):
        if number % 4 == 3:
            with open_store(root) as store:
                store.delete_topic("payments")
            return
        with Log(root / "payments-0", config=RULES, files=OsFiles(), background=False) as log:
            for value in range(6):
                log.append(b"%090d" % value)
            log.truncate_to(log.log_end_offset - 1)
            log.retain()


@contextlib.contextmanager
def swapping(partition: Path, outside: Path, *, directory: bool) -> Iterator[list[int]]:
    """Let another thread replace the partition's directory, or its files, by links again and again."""
    is_over = threading.Event()
    count = [0]

    def swap() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                if directory:
                    _swap_once(partition, outside / "payments-0", partition.parent / "aside")
                else:
                    for path in list(partition.iterdir()):
                        _swap_once(path, outside / "file", partition / "aside")
                    for name in (names.CHECKPOINT, names.LEADER_EPOCHS, f"{15:020d}{names.SEAL}"):
                        # The temporary name of a file while it is written.
                        os.symlink(outside / "file", partition / f"{name}{names.TEMPORARY}")
                count[0] += 1

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield count
    finally:
        is_over.set()
        thread.join()


def _swap_once(path: Path, target: Path, aside: Path) -> None:
    os.rename(path, aside)
    os.symlink(target, path)
    os.unlink(path)
    os.rename(aside, path)


# ---------------------------------------------------------------- modes


@part(17, "Check that files have at most mode 0640 and directories 0750, under any umask", covers=("archive", "store"))
def modes(run: Run) -> None:
    for mask in (0, 0o022, 0o077):
        root = fresh(run, "store")
        shutil.rmtree(root)
        before = os.umask(mask)
        try:
            fill(root)
            with open_store(root) as store:
                store.archive(root.parent / "archive")
        finally:
            os.umask(before)
        for path in (root, *root.rglob("*"), *(root.parent / "archive").rglob("*")):
            run.case()
            found = stat.S_IMODE(path.lstat().st_mode)
            wanted = (0o750 if path.is_dir() else 0o640) & ~mask
            if found != wanted:
                run.violation(f"umask {mask:03o}: {path.relative_to(root.parent)} has {found:04o}, not {wanted:04o}")


def fresh(run: Run, name: str) -> Path:
    """Return an empty directory of that name, next to another empty one."""
    for each in (run.scratch / name, run.scratch / "beside", run.scratch / "archive"):
        shutil.rmtree(each, ignore_errors=True)
    (run.scratch / "beside").mkdir()
    (run.scratch / name).mkdir()
    return run.scratch / name
