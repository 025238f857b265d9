"""The checkpoint of a single log: its promises, in one small file that is replaced as a whole.

`seeklog-checkpoint` is text, a name and its numbers per line. The last line is the CRC-32C of all lines before it:

    seeklog-checkpoint 1
    recovery_point 1000        every record below was synced: damage there is refused, never cut
    log_start_offset 0         records below were deleted
    high_watermark 1000        exclusive
    contiguous_from 0          from here on, seeklog appended every batch, without gaps
    generation 2               grows whenever the end of the log is cut, so that readers start over
    producers 1                whether any producer is known below the recovery point; 0: none
    epochs 0 0 3 700           leader epochs as pairs: epoch 0 starts at offset 0, epoch 3 at offset 700
    gaps 200 300               only in an archive: offsets from 200 to 299 are known to be missing
    active 0 1000 ...          only after a clean close: the base offset and state of the last segment
    crc32c 5d1c9ad2

The file is written under a temporary name, synced and renamed, and the directory is synced, so a crash leaves the old
or the new checkpoint. One that fails its CRC was damaged later. The log then refuses to open, because the start offset
cannot be guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from seeklog import names
from seeklog.config import INT32_MAX, INT64_MAX
from seeklog.errors import CorruptionError
from seeklog.files import Files, read_if_exists, replace_file
from seeklog.record.framed import decode_framed, encode_framed, whole_number
from seeklog.record.saved_state import SavedState

VERSION = 1
_FIRST_LINE = f"seeklog-checkpoint {VERSION}"
_NUMBERS = ("recovery_point", "log_start_offset", "high_watermark", "contiguous_from", "generation")
_DAMAGED = (
    "If the log is whole, delete the checkpoint and open the log again: every batch is then checked, and "
    "records that `delete_before` removed inside the first segment may come back."
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of the checkpoint file. `active` is the last segment's saved state after a clean close."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    contiguous_from: int
    generation: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    active: SavedState | None = None
    has_producers: bool | None = None
    """Whether any producer was known at the recovery point; None if the checkpoint does not contain it."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Offsets between segments that an archive declares missing, as (first offset, next offset)."""
    foreign: bool = False
    """Derived from a broker's own checkpoints: gaps are valid, and the log ends where its files end."""
    is_visited: bool = False
    """A broker has written since seeklog's last checkpoint, so no side file of seeklog is valid: see `broker_visit`."""

    @property
    def structure(self) -> tuple[object, ...]:
        """The values that do not change with appends alone."""
        return self.log_start_offset, self.contiguous_from, self.generation, self.epochs, self.is_visited


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    lines = [f"{name} {getattr(checkpoint, name)}" for name in _NUMBERS]
    if checkpoint.has_producers is not None:
        lines.append(f"producers {checkpoint.has_producers:d}")
    lines.append(f"epochs {' '.join(f'{epoch} {start}' for epoch, start in checkpoint.epochs)}".rstrip())
    if checkpoint.gaps:
        lines.append(f"gaps {' '.join(f'{first} {after}' for first, after in checkpoint.gaps)}")
    if checkpoint.active is not None:
        lines.append(f"active {' '.join(map(str, checkpoint.active))}")
    return encode_framed(_FIRST_LINE, lines)


# Opening a log and refreshing a reader read the file several times, usually unchanged.
@lru_cache(maxsize=16)
def decode_checkpoint(data: bytes, *, path: str) -> Checkpoint:
    """Return the checkpoint in the bytes, or raise `CorruptionError`."""
    lines = decode_framed(data, _FIRST_LINE, subject="the checkpoint", path=path, advice=_DAMAGED)
    try:
        fields = {name: rest for name, _, rest in (line.partition(" ") for line in lines)}
        active = _numbers(fields["active"], minimum=-INT64_MAX - 1) if "active" in fields else ()
        numbers = {name: whole_number(int(fields[name])) for name in _NUMBERS}
        epochs = _pairs(fields["epochs"])
        for epoch, _ in epochs:
            whole_number(epoch, maximum=INT32_MAX)
        gaps = _pairs(fields.get("gaps", ""))
        producers = bool(int(fields["producers"])) if "producers" in fields else None
    except (ValueError, KeyError) as error:
        raise CorruptionError(f"the checkpoint does not parse: {error}", path=path, advice=_DAMAGED) from error
    return Checkpoint(
        recovery_point=numbers["recovery_point"],
        log_start_offset=numbers["log_start_offset"],
        high_watermark=numbers["high_watermark"],
        contiguous_from=numbers["contiguous_from"],
        generation=numbers["generation"],
        epochs=epochs,
        # Another version may have saved other numbers; the last segment is then scanned, and nothing is lost.
        active=SavedState(*active) if len(active) == len(SavedState._fields) else None,
        has_producers=producers,
        gaps=gaps,
    )


def _numbers(text: str, *, minimum: int = 0) -> tuple[int, ...]:
    return tuple(whole_number(int(word), minimum=minimum) for word in text.split())


def _pairs(text: str) -> tuple[tuple[int, int], ...]:
    numbers = iter(_numbers(text))
    return tuple(zip(numbers, numbers, strict=True))


def read_checkpoint(files: Files, directory: str) -> Checkpoint | None:
    """Return the directory's checkpoint, or None if it has none: a broker's directory, or a new one."""
    path = f"{directory}/{names.CHECKPOINT}"
    data = read_if_exists(files, path)
    return None if data is None else decode_checkpoint(data, path=path)


def write_checkpoint(files: Files, directory: str, checkpoint: Checkpoint) -> None:
    """Replace the directory's checkpoint. Durable on return."""
    replace_file(files, directory, names.CHECKPOINT, encode_checkpoint(checkpoint))
    files.sync_directory(directory)
