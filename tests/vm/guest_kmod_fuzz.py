# SPDX-License-Identifier: Apache-2.0
"""Malformed and random messages and ioctls, and a user without rights, in a lab guest."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import errno
import fcntl
import functools
import mmap
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import guest_kmod as lab
from frame_owners import IOC_RESOLVE
from guest_kmod import Result
from module_events import subscribe

from tierd.core.errors import SecondMmuError, TargetGoneError, UnavailableError
from tierd.core.process import keep_only
from tierd.sources.kmod.netlink import Control
from tierd.sources.kmod.uapi import ATTRIBUTES, Command

MANY = 100_000
FEW = 20_000
NOBODY = 65534
SIZES = {"uint8": 1, "uint16": 2, "uint32": 4}


def attribute(rng: random.Random) -> bytes:
    """One attribute: of the right size, of a wrong one, or with a length that lies."""
    kind = rng.randrange(len(ATTRIBUTES) + 3)
    size = rng.choice((0, 1, 2, 4, 8, 16, 17, 32, 128, 200))
    if kind < len(ATTRIBUTES) and rng.random() < 0.7:
        size = SIZES.get(ATTRIBUTES[kind][1], rng.choice((0, 16, 32, 128)))
    data = rng.randbytes(size)
    if size in (1, 2, 4) and rng.random() < 0.5:
        data = rng.choice((0, 1, 2, 8, 1000, 65535)).to_bytes(4, "little")[:size]
    length = 4 + size
    if rng.random() < 0.05:
        length = rng.randrange(1 << 16)
    flags = rng.choice((0, 0, 0, 0x8000, 0x4000))
    return struct.pack("=HH", length, kind | flags) + data + bytes(-size % 4)


def message(rng: random.Random, family: int, number: int) -> bytes:
    """One message to the family, rarely with a header that lies as well."""
    body = b"".join(attribute(rng) for _ in range(rng.randrange(6)))
    if rng.random() < 0.05:
        body = rng.randbytes(rng.randrange(64))
    command = rng.randrange(max(Command) + 3) if rng.random() < 0.9 else rng.randrange(256)
    flags = rng.choice((1, 5, 0x301, 0x305, 0, rng.randrange(1 << 16)))
    length = 20 + len(body)
    if rng.random() < 0.02:
        length = rng.randrange(1 << 12)
    header = struct.pack("=IHHII", length, family, flags, number, 0)
    return header + struct.pack("=BBH", command, rng.randrange(3), 0) + body


def netlink(messages: int = FEW) -> Result:
    """Messages that are random, malformed, or right but for one thing."""
    rng = random.Random(2024)
    with lab.module(), lab.connection() as control:
        connection = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
        connection.bind((0, 0))
        connection.setblocking(False)
        answers = 0
        for number in range(messages):
            with contextlib.suppress(OSError):
                connection.sendto(message(rng, control._family, number), (0, 0))
            if number % 64 == 0:
                with contextlib.suppress(OSError):
                    while connection.recv(1 << 16):
                        answers += 1
        connection.close()
        end = time.monotonic() + 20
        while control.targets() and time.monotonic() < end:
            time.sleep(0.1)
        control.scan_set(period_us=400_000, budget_ppm=50_000, hot_scans=2, cold_scans=0)
        state = control.scan_get()
        return {
            "ok": state.stats["targets"] == 0 and state.period_us == 400_000 and answers > 0,
            "messages": messages,
            "datagrams_answered": answers,
            "targets_left": state.stats["targets"],
        }


def device(ioctls: int = FEW) -> Result:
    """Random ioctls, mappings, reads and writes."""
    rng = random.Random(7)
    libc = ctypes.CDLL(None, use_errno=True)
    accepted = 0
    with lab.module():
        fd = os.open("/dev/tierd", os.O_RDWR)
        # As large as the largest answer, so that no right guess writes over our own memory.
        room = mmap.mmap(-1, 32 << 20)
        place = ctypes.addressof(ctypes.c_char.from_buffer(room))
        for _ in range(ioctls // 2):
            request = rng.choice(
                (IOC_RESOLVE, rng.getrandbits(32), IOC_RESOLVE ^ 1 << rng.randrange(30))
            )
            pointer = rng.choice((0, 1, rng.getrandbits(47), rng.getrandbits(64)))
            words = struct.pack(
                "=QQII",
                rng.choice((0, rng.getrandbits(64), place)),
                rng.choice((0, rng.getrandbits(64), place)),
                rng.choice((0, 1, 1, 2, 256, rng.choice((257, 4096, 1 << 20)), 2**32 - 1)),
                rng.choice((0, 0, 0, 1, 2**32 - 1)),
            )
            with contextlib.suppress(OSError, OverflowError):
                fcntl.ioctl(fd, request, words)
                accepted += request == IOC_RESOLVE
            libc.ioctl(fd, ctypes.c_ulong(request), ctypes.c_void_p(pointer))
        for _ in range(ioctls // 50):
            with contextlib.suppress(OSError, ValueError, OverflowError):
                area = mmap.mmap(
                    fd,
                    rng.choice((1, 4096, 8192, 1 << 20, 5 << 20, rng.randrange(1, 1 << 24))),
                    rng.choice((mmap.MAP_SHARED, mmap.MAP_PRIVATE)),
                    rng.choice((mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE)),
                    offset=rng.choice((0, 0, 4096, 1 << 30)),
                )
                area.close()
            for act in (
                lambda: os.read(fd, 10),
                lambda: os.write(fd, b"x"),
                lambda: os.lseek(fd, 1, 0),
            ):
                with contextlib.suppress(OSError):
                    act()
        os.close(fd)
    return {"ok": accepted > 0, "accepted": accepted}


def unprivileged() -> Result:
    """A user without rights can neither open the device nor do anything by netlink; nor can one who
    may configure the network, but for listening. Who may do all has others' targets left alone."""
    with lab.module(), lab.connection() as control, lab.connection() as other:
        before = control.scan_get()
        got = in_a_child(nobody)
        network = in_a_child(lambda: keep_only(("CAP_NET_ADMIN",)))
        after = control.scan_get()
        same = (before.period_us, before.budget_ppm) == (after.period_us, after.budget_ppm)
        none = not control.targets()
        control.target_add(1, os.getpid())
        foreign = [name_of(lambda: other.target_set(1, [])), name_of(lambda: other.target_del(1))]
        kept = [each.target for each in control.targets()]
        control.target_del(1)
        return {
            "ok": same
            and none
            and set(got.values()) <= {"EPERM", "EACCES", *UNKNOWN}
            and network.pop("subscribe") == ""
            and set(network.values()) <= {"EPERM", *UNKNOWN}
            and got["scan_set"] == network["scan_set"] == network["raw SCAN_GET"] == "EPERM"
            and foreign == ["EPERM", "EPERM"]
            and kept == [1],
            "nobody": got,
            "network": network,
            "foreign": foreign,
            "device_mode": oct(Path("/dev/tierd").stat().st_mode & 0o777),
        }


UNKNOWN = (errno.errorcode[errno.EOPNOTSUPP],)
"""What an event that is sent as a command ends in."""


def nobody() -> None:
    """Become a user without rights."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def in_a_child(become: Callable[[], object]) -> dict[str, str]:
    """`attempts` by a child that has become somebody else."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        become()
        os.write(write, repr(attempts()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    told = os.read(read, 1 << 16).decode()
    os.close(read)
    return dict(ast.literal_eval(told))


def name_of(action: Callable[[], object]) -> str:
    """The name of the error that an action ends in, empty for none."""
    try:
        action()
    except (UnavailableError, TargetGoneError, SecondMmuError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        return errno.errorcode[getattr(cause, "errno", 0) or 0]
    return ""


def attempts() -> dict[str, str]:
    """What was tried, and the name of the error that it ended in."""
    control = Control.open()
    actions: dict[str, Callable[[], object]] = {
        "open": lambda: os.close(os.open("/dev/tierd", os.O_RDONLY)),
        "scan_set": lambda: control.scan_set(period_us=5000),
        "scan_get": control.scan_get,
        "target_add": lambda: control.target_add(1, os.getpid()),
        "target_del": lambda: control.target_del(1),
        "targets": control.targets,
        "subscribe": lambda: subscribe(control),
    }
    refused = {name: name_of(act) for name, act in actions.items()}
    return refused | {
        f"raw {command.name}": name_of(lambda command=command: control.ask(command))
        for command in Command
    }


def allocator() -> Result:
    """The kernel was started with slub_debug and page_poison, and the module's memory is whole."""
    cache = Path("/sys/kernel/slab/tierd_chunk")
    with lab.module(), lab.connection() as control:
        on = {name: (cache / name).read_text().strip() for name in ("poison", "red_zone")}
        control.scan_set(period_us=1000, budget_ppm=400_000)
        control.target_add(1, os.getpid())
        end = time.monotonic() + 60
        while not control.scan_get().stats["history_bytes"] and time.monotonic() < end:
            time.sleep(0.05)
        used = control.scan_get().stats["history_bytes"]
        (cache / "validate").write_text("1")
    poisons = "page_poison=1" in Path("/proc/cmdline").read_text().split()
    return {
        "ok": set(on.values()) == {"1"} and poisons and used > 0 and not cache.exists(),
        "cache": on,
        "history_bytes": used,
    }


CHECKS = {
    "netlink": netlink,
    "device": device,
    "unprivileged": unprivileged,
    "allocator": allocator,
    "netlink_long": functools.partial(netlink, MANY),
    "device_long": functools.partial(device, MANY),
}

if __name__ == "__main__":
    sys.exit(lab.main(CHECKS))
