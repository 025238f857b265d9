"""The file systems of the power tests, created and mounted so that they write nothing at random times."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MIB: Final = 1 << 20
PATIENCE_S: Final = 60  # a mount that takes longer hangs
PACKAGES: Final = {"setpriv": "util-linux", "unshare": "util-linux", "mount": "mount", "umount": "mount"}
MAKERS: Final = {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}
# Options so that nothing is left when a process ends: its mounts are private and disappear with the last process that
# sees them, its children end with it, and it ends with its parent.
ALONE: Final = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"),
)


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system with its mount options."""

    name: str
    kind: str
    size: int
    """Of its image, in bytes. The least that it takes, or a little more."""
    make: tuple[str, ...]
    options: str

    def format(self, image: Path) -> None:
        """Create it, empty, in a new file."""
        with open(image, "wb") as file:
            file.truncate(self.size)
        run_tool([f"mkfs.{self.kind}", *self.make, str(image)])


# A commit is due every ten minutes, longer than any recording, so that only explicit syncs flush.
FILE_SYSTEMS: Final = {
    one.name: one
    for one in (
        FileSystem("ext4, data=ordered", "ext4", 48 * MIB, ("-q", "-F"), "noatime,commit=600,data=ordered"),
        FileSystem("ext4, data=writeback", "ext4", 48 * MIB, ("-q", "-F"), "noatime,commit=600,data=writeback"),
        FileSystem("xfs", "xfs", 304 * MIB, ("-q", "-f"), "noatime"),
        FileSystem("btrfs", "btrfs", 128 * MIB, ("-q", "-f"), "noatime,commit=600"),
    )
}


def run_tool(command: Sequence[str]) -> None:
    """Run a system tool; its output becomes part of the error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


@contextlib.contextmanager
def mounted(system: FileSystem, image: Path, at: Path) -> Iterator[Path]:
    """Mount an image through a loop device, which disappears with the mount."""
    run_tool(["mount", "-t", system.kind, "-o", f"loop,{system.options}", str(image), str(at)])
    try:
        yield at
    finally:
        unmount(at)


def unmount(at: Path) -> None:
    """Unmount lazily: a busy mount disappears when it is no longer in use."""
    try:
        run_tool(["umount", str(at)])
    except OSError:
        run_tool(["umount", "--lazy", str(at)])
        raise


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a sparse file, keeping its holes."""
    with open(source, "rb") as read, open(target, "wb") as written:
        size = os.fstat(read.fileno()).st_size
        written.truncate(size)
        at = 0
        while at < size:
            try:
                at = os.lseek(read.fileno(), at, os.SEEK_DATA)
            except OSError:
                return  # the rest is a hole
            end = os.lseek(read.fileno(), at, os.SEEK_HOLE)
            while at < end:
                data = os.pread(read.fileno(), min(end - at, MIB), at)
                os.pwrite(written.fileno(), data, at)
                at += len(data)


def punch_zeros(path: Path) -> None:
    """Replace pages of zeros, as in a new journal, with holes."""
    dense = path.with_suffix(".dense")
    path.rename(dense)
    zeros = bytes(4096)
    with open(dense, "rb") as read, open(path, "wb") as written:
        written.truncate(os.fstat(read.fileno()).st_size)
        at = 0
        while page := read.read(MIB):
            if page.count(0) != len(page):
                for start in range(0, len(page), 4096):
                    if page[start : start + 4096] != zeros:
                        os.pwrite(written.fileno(), page[start : start + 4096], at + start)
            at += len(page)
    dense.unlink()


def missing_tools(system: FileSystem) -> str:
    """Return what this machine lacks for this file system and how to install it, or nothing."""
    if os.geteuid():
        return "root: mounting file systems is for root alone"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not Path(device).exists():
            return f"{device}: a kernel with FUSE and loop devices, and a container that may see them (--privileged)"
    for tool, package in {**PACKAGES, f"mkfs.{system.kind}": MAKERS[system.kind]}.items():
        if shutil.which(tool) is None:
            return f"{tool}: apt-get install {package}"
    try:
        import mfusepy  # noqa: F401
    except ImportError:
        return "mfusepy: pip install mfusepy"
    except OSError:
        return "libfuse: apt-get install fuse3 libfuse3-3"
    with tempfile.TemporaryDirectory() as anywhere:
        probe = subprocess.run([*ALONE, "mount", "-t", "tmpfs", "tmpfs", anywhere], capture_output=True, check=False)
    if probe.returncode:
        return "mounts: a container that may make namespaces and mount in them (--privileged)"
    return "" if knows(system.kind) else f"{system.kind}: a kernel that has this file system"


def knows(kind: str) -> bool:
    """Return whether the kernel has a file system, loading its module if necessary."""
    known = Path("/proc/filesystems")
    if kind not in known.read_text().split() and shutil.which("modprobe"):
        subprocess.run(["modprobe", kind], capture_output=True, check=False)
    return kind in known.read_text().split()
