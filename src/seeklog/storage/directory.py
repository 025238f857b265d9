"""Is this path a partition directory? The questions asked before anything is opened."""

from __future__ import annotations

from seeklog import names
from seeklog.errors import NotAccessible, NotALog
from seeklog.files import Files


def check_directory(files: Files, path: str, *, create: bool) -> bool:
    """Make sure that `path` is, or with `create` becomes, a directory that may hold a log.

    Returns whether it was made now. A directory that holds only other things is not touched.
    """
    created = False
    try:
        if create:
            created = files.make_directory(path)
        entries = files.list(path)
    except NotADirectoryError as error:
        raise NotALog(f"{path} is a file; a log is a directory") from error
    except FileNotFoundError as error:
        raise NotALog(f"there is no log at {path}") from error
    except OSError as error:
        raise NotAccessible(f"{path} cannot be opened: {error.strerror or error}") from error
    known = [entry for entry in entries if names.is_known(entry.name)]
    if entries and not known:
        raise NotALog(f"{path} holds other things, such as {entries[0].name!r}; give the log a directory of its own")
    if not create and not any(entry.name.endswith(names.LOG) for entry in known):
        raise NotALog(f"there is no log at {path}: it holds no segment")
    return created
