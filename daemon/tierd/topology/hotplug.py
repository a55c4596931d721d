# SPDX-License-Identifier: Apache-2.0
"""Noticing that memory came or went: `HotplugWatcher`.

It listens to the kernel's uevents of memory blocks, nodes, dax and CXL devices and memory tiers;
where netlink is refused it polls a few small files.
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tierd.core.linux import NODES
from tierd.topology.firmware import DAX_DEVICES
from tierd.topology.reader import MEMORY_TIERING
from tierd.topology.sysfs import SysTree, mem_total

log = logging.getLogger(__name__)

SUBSYSTEMS: Final = frozenset({"memory", "node", "memory_tiering", "dax", "cxl"})
"""SUBSYSTEM of the uevents after which a map may be old."""
_SUBSYSTEMS: Final = frozenset(f"SUBSYSTEM={name}".encode() for name in SUBSYSTEMS)
_NETLINK_KOBJECT_UEVENT: Final = 15
"""include/uapi/linux/netlink.h; Python's socket module does not name it."""
KERNEL_GROUP: Final = 1
"""Multicast group of the kernel's own uevents (group 2 is udev's; lib/kobject_uevent.c)."""
RECEIVE_BYTES: Final = 65536
"""More than the 2 KiB that the kernel allows an uevent (UEVENT_BUFFER_SIZE)."""
MAX_DRAIN: Final = 4096
"""Messages taken in one call, so that a storm cannot hold the control loop."""
SIZE_STEP_BYTES: Final = 128 << 20
"""Smallest change of a node's size that polling counts: one memory block on x86.
A balloon changes MemTotal all the time by less."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What the poll compares."""

    files: tuple[str | None, ...]
    names: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]


class HotplugWatcher:
    """Says when the topology must be read again.

    Make it before the first `tierd.topology.read`, so that nothing falls between.
    Use it from the thread that made it.

    Args:
        root: as for `read`; anything but "/" is a captured tree, which is polled.
        poll_interval_s: where it must poll, at most this often.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        poll_interval_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tree = SysTree(root)
        self._interval = poll_interval_s
        self._clock = clock
        self._socket: socket.socket | None = None
        self._snapshot: _Snapshot | None = None
        self._next_poll = 0.0
        self.reason = ""
        """Why it polls, or an empty string while it gets uevents."""
        if root != Path("/"):
            self._poll_from_now("the tree is a captured one")
            return
        try:
            self._socket = _open_uevents()
        except OSError as error:
            self._poll_from_now(f"uevents are refused: {error!r}")

    @property
    def mode(self) -> str:
        """ "uevent" or "poll"."""
        return "poll" if self._socket is None else "uevent"

    def fileno(self) -> int:
        """The descriptor to wait on for reading, or -1 while it polls."""
        return -1 if self._socket is None else self._socket.fileno()

    def changed(self) -> bool:
        """Whether the map must be read again; takes all waiting events and never blocks."""
        return self._poll() if self._socket is None else self._drain(self._socket)

    def close(self) -> None:
        """Leave the multicast group; `changed` polls afterwards."""
        if self._socket is not None:
            self._socket.close()
            self._poll_from_now("closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drain(self, uevents: socket.socket) -> bool:
        changed = False
        for _ in range(MAX_DRAIN):
            try:
                data, (sender, *_groups) = uevents.recvfrom(RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return changed
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno == errno.ENOBUFS:  # events were lost: assume ours among them
                    changed = True
                    continue
                log.warning("uevents broke (%s): polling from now on", error)
                uevents.close()
                self._poll_from_now(f"uevents broke: {error.strerror}")
                return True
            if sender == 0:  # only the kernel has port 0
                changed |= concerns_memory(data)
        return True

    def _poll_from_now(self, reason: str) -> None:
        self._socket = None
        self.reason = reason
        self._snapshot = self._take()
        self._next_poll = self._clock() + self._interval

    def _poll(self) -> bool:
        if self._clock() < self._next_poll:
            return False
        self._next_poll = self._clock() + self._interval
        new, old = self._take(), self._snapshot
        if old is not None and _alike(old, new):
            return False  # the old one stays, so that small steps add up
        self._snapshot = new
        return True

    def _take(self) -> _Snapshot:
        tree = self._tree
        tiers = tree.names(MEMORY_TIERING)
        dax = tree.names(DAX_DEVICES)
        nodes = [name for name in tree.names(NODES) if name[4:].isdigit()]
        files = [f"{NODES}/online", f"{NODES}/has_memory"]
        files += [f"{MEMORY_TIERING}/{name}/nodelist" for name in tiers if name[-1].isdigit()]
        files += [f"{DAX_DEVICES}/{name}/target_node" for name in dax]
        sizes = tuple(
            (name, mem_total(tree.text(f"{NODES}/{name}/meminfo")) or 0) for name in nodes
        )
        texts = tuple(tree.text(name) for name in files)
        return _Snapshot(texts, (*tiers, *dax, *nodes), sizes)


def concerns_memory(data: bytes) -> bool:
    """Whether one uevent message is about memory, nodes, dax or CXL devices."""
    return not _SUBSYSTEMS.isdisjoint(data.split(b"\0"))


def _open_uevents() -> socket.socket:
    """A non-blocking socket in the kernel's uevent group."""
    flags = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    uevents = socket.socket(socket.AF_NETLINK, flags, _NETLINK_KOBJECT_UEVENT)
    try:
        uevents.bind((0, KERNEL_GROUP))
    except OSError:
        uevents.close()
        raise
    return uevents


def _alike(old: _Snapshot, new: _Snapshot) -> bool:
    if old.files != new.files or old.names != new.names:
        return False
    before = dict(old.sizes)
    return all(abs(size - before[name]) < SIZE_STEP_BYTES for name, size in new.sizes)
