"""Is this path a partition directory? The questions asked before anything is opened."""

from __future__ import annotations

from seeklog import names
from seeklog.errors import NotAccessible, NotALog
from seeklog.files import Files


def check_directory(files: Files, path: str, *, create: bool) -> None:
    """Make sure that `path` is, or with `create` becomes, a directory that may hold a log.

    A directory that holds only other things is not touched.
    """
    try:
        if create:
            files.make_directory(path)
        listing = files.list(path)
    except NotADirectoryError as error:
        raise NotALog(f"{path} is a file; a log is a directory") from error
    except FileNotFoundError as error:
        raise NotALog(f"there is no log at {path}") from error
    except OSError as error:
        raise NotAccessible(f"{path} cannot be opened: {error.strerror or error}") from error
    if listing and not any(map(names.is_known, listing)):
        raise NotALog(f"{path} holds other things, such as {listing[0]!r}; give the log a directory of its own")
    if not create and not any(name.endswith((names.LOG, names.LOG + names.SWAP)) for name in listing):
        raise NotALog(f"there is no log at {path}: it holds no segment")
