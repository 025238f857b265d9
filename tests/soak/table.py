"""The table of results of the soak and the ping-pong for the docs. Each run writes its row to `build/soak.json`.

python tests/soak/table.py        prints the table as Markdown
"""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Final

ROWS: Final = Path(__file__).parents[2] / "build" / "soak.json"
COLUMNS: Final = ("what was done", "Kafka", "rounds", "records", "faults found")


def put_row(what: str, *, kafka: str, rounds: str, records: int, faults: str) -> None:
    """Write a row, replacing the one of the same name."""
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    with ROWS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = json.loads(ROWS.read_text()) if ROWS.exists() else {}
        rows[f"{what}, {kafka}"] = [what, kafka, rounds, f"{records:,}", faults]
        ROWS.write_text(json.dumps(rows, indent=1) + "\n")


def as_markdown() -> str:
    """Return the table."""
    rows = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    lines = [COLUMNS, ("---", "---", "---:", "---:", "---"), *rows.values()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(as_markdown())
