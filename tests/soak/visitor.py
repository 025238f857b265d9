"""seeklog's turn in a ping-pong: opens the broker's directory as a store, checks, appends, and ends.

    python -m soak.visitor DIRECTORY HISTORY DIARY closed|killed

The history is that of the other side. Appends are noted in the diary, in one line before each is sent and one after it
is acknowledged, so that the diary is complete after a kill.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import seeklog
from seeklog import LogConfig, Store, TopicPartition
from soak.history import COMPACTED, GROUP, KEPT, PLACES, TRIMMED, History, Seen
from soak.ledger import T, WrongAnswer, encode_value, key_of

CONFIG: Final = LogConfig(segment_bytes=50_000, retention_ms=-1)
RECORDS: Final = 300
TRIM: Final = 40


class Diary:
    """Lines in a file, complete after a kill."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def note(self, *words: Any) -> None:
        self._file.write(json.dumps(words) + "\n")
        self._file.flush()


def read_diary(path: Path, history: History) -> None:
    """Add the diary of a process to the history."""
    for line in path.read_text().splitlines():
        what, *words = json.loads(line)
        if what == "sent":
            place, number = words
            history.maybe[place].append(number)
            history.next_number = max(history.next_number, number + 1)
        elif what == "acknowledged":
            place, offset, number = words
            history.maybe[place].remove(number)
            history.acknowledge(place, offset, number)
        elif what == "trimmed":
            place, start = words
            history.starts[place] = start
        elif what == "committed":
            place, offset = words
            history.groups[place] = offset
        elif what == "adopted":
            history.adopt(*words)
        elif what == "checked":
            history.checked += words[0]
            history.maybe = {place: [] for place in PLACES}


def split(place: str) -> tuple[str, int]:
    topic, _, number = place.rpartition("-")
    return topic, int(number)


def check(store: Store, history: History) -> None:
    for place in PLACES:
        log = store.log(*split(place))
        found: Iterator[Seen] = (Seen(r.offset, r.timestamp_ms, r.key, r.value) for r in log.scan())
        history.check(place, found, start=log.log_start_offset, end=log.log_end_offset)
    if history.groups:
        offsets = {str(place): offset for place, offset in store.describe_group(GROUP).offsets.items()}
        if offsets != history.groups:
            raise WrongAnswer(f"the group has committed {offsets}, not {history.groups}")


def write(store: Store, history: History, diary: Diary, *, is_killed: bool) -> None:
    """Append to every partition and wait for all acknowledgements, or for most before a kill."""
    with store.producer(linger_ms=2, batch_bytes=4000) as producer:
        waiting = []
        for turn in range(RECORDS):
            for place in PLACES:
                topic, partition = split(place)
                number = history.number()
                diary.note("sent", place, number)
                value = encode_value(topic, 0, partition, number)
                future = producer.send(topic, value, key=key_of(number), partition=partition, timestamp_ms=T + number)
                waiting.append((place, number, future))
            if is_killed and turn == RECORDS - 5:
                acknowledge(waiting, diary)
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        acknowledge(waiting, diary)


def acknowledge(waiting: list[tuple[str, int, Any]], diary: Diary) -> None:
    for place, number, future in waiting:
        diary.note("acknowledged", place, future.result().offset, number)
    waiting.clear()


def main() -> None:
    root, history_path, diary_path, end = sys.argv[1:]
    history = History.load(Path(history_path))
    diary = Diary(Path(diary_path))
    adopted = len(history.adopted)
    with seeklog.open(root, read_only=True, config=CONFIG) as reader:
        check(reader, history)
    with seeklog.open(root, config=CONFIG) as store:
        before = history.checked
        check(store, history)
        for each in history.adopted[adopted:]:
            diary.note("adopted", *each)
        diary.note("checked", 2 * (history.checked - before))
        store.alter_topic("compacted", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})
        offsets = {}
        for place in KEPT:
            offsets[TopicPartition(*split(place))] = history.end(place) - 7
        store.commit_offsets(GROUP, offsets)
        for partition, offset in offsets.items():
            diary.note("committed", str(partition), offset)
        with store.writer(*split(TRIMMED)) as log:
            start = min(history.starts[TRIMMED] + TRIM, log.high_watermark)
            log.delete_before(start)
        diary.note("trimmed", TRIMMED, start)
        store.maintain()
        store.compact(split(COMPACTED)[0])
        write(store, history, diary, is_killed=end == "killed")


if __name__ == "__main__":
    main()
