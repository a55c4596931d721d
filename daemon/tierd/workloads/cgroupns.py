# SPDX-License-Identifier: Apache-2.0
"""`CgroupNamespace`: control groups' paths from the host's root, wherever tierd runs.

In a cgroup namespace of its own (a pod without privileges), /proc/PID/cgroup shows other groups as
a way up from the namespace's root and down again: "/../../kubepods-burstable.slice/pod1"
(cgroup_namespaces(7)). What lies above the point where both ways part is named by this group's own
path, which is looked up in the first process's mounts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tierd.core.errors import TargetGoneError
from tierd.core.linux import CGROUP_ROOTS
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
