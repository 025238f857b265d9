"""Who of a group is alive: those who hold the lock of their own file beside the group's records.

`seeklog-member-<uuid>`, in the directory of the group's partition of `__consumer_offsets`, holds the pid of the
member's process, a blank, and milliseconds of the machine's monotonic clock at its last poll, both in decimal. The
lock goes with the process, however it ends. A member that holds it but has not polled for its rebalance timeout
counts as gone too.
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
    """Return the file of a member, or None if its id is none that a seeklog gave: a broker's member is gone."""
    found = _UUID.search(member_id)
    return None if found is None else f"{directory}/{names.MEMBER}{found[0]}"


def sign_of_life(clock: Clock) -> str:
    """Return what a member's file holds when it polls now."""
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
        return True  # it is just being written
    return clock.monotonic() * 1000 - int(words[1]) <= member.rebalance_timeout_ms


def remove_files_of_dead(files: Files, directory: str) -> None:
    """Remove the files that no member holds. The caller holds the partition's lock, so that nobody joins meanwhile."""
    for name in files.list(directory):
        if name.startswith(names.MEMBER):
            with contextlib.suppress(OSError):
                if not files.is_locked(f"{directory}/{name}"):
                    files.remove(f"{directory}/{name}")
