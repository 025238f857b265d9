"""Create the golden directories of a release in `golden/seeklog/`. Existing ones are never replaced.

Run from the repository's root for a new release, or before that when it gets a new kind of file:

    PYTHONPATH=tests python tests/interop/make_release.py 0.1.0
"""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
import tarfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crash.recorder import PATH
from crash.sim import Disk, SimFiles
from crash.store_recorder import ROOT, StoreRecorder, seeded_names
from faults.disks import make_disk, make_unclean_disk
from faults.log_victims import CODECS, compacted_log, fill_rich, repaired_log
from faults.store_victims import APP, ARCHIVE, fill
from interop.releases import CONFIG, GOLDEN, look
from log.workbench import START_MS
from seeklog import Record, TopicPartition, names

RELEASE = "/release"


def main() -> int:
    version = sys.argv[1]
    files = {
        **moved(ROOT, "store", store_files()),
        **moved(ARCHIVE, "archive", store_files()),
        **moved(PATH, "torn-0", torn_log()),
        **moved(PATH, "repaired-0", dict(repaired_log().disk.files)),
        **moved(PATH, "aborted-0", dict(compacted_log("none").disk.files)),
    }
    disk = Disk.of({f"{RELEASE}/{path}": data for path, data in files.items()})
    content = {mode: look(RELEASE, read_only=mode == "read", files=SimFiles(disk)) for mode in ("read", "written")}
    GOLDEN.mkdir(parents=True, exist_ok=True)
    (GOLDEN / f"{version}.tar.gz").write_bytes(packed(files))
    (GOLDEN / f"{version}.json.gz").write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))
    print(f"{len(files)} files, {sum(map(len, files.values())):,} bytes")
    return 0


def store_files() -> dict[str, bytes]:
    """Return the files of a store that was archived, and then killed during a commit."""
    with seeded_names("release"):
        on = StoreRecorder(chance=random.Random("release"))
        fill(on)
        for codec in CODECS:
            settings = {"compression.type": codec, "segment.bytes": 600}
            on.store.create_topic(f"codec-{codec}", partitions=1, config=settings)
            with on.store._table.writing(TopicPartition(f"codec-{codec}", 0)) as log:
                for number in range(6):
                    log.append_many(shapes(number))
        settings = {"cleanup.policy": "compact", "segment.bytes": 600}
        on.store.create_topic("prices", partitions=1, config=settings)
        with on.store._table.writing(TopicPartition("prices", 0)) as log:
            for number in range(20):
                value = None if number == 7 else b"%060d" % number
                log.append(value, key=b"key %d" % (number % 4), timestamp_ms=START_MS + number)
        on.store.compact("prices")
        on.maintain()
        on.store.archive(ARCHIVE)
        commit = partial(on.transact, APP, 1, {("orders", 0): (1,), ("payments", 0): (2,)})
        on.kill_when(commit, names.transaction_name(names.app_key(APP)))
    return dict(on.sim.disk().files)


def shapes(number: int) -> list[Record]:
    """Return records of every shape: without key, without value, empty, with headers."""
    at = START_MS + number * 10
    return [
        Record(f"value {number}".encode() * 5, key=f"key {number}".encode(), timestamp_ms=at),
        Record(b"no key", timestamp_ms=at + 1),
        Record(None, key=b"no value", timestamp_ms=at + 2),
        Record(b"", key=b"", headers=(("trace", b"\x00\xff"), ("none", None), ("trace", b"")), timestamp_ms=at + 3),
    ]


def torn_log() -> dict[str, bytes]:
    whole = make_disk(fill_rich, config=CONFIG)
    disk = make_unclean_disk(lambda log, _: log.append(b"never whole"), start=whole, config=CONFIG)
    path = max(path for path in disk.files if path.endswith(names.LOG))
    torn = make_disk(lambda log, _: None, config=CONFIG, start=disk.with_file(path, disk.files[path][:-3]))
    return dict(torn.files)


def moved(root: str, name: str, files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files of one directory under another name, without locks."""
    return {
        f"{name}{path.removeprefix(root)}": data
        for path, data in files.items()
        if path.startswith(f"{root}/") and not path.endswith(names.LOCK)
    }


def packed(files: dict[str, bytes]) -> bytes:
    """Return a reproducible archive."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mtime, entry.mode = len(data), START_MS // 1000, 0o640
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)


if __name__ == "__main__":
    sys.exit(main())
