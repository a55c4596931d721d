# SPDX-License-Identifier: Apache-2.0
"""The host as the probes see it: files below a root, and whether it is the running one."""

from __future__ import annotations

import gzip
import os
import re
from functools import cached_property
from pathlib import Path
from typing import Final

from tierd import topology
from tierd.core.tiermap import TierMap
from tierd.topology.sysfs import SysTree

CAPABILITIES: Final = {
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""Numbers from include/uapi/linux/capability.h."""
TRACEFS: Final = ("sys/kernel/tracing", "sys/kernel/debug/tracing")

_CONFIG_LINE: Final = re.compile(r"^(CONFIG_[A-Z0-9_]+)=(.*)$", re.MULTILINE)


class Host:
    """A host to examine.

    Args:
        root: "/" for the running host; anything else is a captured tree, on which
            no system call is tried.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.tree = SysTree(root)
        self.live = root == Path("/")

    @cached_property
    def release(self) -> str:
        """The kernel's release (uname -r), or an empty string."""
        return self.tree.text("proc/sys/kernel/osrelease") or ""

    @cached_property
    def topology(self) -> TierMap:
        """The memory tiers.

        Raises:
            TierdError: as `tierd.topology.read`.
        """
        return topology.read(self.root)

    @cached_property
    def kernel_config(self) -> dict[str, str] | None:
        """Options that are set, from wherever this kernel's configuration is kept; else None."""
        places = (
            "proc/config.gz",
            f"boot/config-{self.release}",
            f"lib/modules/{self.release}/config",
            f"lib/modules/{self.release}/build/.config",
        )
        for place in places:
            try:
                raw = self.tree.path(place).read_bytes()
                text = (gzip.decompress(raw) if place.endswith(".gz") else raw).decode()
            except (OSError, EOFError, UnicodeDecodeError):
                continue
            return {match[1]: match[2] for match in _CONFIG_LINE.finditer(text)}
        return None

    @cached_property
    def symbols(self) -> str:
        """/proc/kallsyms as one text; empty if it cannot be read."""
        return self.tree.text("proc/kallsyms") or ""

    @cached_property
    def capabilities(self) -> frozenset[str] | None:
        """Names of this process's effective capabilities among those tierd needs, or None."""
        text = self.tree.text("proc/self/status") or ""
        match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", text, re.MULTILINE)
        if match is None:
            return None
        mask = int(match[1], 16)
        held = {name for name, bit in CAPABILITIES.items() if mask >> bit & 1}
        if "CAP_SYS_ADMIN" in held:  # the kernel lets it stand for the two younger ones
            held |= {"CAP_BPF", "CAP_PERFMON"}
        return frozenset(held)

    @cached_property
    def processes(self) -> dict[int, str]:
        """Number → name (comm, at most 15 characters) of all processes and kernel threads."""
        found: dict[int, str] = {}
        for name in self.tree.names("proc"):
            if name.isdigit():
                comm = self.tree.text(f"proc/{name}/comm")
                if comm is not None:
                    found[int(name)] = comm
        return found

    def tracefs(self) -> tuple[str, str]:
        """(place, problem): where tracefs is, or an empty place and what is wrong."""
        problem = "it is not mounted"
        for place in TRACEFS:
            try:
                names = [entry.name for entry in self.tree.path(place).iterdir()]
            except PermissionError:
                problem = f"/{place} may not be read by this user"
                continue
            except OSError:
                continue
            if "events" in names:
                return place, ""
        return "", problem

    def writable(self, relative: str) -> bool:
        """Whether this process may write the file."""
        return os.access(self.tree.path(relative), os.W_OK)
