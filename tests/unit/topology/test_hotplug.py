# SPDX-License-Identifier: Apache-2.0
"""The watcher's rules, with a socket pair in place of netlink and a tree to poll."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tierd.topology import HotplugWatcher, hotplug

Tree = Callable[..., Path]
NODES = "sys/devices/system/node"


def message(action: str, path: str, subsystem: str) -> bytes:
    """An uevent as the kernel sends it (lib/kobject_uevent.c)."""
    fields = [f"{action}@{path}", f"ACTION={action}", f"DEVPATH={path}", f"SUBSYSTEM={subsystem}"]
    return "\0".join([*fields, "SEQNUM=1", ""]).encode()


MEMORY = message("online", "/devices/system/memory/memory9", "memory")
DISK = message("add", "/devices/virtual/block/loop0", "block")


class FakeSocket:
    """Gives what a netlink socket would: messages or errors, then "would block"."""

    def __init__(self, *script: bytes | OSError | tuple[bytes, int]) -> None:
        self.script = list(script)
        self.closed = False

    def recvfrom(self, size: int, flags: int) -> tuple[bytes, tuple[int, int]]:
        assert size >= 2048
        if not self.script:
            raise BlockingIOError(errno.EAGAIN, "would block")
        item = self.script.pop(0)
        if isinstance(item, OSError):
            raise item
        return (item[0], (item[1], 1)) if isinstance(item, tuple) else (item, (0, 1))

    def fileno(self) -> int:
        return 77

    def close(self) -> None:
        self.closed = True


def watcher(
    monkeypatch: pytest.MonkeyPatch, *script: bytes | OSError | tuple[bytes, int]
) -> tuple[HotplugWatcher, FakeSocket]:
    fake = FakeSocket(*script)
    monkeypatch.setattr(hotplug, "_open_uevents", lambda: fake)
    return HotplugWatcher(), fake


def test_all_waiting_messages_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, fake = watcher(monkeypatch, DISK, MEMORY, DISK, MEMORY)
    assert (watch.changed(), fake.script, watch.changed()) == (True, [], False)
    assert (watch.mode, watch.fileno()) == ("uevent", 77)


@pytest.mark.parametrize("subsystem", sorted(hotplug.SUBSYSTEMS))
def test_memory_nodes_dax_and_cxl_count(monkeypatch: pytest.MonkeyPatch, subsystem: str) -> None:
    assert watcher(monkeypatch, message("add", "/devices/x", subsystem))[0].changed()


def test_other_devices_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not watcher(monkeypatch, DISK, b"", b"\0\0", b"\xff\xfe", b"x" * 3000)[0].changed()


def test_messages_of_other_processes_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not watcher(monkeypatch, (MEMORY, 4711))[0].changed()


def test_lost_messages_count_as_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, _ = watcher(monkeypatch, OSError(errno.ENOBUFS, "no buffer space"), DISK)
    assert (watch.changed(), watch.mode, watch.changed()) == (True, "uevent", False)


def test_a_broken_socket_counts_once_and_polling_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch, fake = watcher(monkeypatch, OSError(errno.EBADF, "bad descriptor"))
    assert watch.changed()
    assert (watch.mode, watch.fileno(), fake.closed) == ("poll", -1, True)


def test_a_storm_is_cut_off_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotplug, "MAX_DRAIN", 3)
    watch, fake = watcher(monkeypatch, DISK, DISK, DISK, DISK)
    assert (watch.changed(), len(fake.script)) == (True, 1)


def test_refused_netlink_falls_back_to_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(hotplug, "_open_uevents", refuse)
    watch = HotplugWatcher()
    assert (watch.mode, watch.fileno()) == ("poll", -1)
    assert "not permitted" in watch.reason
    assert not watch.changed()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_polling_sees_nodes_tiers_and_sizes_but_no_balloon(tree: Tree) -> None:
    root, clock = tree("lab-dram-cxl"), Clock()
    watch = HotplugWatcher(root, poll_interval_s=1.0, clock=clock)

    def after(path: str, text: str) -> bool:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        clock.now += 1.0
        return watch.changed()

    meminfo = f"{NODES}/node1/meminfo"
    assert not after(meminfo, f"Node 1 MemTotal: {1957472 - 65536} kB\n")
    # Small steps add up: the comparison is with the last map, not with the last poll.
    assert after(meminfo, f"Node 1 MemTotal: {1957472 - 131072} kB\n")
    assert after(f"{NODES}/online", "0\n")
    assert not after(f"{NODES}/online", "0\n")
    assert after("sys/devices/virtual/memory_tiering/memory_tier9/nodelist", "1\n")
    assert after("sys/bus/dax/devices/dax0.0/target_node", "1\n")
    assert after(f"{NODES}/node2/cpulist", "\n")


def test_polling_keeps_to_its_interval(tree: Tree) -> None:
    root, clock = tree("lab-dram-cxl"), Clock()
    watch = HotplugWatcher(root, poll_interval_s=10.0, clock=clock)
    (root / NODES / "online").write_text("0\n")
    clock.now = 9.9
    assert not watch.changed()
    clock.now = 10.0
    assert watch.changed()
