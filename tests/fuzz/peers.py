"""The same damaged batches in other readers of Kafka's format, each in a separate process.

`python tests/fuzz/peers.py READER FILE`: FILE has a batch in hex per line. Prints as JSON the numbers of batches that
raised the library's errors, raised other errors, and were read, and whether the process survived.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

READERS = {"aiokafka (C)": {}, "aiokafka (pure)": {"AIOKAFKA_NO_EXTENSIONS": "1"}, "kafka-python": {}}


def ask(reader: str, batches: Iterable[bytes], scratch: Path) -> dict[str, Any]:
    """Return the result of a reader on these batches."""
    inputs = scratch / "batches.hex"
    inputs.write_text("\n".join(batch.hex() for batch in batches))
    command = [sys.executable, __file__, reader, str(inputs)]
    environment = {**os.environ, **READERS[reader]}
    child = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = child.stdout.strip().splitlines()
    if child.returncode or not lines:
        return {"died": child.returncode, "said": (child.stderr.strip().splitlines() or [""])[-1]}
    return dict(json.loads(lines[-1]))


def reader_of(name: str) -> tuple[Callable[[bytes], Any], type[Exception]]:
    if name.startswith("aiokafka"):
        from aiokafka.errors import KafkaError
        from aiokafka.record.memory_records import MemoryRecords
    else:
        from kafka.errors import KafkaError
        from kafka.record import MemoryRecords

    def read(raw: bytes) -> int:
        records = MemoryRecords(raw)
        count = 0
        while True:
            batch = records.next_batch()
            if batch is None:
                return count
            if not batch.validate_crc():
                raise KafkaError("the CRC does not match")
            for record in batch:
                count += 1
                _ = record.key, record.value, record.headers, record.timestamp

    return read, KafkaError


def main() -> None:
    name, inputs = sys.argv[1:]
    read, declared = reader_of(name)
    found: dict[str, Any] = {"read": 0, "declared": 0, "undeclared": 0, "kinds": {}}
    for line in Path(inputs).read_text().splitlines():
        try:
            read(bytes.fromhex(line))
            found["read"] += 1
        except declared:
            found["declared"] += 1
        except Exception as error:
            found["undeclared"] += 1
            kind = type(error).__name__
            found["kinds"][kind] = found["kinds"].get(kind, 0) + 1
    print(json.dumps(found))


if __name__ == "__main__":
    main()
