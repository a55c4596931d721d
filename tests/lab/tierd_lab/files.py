# SPDX-License-Identifier: Apache-2.0
"""A disk with what guests read most: Python, its packages and this tree.

A guest sees the host's root over 9p. There each file that is opened is several round trips out of
the guest, of a millisecond each and of five on a busy host, and a Python program opens hundreds of
files before it does anything. These folders therefore are on a read-only disk as well, which the
guest mounts over them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tierd.core.errors import TierdError
from tierd_lab.host import find_program

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / "build/lab"
"""Where disks are kept."""
SERIAL: Final = "tierd-files"
_TREES: Final = ("daemon", "fpga/python", "tests")
_PACKAGES: Final = ("site-packages", "dist-packages")
_KEPT: Final = 2
"""Disks that are kept: those of trees that were just changed may be booted from still."""
_TRIES: Final = 5
_OPTIONS: Final = (
    *("-noI", "-noD", "-noF", "-noX", "-no-xattrs", "-no-duplicates", "-no-strip"),
    *("-exit-on-error", "-quiet", "-no-progress"),
    *("-wildcards", "-e", "... *.pyc.*"),
)
"""Nothing is compressed, which the guest would have to undo; folders keep their whole paths; a file
that cannot be read is an error, and no empty file; byte code that is being written is left out."""
_MOUNT: Final = """\
(
PATH=/usr/sbin:/usr/bin:/sbin:/bin
modprobe -q -a virtio_blk squashfs
mkdir -p /run/{serial}
for disk in /sys/block/vd*; do
    serial=
    read -r serial <"$disk/serial" # which has no end of line
    [ "$serial" = {serial} ] || continue
    busybox mount -t squashfs -o ro "/dev/${{disk##*/}}" /run/{serial} || continue
    for each in {folders}; do busybox mount -o bind "/run/{serial}$each" "$each"; done
    break
done
) 2>/dev/null
"""


def folders() -> list[Path]:
    """What a disk holds, none inside another; the same paths on the host and in the guest."""
    wanted = [ROOT / name for name in _TREES]
    wanted.append(Path(sysconfig.get_path("stdlib")))
    wanted += [Path(each) for each in sys.path if Path(each).name in _PACKAGES]
    if sys.prefix != sys.base_prefix:  # else all of /usr
        wanted.append(Path(sys.prefix))
    found = sorted({each for each in wanted if each.is_dir()})
    return [each for each in found if not set(each.parents) & set(found)]


def _entries(folder: Path) -> Iterator[str]:
    """A line for each file of a folder, by which it is seen that one has changed."""
    for place, names, files in os.walk(folder):
        # Python writes these while it runs, and takes none that does not fit its source.
        names[:] = sorted(name for name in names if name != "__pycache__")
        for name in sorted([*files, *names]):
            path = f"{place}/{name}"
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue  # it went meanwhile
            if not stat.S_ISDIR(status.st_mode):
                yield f"{path} {status.st_size} {status.st_mtime_ns} {status.st_mode}\n"


def disk(kept: Path = FOLDER, held: Sequence[Path] | None = None) -> Path:
    """The image of a disk with these folders as they are now; made if there is none.

    Args:
        kept: where images are.
        held: absolute folders; None: `folders()`.

    Raises:
        UnavailableError: mksquashfs is not installed.
        TierdError: it failed.
        OSError: `kept` cannot be written.
    """
    held = folders() if held is None else held
    program = find_program("mksquashfs", "squashfs-tools")
    state = hashlib.sha256()
    for folder in held:
        for line in _entries(folder):
            state.update(line.encode("utf-8", "surrogateescape"))
    image = kept / f"{state.hexdigest()[:24]}.squashfs"
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if image.exists():
            os.utime(image)
            return image
        for left in kept.glob("*.part"):
            left.unlink()
        made = image.with_suffix(".part")
        command = [str(program), *map(str, held), str(made), *_OPTIONS]
        # Python writes byte code under another name first, which may go while folders are read.
        for _ in range(_TRIES):
            made.unlink(missing_ok=True)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if not done.returncode:
                break
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            made.unlink(missing_ok=True)
            raise TierdError(
                f"mksquashfs made no disk of {len(held)} folders (status {done.returncode}): "
                f"{said[-1]}",
                hint=f"is there room in {kept}?",
            )
        made.rename(image)
        others = sorted(kept.glob("*.squashfs"), key=lambda each: each.stat().st_mtime)
        for old in others[:-_KEPT]:
            old.unlink()
    return image


def options(image: Path) -> list[str]:
    """QEMU's options for the disk."""
    file = str(image).replace(",", ",,")
    drive = f"file={file},if=none,id={SERIAL},format=raw,readonly=on"
    return ["-drive", drive, "-device", f"virtio-blk-pci,drive={SERIAL},serial={SERIAL}"]


def mount_script(held: Sequence[Path], shared: Sequence[Path] = ()) -> str:
    """Lines of shell with which a guest takes the folders from the disk, if it has one.

    Args:
        held: absolute folders.
        shared: folders that the guest may write to; what is inside one, or has one inside, is not
            taken from the disk.
    """
    taken = [
        each
        for each in held
        if not any(each.is_relative_to(own) or own.is_relative_to(each) for own in shared)
    ]
    return _MOUNT.format(serial=SERIAL, folders=shlex.join(map(str, taken)))
