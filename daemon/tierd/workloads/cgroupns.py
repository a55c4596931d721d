# SPDX-License-Identifier: Apache-2.0
"""`CgroupNamespace`: control groups' paths from the host's root, wherever tierd runs.

In a cgroup namespace of its own (a pod without privileges), /proc/PID/cgroup shows other groups as
a way up from the namespace's root and down again: "/../../kubepods-burstable.slice/pod1"
(cgroup_namespaces(7)). What lies above the point where both ways part is named by this group's own
path, which is looked up in the first process's mounts.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierd.core.errors import TargetGoneError
from tierd.core.linux import CGROUP_NAMESPACE_INODE, CGROUP_ROOTS
from tierd.workloads.procs import PROC, parse_cgroup, read_bytes


@dataclass(frozen=True, slots=True)
class CgroupNamespace:
    """Where the root of this process's cgroup namespace is.

    Attributes:
        depth: how many groups below the host's root.
        own: their names; None if they are not known.
    """

    depth: int = 0
    own: tuple[str, ...] | None = ()

    @staticmethod
    def find(proc: Path = PROC, root: Path = Path("/")) -> CgroupNamespace:
        """That of this process.

        The first process is in the host's root, or in a group below it (init.scope): its way up
        goes as far as ways go.
        """
        try:
            path = parse_cgroup(read_bytes(f"{proc}/1/cgroup", once=True))
        except TargetGoneError:
            return CgroupNamespace()
        depth = path.split("/").count("..")
        return CgroupNamespace(depth, _own(depth, proc / "1/root", root) if depth else ())

    def path(self, shown: str) -> str | None:
        """A group's path from the host's root, of what is shown here; None if it is not known."""
        if not self.depth:
            return shown
        parts = [part for part in shown.split("/") if part]
        above = self.depth - parts.count("..")
        if self.own is None and above:
            return None
        return "/" + "/".join([*(self.own or ())[:above], *(p for p in parts if p != "..")])

    def exists(self, pattern: str, proc: Path = PROC, root: Path = Path("/")) -> bool | None:
        """Whether a group is there that a matcher's `cgroup` means; None if it cannot be told."""
        if self.own is None:
            return None
        # The host's hierarchies are in the first process's mounts (see `find`).
        trees = list(_hierarchies(proc / "1/root" if self.depth else root))
        parts = [part for part in pattern.split("/") if part]
        return any(_has(tree, parts) for tree in trees) if trees else None


def in_hosts_namespace(proc: Path = PROC) -> bool | None:
    """Whether this process is in the cgroup namespace that the host booted with.

    A container's first process may be at the root of a namespace that shows nothing above it, so
    that paths do not tell. None: the kernel does not either.
    """
    try:
        return (proc / "self/ns/cgroup").stat().st_ino == CGROUP_NAMESPACE_INODE
    except OSError:
        return None


def _hierarchies(root: Path) -> Iterator[Path]:
    """Roots of the hierarchies that are mounted: that of v2, and on hybrid hosts those of v1."""
    for mount in CGROUP_ROOTS:
        if (root / mount / "cgroup.controllers").exists():
            yield root / mount
    # In the hierarchy of v2, folders below are groups.
    place = root / CGROUP_ROOTS[0]
    if place.is_dir() and not (place / "cgroup.controllers").exists():
        for folder in place.iterdir():
            if (folder / "cgroup.procs").exists() and not (folder / "cgroup.controllers").exists():
                yield folder


def _has(tree: Path, parts: Sequence[str]) -> bool:
    """Whether a hierarchy has a group whose path begins with parts like these."""
    level = [tree]
    for part in parts:
        found: list[Path] = []
        for folder in level:
            with contextlib.suppress(OSError):  # it went meanwhile
                found += (
                    Path(entry.path)
                    for entry in os.scandir(folder)
                    if fnmatch.fnmatchcase(entry.name, part) and entry.is_dir(follow_symlinks=False)
                )
        level = found
    return bool(level)


def _own(depth: int, host: Path, root: Path) -> tuple[str, ...] | None:
    """Names of the groups down to the namespace's root, in the host's tree; None if not found."""
    for mount in CGROUP_ROOTS:
        try:
            # A group has one inode, wherever its hierarchy is mounted.
            wanted = (root / mount).stat().st_ino
            (host / mount / "cgroup.controllers").stat()  # else it is no cgroup v2
            level: list[Path] = [host / mount]
            for _ in range(depth):
                level = [
                    Path(entry.path)
                    for folder in level
                    for entry in os.scandir(folder)
                    if entry.is_dir(follow_symlinks=False)
                ]
            found = next((each for each in level if each.stat().st_ino == wanted), None)
        except OSError:
            continue
        if found is not None:
            return found.relative_to(host / mount).parts
    return None
