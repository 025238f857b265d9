"""Files written by releases of seeklog, kept permanently: every kind of file, and what the release read from it.

`golden/seeklog/<version>.tar.gz` has the directories that the release created:

    store        topics of each codec, a compacted one, groups, a named producer, a committed transaction, and one whose
                 commit was interrupted by a kill
    archive      an archive of the store
    torn-0       a log whose torn tail was cut by recovery
    repaired-0   a log that was damaged and repaired
    aborted-0    a compacted log with an aborted transaction

`<version>.json.gz` has each record of each log as the release read it: "read" by a reader, which changes nothing, and
"written" after an open for writing, which finishes the interrupted transaction. `make_release.py` creates both.
"""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seeklog import Log, LogConfig, LogReader, Store
from seeklog.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from seeklog import Record
    from seeklog.files import Files

GOLDEN = Path(__file__).parent / "golden" / "seeklog"
VERSIONS = sorted(path.name.removesuffix(".tar.gz") for path in GOLDEN.glob("*.tar.gz"))
LOGS = ("torn-0", "repaired-0", "aborted-0")
# Nothing may expire: the records only get older.
CONFIG = LogConfig(retention_ms=-1, flush="os", segment_bytes=1400, index_interval_bytes=100)


def description(version: str) -> dict[str, Any]:
    """Return what the release read."""
    loaded: dict[str, Any] = json.loads(gzip.decompress((GOLDEN / f"{version}.json.gz").read_bytes()))
    return loaded


def unpack(version: str, root: Path) -> None:
    """Unpack the release's directories into `root`."""
    with tarfile.open(GOLDEN / f"{version}.tar.gz") as archive:
        archive.extractall(root, filter="data")


def look(root: str, *, read_only: bool, files: Files | None = None) -> dict[str, Any]:
    """Return the whole content of a release's directories, as decoded from JSON."""
    found: dict[str, Any] = {}
    for name in LOGS:
        config = CONFIG.with_settings({"cleanup.policy": "compact"}) if name == "aborted-0" else CONFIG
        kind = LogReader if read_only else partial(Log, background=False)
        with kind(f"{root}/{name}", config=config, files=files) as log:
            found[name] = look_at_log(log)
    with open_store(f"{root}/store", config=CONFIG, read_only=read_only, files=files, background=False) as store:
        found["store"] = look_at_store(store)
    # Archives are read-only.
    with open_store(f"{root}/archive", config=CONFIG, read_only=True, files=files, background=False) as archive:
        found["archive"] = look_at_store(archive)
    loaded: dict[str, Any] = json.loads(json.dumps(found))
    return loaded


def look_at_store(store: Store) -> dict[str, Any]:
    topics = {}
    for name in store.topics():
        described = store.describe_topic(name)
        for partition in described.partitions:
            topics[f"{name}-{partition.partition}"] = look_at_log(store.log(name, partition.partition))
        topics[name] = {"id": described.topic_id, "config": dict(described.configured)}
    groups = {
        name: {str(place): offset for place, offset in sorted(store.describe_group(name).offsets.items())}
        for name in store.groups()
    }
    return {"topics": topics, "groups": groups}


def look_at_log(log: Log) -> dict[str, Any]:
    records = list(log.scan())
    keys = sorted({record.key for record in records if record.key is not None})
    latest = [log.latest_for_key(key) for key in keys]
    return {
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "leader_epoch": log.leader_epoch,
        "records": rows(records),
        "by_time": [log.offset_at_time(record.timestamp_ms) for record in records],
        "by_key": [None if record is None else record.offset for record in latest],
    }


def rows(records: Iterable[Record]) -> list[list[Any]]:
    return [
        [
            record.offset,
            record.timestamp_ms,
            _text(record.key),
            _text(record.value),
            [[name, _text(value)] for name, value in record.headers],
        ]
        for record in records
    ]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def contents(root: Path) -> dict[str, bytes]:
    """Return the bytes of every file except locks."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }
