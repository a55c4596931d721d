# SPDX-License-Identifier: Apache-2.0
"""The benchmark's root file system: one archive that holds all a cell needs.

A file that is read from the host comes when the host has it, and no two runs see that at the
same time. The machine of a cell therefore has its files in its own memory from the start.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from tierd_lab.host import Kernel, find_program
from tierd_lab.initramfs import cpio_entry

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = (
    *("bash", "cat", "insmod", "migratepages", "numactl", "od", "rmmod", "sh", "sleep", "strip"),
    "uname",
)
IF_INSTALLED = ("redis-server", "redis-check-rdb")
"""The workload `redis` takes either, and says so when there is none."""
PACKAGES = ("tierd", "damo")
TREES = ("daemon", "tests/bench/tiering/guest", "tests/support", "fpga/include", "build/workloads")
SKIPPED = frozenset(
    ("test", "tests", "idlelib", "lib2to3", "ensurepip", "turtledemo", "pydoc_data", "tkinter")
)
"""Folders of Python's own library and of packages that no cell reads."""
CACHE = "__pycache__"
FOLDERS = ("dev", "proc", "root", "run", "sys", "tmp", "etc", "var/tmp")
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}
INSIDE = "image"
"""Folder of the archive with the root; what is beside it only puts it on the slow node."""
FIRST = f"""#!/bin/busybox sh
/bin/busybox mkdir /new
/bin/busybox mount -t tmpfs -o mode=755,size=1g,mpol=prefer:1 root /new
/bin/busybox cp -a /{INSIDE}/. /new/
exec /bin/busybox switch_root /new /init
"""
INIT = "tests/bench/tiering/guest/init.sh"


def library_names(file: Path) -> list[str]:
    """What the dynamic linker loads for a program or library."""
    done = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
    return re.findall(r"(?:=> |^\s*)(/\S+)", done.stdout, re.MULTILINE)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _below(folder: Path) -> Iterator[Path]:
    """Files and links of a folder that a cell may read."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED and not name.startswith("config-")
        )
        for name in files:
            yield Path(place) / name


def _distribution(name: str) -> metadata.Distribution:
    """What is installed in the environment: packages of the tree may have been built in it.

    Raises:
        metadata.PackageNotFoundError: it is not installed.
    """
    places = [sysconfig.get_path(each) for each in ("purelib", "platlib")]
    for found in metadata.distributions(name=name, path=places):
        return found
    raise metadata.PackageNotFoundError(name)


def _required(names: tuple[str, ...]) -> set[str]:
    """Distributions that these need, themselves included; not what is needed on a condition."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        for text in _distribution(name).requires or ():
            requirement, _, marker = text.partition(";")
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            if match and not marker:
                left.append(match[0])
    return found


def files(kernel: Kernel) -> set[Path]:
    """Absolute paths of all that the image takes from the host, links not followed."""
    environment = Path(sys.prefix)
    stdlib = Path(os.__file__).parent
    found = {Path(sys.executable), environment / "pyvenv.cfg"}
    found |= {environment / "bin" / name for name in ("python", "python3", "tierd", "damo")}
    found |= {find_program(name, name) for name in PROGRAMS}
    found |= {Path(path) for name in IF_INSTALLED if (path := shutil.which(name))}
    found |= set(_below(stdlib))
    for name in sorted(_required(PACKAGES)):
        for file in _distribution(name).files or ():
            if not SKIPPED & set(file.parts):
                found.add(Path(str(file.locate())))
    for tree in TREES:
        found |= set(_below(ROOT / tree))
    # What Python compiled of the benchmark depends on what was run here before.
    cached = ROOT / "tests"
    found = {path for path in found if not (path.parent.name == CACHE and cached in path.parents)}
    found |= set((ROOT / "build/kmod" / kernel.version).glob("*.ko"))
    return {Path(os.path.normpath(path)) for path in found if os.path.lexists(path)}


def _resolved(path: Path, into: dict[str, Path]) -> None:
    """Note a file under its real folder's name, and what a link points to."""
    place = path.parent.resolve() / path.name
    name = str(place).lstrip("/")
    if name in into:
        return
    into[name] = place
    if place.is_symlink():
        _resolved(place.parent / place.readlink(), into)


def contents(kernel: Kernel) -> dict[str, Path]:
    """Each file of the image by its name in it, the libraries of programs included."""
    found: dict[str, Path] = {}
    for path in sorted(files(kernel)):
        _resolved(path, found)
    wanted = [path for path in found.values() if path.is_file() and not path.is_symlink()]
    seen: set[str] = set()
    for path in wanted:
        if (path.suffix in ("", ".so") or ".so." in path.name or os.access(path, os.X_OK)) and (
            _is_elf(path)
        ):
            for library in library_names(path):
                if library not in seen:
                    seen.add(library)
                    _resolved(Path(library), found)
    # The dynamic linker is asked for by a path of its own.
    linker = Path("/lib64/ld-linux-x86-64.so.2")
    found.setdefault("usr/lib64/ld-linux-x86-64.so.2", linker)
    return found


def _parents(names: list[str]) -> list[str]:
    every = {str(parent) for name in names for parent in Path(name).parents}
    return sorted(every - {"."})


def build(kernel: Kernel, file: Path) -> int:
    """Write the archive; its bytes.

    Raises:
        UnavailableError: a program of the host is missing.
    """
    # Whatever was imported here last: what is compiled is whole, and of the source as it is.
    subprocess.run([sys.executable, "-m", "compileall", "-q", ROOT / "daemon"], check=True)
    taken = contents(kernel)
    inode = 0
    with file.open("wb") as out:

        def put(name: str, body: bytes, mode: int, mtime: int = 0) -> None:
            nonlocal inode
            inode += 1
            out.write(cpio_entry(name, body, mode, inode, mtime))

        busybox = find_program("busybox", "busybox-static").resolve()
        put("bin", b"", stat.S_IFDIR | 0o755)
        put("bin/busybox", busybox.read_bytes(), stat.S_IFREG | 0o755)
        put("init", FIRST.encode(), stat.S_IFREG | 0o755)
        put("dev", b"", stat.S_IFDIR | 0o755)
        put("dev/console", b"", stat.S_IFCHR | 0o600)
        put(INSIDE, b"", stat.S_IFDIR | 0o755)
        own = [*taken, *TEXTS, *(f"{folder}/x" for folder in FOLDERS)]
        for folder in _parents(own):
            put(f"{INSIDE}/{folder}", b"", stat.S_IFDIR | 0o755)
        for name, target in LINKS.items():
            put(f"{INSIDE}/{name}", target.encode(), stat.S_IFLNK | 0o777)
        for name, text in TEXTS.items():
            put(f"{INSIDE}/{name}", text.encode(), stat.S_IFREG | 0o644)
        put(f"{INSIDE}/usr/bin/busybox", busybox.read_bytes(), stat.S_IFREG | 0o755)
        put(f"{INSIDE}/init", (ROOT / INIT).read_bytes(), stat.S_IFREG | 0o755)
        for name, path in sorted(taken.items()):
            status = path.lstat() if not name.endswith("ld-linux-x86-64.so.2") else path.stat()
            when = int(status.st_mtime)
            if stat.S_ISLNK(status.st_mode):
                put(f"{INSIDE}/{name}", str(path.readlink()).encode(), stat.S_IFLNK | 0o777, when)
            else:
                mode = stat.S_IFREG | (status.st_mode & 0o777)
                put(f"{INSIDE}/{name}", path.read_bytes(), mode, when)
        put("TRAILER!!!", b"", 0)
        return out.tell()


if __name__ == "__main__":
    from tierd_lab.host import find_kernel

    print(build(find_kernel(), Path(sys.argv[1])))
