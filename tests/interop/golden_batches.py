"""Batches written by other programs, and their content; `make_golden.py` creates them."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

from seeklog import Log, LogConfig, Record
from seeklog.record.batch import split_batches

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.bin"))


@cache
def raw_bytes(name: str) -> bytes:
    return (GOLDEN / f"{name}.bin").read_bytes()


@cache
def description(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return loaded


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def expected_records(name: str, *, base_offset: int = 0) -> list[Record]:
    described = description(name)
    if "generated" in described:
        rule = described["generated"]
        return [
            Record(
                rule["value"].format(n=n).encode(),
                key=rule["key"].format(n=n).encode(),
                timestamp_ms=rule["timestamp_ms"] + n,
                offset=base_offset + n,
            )
            for n in range(rule["count"])
        ]
    return [
        Record(
            decoded(record["value"]),
            key=decoded(record["key"]),
            headers=tuple((key, decoded(value)) for key, value in record["headers"]),
            timestamp_ms=record["timestamp_ms"],
            offset=base_offset + record["offset"],
        )
        for record in described["records"]
    ]


def facts(records: list[Record]) -> list[tuple[Any, ...]]:
    """Return every field of every record, so that tests do not depend on equality of `Record`."""
    return [(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in records]


def open_log(path: Path, **settings: Any) -> Log:
    # The offsets of one batch reach 2**31 - 2; some timestamps are years old or in the far future.
    config = LogConfig(retention_ms=-1, **settings)
    return Log(path / "golden-0", config=config, background=False)


def read_last_offset(raw: bytes) -> int:
    return [batch.last_offset for batch in split_batches(raw)][-1]


def without_stamps(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return a batch without base offset and leader epoch, which the log sets."""
    return [(batch.raw[8:12], batch.raw[16:]) for batch in split_batches(raw)]
