"""Which members of a group are alive: those that hold the lock of their member file and have polled recently.

The file `seeklog-member-<uuid>` is in the directory of the group's partition of `__consumer_offsets`. It holds the pid
of the member's process, a blank, and the time of its last poll in milliseconds of the machine's monotonic clock, both
in decimal. The lock is released when the process ends. A member that holds it but has not polled within its rebalance
timeout counts as dead, too.
"""

from __future__ import annotations

import contextlib
import os
import re

from seeklog import names
from seeklog.clock import Clock
from seeklog.files import Files
from seeklog.groups.records import GroupState, Member

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")


def member_path(directory: str, member_id: str) -> str | None:
    """Return the path of a member's file. None for an id that seeklog did not assign: a broker's member is dead."""
    found = _UUID.search(member_id)
    return None if found is None else f"{directory}/{names.MEMBER}{found[0]}"


def sign_of_life(clock: Clock) -> str:
    """Return what a member writes to its file when it polls."""
    return f"{os.getpid():10d} {int(clock.monotonic() * 1000):20d}"


def living(files: Files, clock: Clock, directory: str, state: GroupState) -> dict[str, Member]:
    """Return the members of a group that are alive."""
    return {name: member for name, member in state.members.items() if _is_alive(files, clock, directory, member)}


def _is_alive(files: Files, clock: Clock, directory: str, member: Member) -> bool:
    path = member_path(directory, member.member_id)
    if path is None:
        return False
    try:
        if not files.is_locked(path):
            return False
        words = files.read_file(path).split()
    except FileNotFoundError:
        return False
    if len(words) != 2 or not words[1].isdigit():
        return True  # the file is being written
    return clock.monotonic() * 1000 - int(words[1]) <= member.rebalance_timeout_ms


def remove_files_of_dead(files: Files, directory: str) -> None:
    """Remove the files of dead members. The caller holds the partition's lock, so no member can join meanwhile."""
    for name in files.list(directory):
        if name.startswith(names.MEMBER):
            with contextlib.suppress(OSError):
                if not files.is_locked(f"{directory}/{name}"):
                    files.remove(f"{directory}/{name}")
