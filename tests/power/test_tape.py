"""The tape: every image has the flushed writes, and any part of the others."""

from __future__ import annotations

import random
from pathlib import Path

from power.device import EVENT, FLUSH, WRITE
from power.tape import SECTOR_SIZE, Loss, Tape


def tape_of(path: Path, *events: tuple[int, bytes] | None) -> Tape:
    """Return a tape of writes, and of flushes for None."""
    with open(path, "wb") as file:
        for event in events:
            if event is None:
                file.write(EVENT.pack(FLUSH, 0, 0))
            else:
                position, data = event
                file.write(EVENT.pack(WRITE, position, len(data)) + data)
    return Tape(path)


def image_of(path: Path, tape: Tape, loss: Loss) -> bytes:
    path.write_bytes(bytes(4 * SECTOR_SIZE))
    with open(path, "r+b", buffering=0) as file:
        tape.apply_durable(file.fileno(), first=0, end=loss.durable)
        tape.apply_loss(file.fileno(), loss)
    return path.read_bytes()


def test_flushed_writes_are_in_every_image_and_others_in_any_part(tmp_path: Path) -> None:
    tape = tape_of(tmp_path / "tape", (0, b"a"), None, (1, b"b"), (2, b"c"))
    chance = random.Random(1)
    images = {image_of(tmp_path / "image", tape, tape.draw_loss(4, chance=chance))[:3] for _ in range(200)}
    assert images == {b"a\0\0", b"ab\0", b"a\0c", b"abc"}


def test_a_torn_write_leaves_some_of_its_sectors(tmp_path: Path) -> None:
    tape = tape_of(tmp_path / "tape", (0, b"x" * 3 * SECTOR_SIZE))
    image = image_of(tmp_path / "image", tape, Loss(1, 0, (), torn=0, sectors=(0, 2)))
    assert image == b"x" * SECTOR_SIZE + bytes(SECTOR_SIZE) + b"x" * SECTOR_SIZE + bytes(SECTOR_SIZE)


def test_size_of_the_tape_identifies_the_moment(tmp_path: Path) -> None:
    tape = tape_of(tmp_path / "tape", (0, b"abc"), None, (3, b"d"))
    sizes = [0, EVENT.size + 3, 2 * EVENT.size + 3, 3 * EVENT.size + 4]
    assert [tape.moment(size) for size in sizes] == [0, 1, 2, 3]
    assert [tape.flushed(moment) for moment in range(4)] == [0, 0, 2, 2]
