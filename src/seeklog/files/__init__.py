"""The only access to the disk: local files, files at a URL, and archive locations.

Import `seeklog.files.remote`, `seeklog.files.depot` and `seeklog.files.watch` directly: they are loaded only where they
are needed.
"""

from seeklog.files.durable import (
    publish_file,
    read_if_exists,
    read_parts,
    remove_if_exists,
    replace_file,
    stage_file,
    sync_ancestors,
    write_parts,
)
from seeklog.files.held import Displaced, HeldFiles
from seeklog.files.local import (
    Buffer,
    Files,
    FileStatus,
    Handle,
    Kind,
    OsFiles,
    ReadOnlyFiles,
    absolute,
    local_path,
    reads_plainly,
)
from seeklog.files.lock import SHORT_WAIT_S, Lock, is_awaited, retry_while_locked, take_in_turn, take_lock
from seeklog.files.translation import advice_for, is_full, translate, translated

__all__ = [
    "SHORT_WAIT_S",
    "Buffer",
    "Displaced",
    "FileStatus",
    "Files",
    "Handle",
    "HeldFiles",
    "Kind",
    "Lock",
    "OsFiles",
    "ReadOnlyFiles",
    "absolute",
    "advice_for",
    "is_awaited",
    "is_full",
    "local_path",
    "publish_file",
    "read_if_exists",
    "read_parts",
    "reads_plainly",
    "remove_if_exists",
    "replace_file",
    "retry_while_locked",
    "stage_file",
    "sync_ancestors",
    "take_in_turn",
    "take_lock",
    "translate",
    "translated",
    "write_parts",
]
