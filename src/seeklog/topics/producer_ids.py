"""The identities of a store's producers: the ids and epochs under which they number their records.

An id is a random number below 2^62, so it does not collide with other producers' ids, in this store or in a store from
which a partition was copied, or with a broker's ids, which count from 0. A named producer keeps its id in a file in the
root of the store, `seeklog-producer-<key>`, which is replaced as a whole:

    seeklog-producer 1
    {"name": "loader", "id": 3098210398123098, "epoch": 4}
    crc32c 5d1c9ad2

Each incarnation of a name gets its own epoch, durable before its first append. Where it has written, earlier epochs are
fenced. A producer that resumes keeps the last epoch, and holds the lock of the name while it lives: two producers that
continued the same sequences would each take the other's batches for duplicates of their own.
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
_DAMAGED = "Delete the file. The producer then gets a new id, and `written` no longer counts its earlier records."


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a producer that numbers its records: id, epoch, and when it resumes the lock of its name."""

    producer_id: int
    epoch: int = 0
    name: str | None = None
    lock: Lock | None = None

    @property
    def first_sequence(self) -> ProducerSequence:
        return ProducerSequence(producer_id=self.producer_id, epoch=self.epoch)

    def release(self) -> None:
        """Release the lock of the name."""
        if self.lock is not None:
            self.lock.close()


def encode_identity(identity: Identity) -> bytes:
    """Return the bytes of the file."""
    fields = {"name": identity.name, "id": identity.producer_id, "epoch": identity.epoch}
    return encode_framed(_FIRST_LINE, [json.dumps(fields)])


def decode_identity(data: bytes, *, path: str) -> Identity:
    """Decode the file, or raise `CorruptionError`."""
    lines = decode_framed(data, _FIRST_LINE, subject="the producer's file", path=path, advice=_DAMAGED)
    try:
        fields = parse_json("".join(lines))
        epoch = whole_number(fields["epoch"], maximum=MAX_EPOCH)
        return Identity(whole_number(fields["id"]), epoch, str(fields["name"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"the producer's file does not parse: {error}", path=path, advice=_DAMAGED) from error


class ProducerIds:
    """Assigns identities to the producers of a store."""

    def __init__(self, root: str, *, files: Files, clock: Clock) -> None:
        self._root = root
        self._files = files
        self._clock = clock

    def new(self) -> Identity:
        """Return a new identity."""
        return Identity(secrets.randbits(_ID_BITS))

    def claim(self, name: str, *, resume: bool) -> Identity:
        """Return the next incarnation of a named producer, or the last one again to `resume` it. Durable on return."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"a producer's name must be a non-empty str, not {name!r}")
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
            # Also if the file is unchanged: the process that wrote it may have died before the rename was durable.
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
