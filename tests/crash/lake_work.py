"""The steps of a lake's job on a disk that loses power, and the next job."""

from __future__ import annotations

import itertools
from typing import Final

from crash.sim import Disk, SimFiles
from seeklog.names import TopicPartition, hidden_lake_file, lake_directory, lake_file_name
from seeklog.spark.lake.directory import LakeDirectory
from seeklog.spark.lake.manifest import LakeFile, LakePartition, Manifest

LAKE: Final = "/lakes/lake"
ORDERS: Final = TopicPartition("orders", 0)
JOBS: Final = 2


def content(number: int) -> bytes:
    return b"%d " % number * (200 + number)


def write_job(sim: SimFiles, lake: LakeDirectory, manifest: Manifest, *, unique: str) -> Manifest:
    """Do the file operations of a job: two files, of two days, and a commit."""
    commit = manifest.commit
    start = commit * 10
    hidden = []
    for day in range(2):
        number = commit * 2 + day
        directory = lake_directory(ORDERS.topic, f"2026-01-0{1 + commit + day}")
        sim.make_directory(f"{LAKE}/{directory}")
        name = lake_file_name(0, start=start, next_offset=start + 10, number=0)
        path = f"{directory}/{hidden_lake_file(name, unique)}"
        handle = sim.open(f"{LAKE}/{path}", write=True, create=True)
        sim.write(handle, content(number), 0)
        sim.sync(handle)
        sim.close(handle)
        file = LakeFile(f"{directory}/{name}", start + 5 * day, start + 5 * day + 5, 5, len(content(number)), 0, 0)
        hidden.append((path, file))
    files = lake.publish(hidden)
    known = manifest.partitions.get(ORDERS)
    partition = (
        LakePartition(topic_id="id", ranges=((start, start + 10),), files=tuple(files))
        if known is None
        else known.with_copied(start, start + 10, files)
    )
    grown = Manifest(commit=commit + 1, written_at_ms=0, partitions={ORDERS: partition})
    lake.commit(grown)
    return grown


def run_jobs(sim: SimFiles, *, unique: str, until: int = JOBS) -> int:
    """Bring a lake to a number of commits; return the number it had."""
    lake = LakeDirectory(LAKE, files=sim)
    found = lake.read_manifest()
    with lake.locked():
        manifest = found or Manifest()
        if found is None:
            lake.commit(manifest)
        lake.check_files(manifest.files())
        for number, file in enumerate(manifest.files()):
            assert sim.read_file(f"{LAKE}/{file.path}") == content(number)
        lake.sweep(manifest)
        before = manifest.commit
        while manifest.commit < until:
            manifest = write_job(sim, lake, manifest, unique=unique)
    return before


def look(disk: Disk, *, committed: int) -> None:
    """Continue after a crash: committed files exist, and a new job ends as the old one would have."""
    sim = SimFiles(disk)
    assert run_jobs(sim, unique="b" * 32) >= committed
    files = {path for path in sim.disk().files if path.endswith(".parquet") or "/.part-" in path}
    manifest = LakeDirectory(LAKE, files=sim).read_manifest()
    assert manifest is not None
    assert files == {f"{LAKE}/{file.path}" for file in manifest.files()}


def explore_lake(sim: SimFiles, *, step: int = 1) -> int:
    """Run jobs, and try every crash state at each `step`th step; return the number of states."""
    states: set[bytes] = set()
    boundaries = itertools.count()
    committed = 0

    def observe(at: SimFiles) -> None:
        if next(boundaries) % step:
            return
        for _, disk in at.crash_states():
            if disk.digest() not in states:
                states.add(disk.digest())
                look(disk, committed=committed)
        at_kill = at.disk()
        if at_kill.digest() not in states:
            states.add(at_kill.digest())
            look(at_kill, committed=committed)

    sim.on_boundary = observe
    for committed_before in range(JOBS):
        committed = committed_before
        run_jobs(sim, unique="a" * 32, until=committed_before + 1)
    return len(states)
