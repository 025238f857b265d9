"""Who a store's producers are: the ids that they number their records under.

An id is drawn by lot from 2^62: so it is nobody else's, neither in this store nor in one that a partition was copied
from, and no broker's, whose ids count from 0. A producer with a name keeps its id in a file of its own in the root of
the store, `seeklog-producer-<key>`, which is replaced whole:

    seeklog-producer 1
    {"name": "loader", "id": 3098210398123098, "epoch": 4}
    crc32c 5d1c9ad2

Each incarnation has an epoch of its own, durable before it writes; where it has written, the ones before it are fenced.
One that resumes has the epoch of the last, and the lock of the name for as long as it lives: two that went on with the
same sequences would each take the other's batches for its own.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace

from seeklog import names
from seeklog.clock import Clock
from seeklog.errors import CorruptionError, UsageError
from seeklog.files import SHORT_WAIT_S, Files, Lock, replace_file, retry_while_locked, take_lock
from seeklog.log import MAX_EPOCH, ProducerSequence
from seeklog.record.framed import decode_framed, encode_framed, parse_json, whole_number

_FIRST_LINE = "seeklog-producer 1"
_ID_BITS = 62
_DAMAGED = "Remove the file: the producer gets a new id then, and cannot tell any more what it has written before."


@dataclass(frozen=True, slots=True)
class Identity:
    """A producer that numbers its records: its id and epoch, and the lock of its name if it resumes."""

    producer_id: int
    epoch: int = 0
    name: str | None = None
    lock: Lock | None = None

    @property
    def first_place(self) -> ProducerSequence:
        return ProducerSequence(producer_id=self.producer_id, epoch=self.epoch)

    def release(self) -> None:
        """Let others have the name."""
        if self.lock is not None:
            self.lock.close()


def encode_identity(identity: Identity) -> bytes:
    """Return the bytes of the file."""
    fields = {"name": identity.name, "id": identity.producer_id, "epoch": identity.epoch}
    return encode_framed(_FIRST_LINE, [json.dumps(fields)])


def decode_identity(data: bytes, *, path: str) -> Identity:
    """Return what the bytes say, or raise `CorruptionError`."""
    lines = decode_framed(data, _FIRST_LINE, subject="the producer's file", path=path, advice=_DAMAGED)
    try:
        fields = parse_json("".join(lines))
        epoch = whole_number(fields["epoch"], maximum=MAX_EPOCH)
        return Identity(whole_number(fields["id"]), epoch, str(fields["name"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"the producer's file does not parse: {error}", path=path, advice=_DAMAGED) from error


class ProducerIds:
    """The ids of a store's producers."""

    def __init__(self, root: str, *, files: Files, clock: Clock) -> None:
        self._root = root
        self._files = files
        self._clock = clock

    def new(self) -> Identity:
        """Return a producer that nobody knows yet."""
        return Identity(secrets.randbits(_ID_BITS))

    def claim(self, name: str, *, resume: bool) -> Identity:
        """Return the next incarnation of a named producer, or, to `resume`, the last one once more; durable."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"a producer's name is a str that is not empty, not {name!r}")
        path = f"{self._root}/{names.producer_name(names.app_key(name))}"
        lock = retry_while_locked(
            self._clock,
            SHORT_WAIT_S,
            lambda: take_lock(self._files, path + names.LOCK, subject=f"the producer {name!r}"),
        )
        try:
            last = self._read(path)
            if last is None or (not resume and last.epoch + 1 > MAX_EPOCH):
                identity = replace(self.new(), name=name)
            else:
                identity = last if resume else replace(last, epoch=last.epoch + 1)
            if identity != last:
                replace_file(self._files, self._root, path.rpartition("/")[2], encode_identity(identity))
            # Also what another has written, and was killed before its name was durable.
            self._files.sync_directory(self._root)
        except BaseException:
            lock.close()
            raise
        if resume:
            return replace(identity, lock=lock)
        lock.close()
        return identity

    def _read(self, path: str) -> Identity | None:
        try:
            return decode_identity(self._files.read_file(path), path=path)
        except FileNotFoundError:
            return None
