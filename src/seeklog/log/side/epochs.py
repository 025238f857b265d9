"""Leader epochs: the start offset of each leader's records.

`leader-epoch-checkpoint` is Kafka's text file: a version line `0`, the number of entries, then `epoch startOffset`
lines, both ascending. It has no checksum, so seeklog keeps the same entries in its own checkpoint and writes this file
from there. It reads the file only in a broker's directory, which has no checkpoint of seeklog.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from seeklog import names
from seeklog.config import INT32_MAX, INT64_MAX
from seeklog.errors import counted
from seeklog.files import Files, publish_file, read_if_exists, stage_file

Entry = tuple[int, int]


def encode_rows(rows: Iterable[Sequence[object]]) -> bytes:
    """Return the bytes of one of Kafka's checkpoint files: a version line `0`, the number of rows, the rows."""
    lines = [" ".join(map(str, row)) + "\n" for row in rows]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode("ascii")


def decode_rows(data: bytes) -> list[list[str]]:
    """Return the rows of such a file. Raises `ValueError`."""
    version, count, *lines = data.decode("ascii").splitlines()
    if int(version) != 0 or int(count) != len(lines):
        raise ValueError(f"version {version}, {counted(len(lines), 'row')} instead of {count}")
    return [line.split() for line in lines]


def encode_epochs(entries: Iterable[Entry]) -> bytes:
    return encode_rows(entries)


def decode_epochs(data: bytes) -> list[Entry] | None:
    """Return the entries, or None if the bytes do not parse: the epochs can also be read from the batches."""
    try:
        entries = [(int(epoch), int(start)) for epoch, start in decode_rows(data)]
    except ValueError:
        return None
    if not all(0 <= epoch <= INT32_MAX and 0 <= start <= INT64_MAX for epoch, start in entries):
        return None
    growing = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(entries))
    return entries if growing else None


class LeaderEpochs:
    """The epochs of one partition, in order."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = list(entries)
        self.written: bytes | None = None
        """The content of Kafka's file, as far as known."""

    @classmethod
    def read(cls, files: Files, directory: str) -> LeaderEpochs:
        """Return the epochs in Kafka's file, or none if it is missing or does not parse."""
        data = read_if_exists(files, f"{directory}/{names.LEADER_EPOCHS}")
        epochs = cls(decode_epochs(data or b"") or ())
        epochs.written = data
        return epochs

    @property
    def is_written(self) -> bool:
        """Whether Kafka's file contains these epochs."""
        return self.written == encode_epochs(self.entries)

    def stage(self, files: Files, directory: str) -> None:
        """Write a temporary file for `publish`, which then needs no more disk space."""
        stage_file(files, directory, names.LEADER_EPOCHS, encode_epochs(self.entries))

    def publish(self, files: Files, directory: str) -> None:
        """Replace Kafka's file with the staged one. The caller syncs the directory."""
        publish_file(files, directory, names.LEADER_EPOCHS)
        self.written = encode_epochs(self.entries)

    @property
    def latest(self) -> int:
        """The newest epoch, or -1."""
        return self.entries[-1][0] if self.entries else -1

    def merge(self, scanned: Iterable[Entry], *, log_start_offset: int, log_end_offset: int) -> None:
        """Add the epochs that a scan of batches found."""
        self.truncate(log_end_offset)
        for epoch, start_offset in scanned:
            if epoch > self.latest:
                self.entries.append((epoch, start_offset))
        self._drop_before(log_start_offset)

    def begin(self, epoch: int, start_offset: int) -> None:
        """Start an epoch. It replaces a previous epoch without records."""
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()
        self.entries.append((epoch, start_offset))

    def truncate(self, log_end_offset: int) -> None:
        """Remove the epochs that started after the new end. The latest one continues and starts at the new end."""
        kept = [entry for entry in self.entries if entry[1] <= log_end_offset]
        if len(kept) == len(self.entries):
            return
        latest = self.latest
        while kept and kept[-1][1] >= log_end_offset:
            kept.pop()
        self.entries = [*kept, (latest, log_end_offset)]

    def end_offset(self, epoch: int, *, log_end_offset: int) -> Entry:
        """Return (the latest epoch not above `epoch`, its end offset), or (-1, -1) without such an epoch."""
        index = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if index == 0:
            return -1, -1
        end = self.entries[index][1] if index < len(self.entries) else log_end_offset
        return self.entries[index - 1][0], end

    def _drop_before(self, log_start_offset: int) -> None:
        while len(self.entries) > 1 and self.entries[1][1] <= log_start_offset:
            self.entries.pop(0)
        if self.entries and self.entries[0][1] < log_start_offset:
            self.entries[0] = (self.entries[0][0], log_start_offset)
