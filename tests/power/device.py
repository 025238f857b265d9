"""A disk with a history: a FUSE file system with one file, the image, and a tape of all operations.

The tape is a sequence of events, in the order of the requests, big-endian:

    kind        uint8    1 write, 2 flush
    position    uint64   position in the image; 0 for a flush
    size        uint32   number of bytes that follow; 0 for a flush

An event is on the tape before its request returns. So after a sync its flush is on the tape, and the size of the tape
identifies a moment.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENT: Final = struct.Struct(">BQI")
WRITE: Final = 1
FLUSH: Final = 2
IMAGE: Final = "image"


def serve(mountpoint: str, image: str, tape: str) -> None:
    """Serve an image until it is unmounted. Runs in a separate process."""
    import mfusepy

    class Device(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def __init__(self) -> None:
            self.image = os.open(image, os.O_RDWR)
            self.tape = os.open(tape, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
            if path != f"/{IMAGE}":
                raise mfusepy.FuseOSError(errno.ENOENT)
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": os.fstat(self.image).st_size}

        def readdir(self, path: str, fh: int) -> Iterator[str]:
            yield from (".", "..", IMAGE)

        def open(self, path: str, flags: int) -> int:
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(self.image, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            os.writev(self.tape, [EVENT.pack(WRITE, offset, len(data)), data])
            return os.pwrite(self.image, data, offset)

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            os.write(self.tape, EVENT.pack(FLUSH, 0, 0))
            return 0

    # One thread, so that the tape has one order.
    mfusepy.FUSE(Device(), mountpoint, foreground=True, nothreads=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
