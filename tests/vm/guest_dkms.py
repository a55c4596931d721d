# SPDX-License-Identifier: Apache-2.0
"""Runs in a guest with systemd as init: the modules' package installed, used, and removed again.

Prints one JSON object a line: `event` and the facts; the test judges them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODULES = ("tierd", "tierd_neoprof")
DEVICE = Path("/dev/tierd")
PLACES = (Path("/usr/src/tierd-0.1.0"), Path("/var/lib/dkms/tierd"))
LIMIT_S = 3600.0
PATIENCE_S = 240.0


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, "at": round(time.monotonic(), 1), **facts}), flush=True)


def run(*command: str) -> tuple[int, str]:
    """The status of a command, and what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    return done.returncode, done.stdout + done.stderr


def wait(until: Callable[[], bool]) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not until() and time.monotonic() < deadline:
        time.sleep(1)
    return until()


def files() -> list[Path]:
    """The modules' files of the running kernel."""
    return sorted(Path("/lib/modules", os.uname().release).rglob("tierd*.ko*"))


def loaded() -> list[str]:
    """The modules that are loaded."""
    names = [line.split()[0] for line in Path("/proc/modules").read_text().splitlines()]
    return [name for name in MODULES if name in names]


def complaints() -> list[str]:
    """Lines with which the kernel reports a fault."""
    _, log = run("journalctl", "--dmesg", "--output=cat", "--no-pager", "--priority=warning")
    return [line for line in log.splitlines() if "WARNING:" in line or "BUG:" in line]


def install() -> None:
    """Installing the package builds the modules with this kernel's headers."""
    (package,) = Path("/root").glob("tierd-dkms_*.deb")
    status, said = run("dpkg", "-i", str(package))
    log = Path("/var/lib/dkms/tierd/0.1.0/build/make.log")
    tell(
        "installed",
        status=status,
        said=(log.read_text() if status and log.exists() else said)[-3000:],
        dkms=run("dkms", "status", "-m", "tierd")[1],
        files=[file.name.partition(".")[0] for file in files()],
    )


def use() -> None:
    """What the next boot does loads the module that was built, and the service can use it."""
    status, said = run("systemctl", "restart", "systemd-modules-load")
    there = wait(DEVICE.exists)
    run("udevadm", "settle")
    state = DEVICE.stat()
    cards = run("modprobe", "tierd_neoprof")
    built = {
        file.name.partition(".")[0]: run("modinfo", "-F", "srcversion", str(file))[1].strip()
        for file in files()
    }
    sources = {name: Path(f"/sys/module/{name}/srcversion").read_text().strip() for name in built}
    doctor = subprocess.run(
        ["tierd", "doctor", "--json"], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    probes = {each["id"]: each["status"] for each in json.loads(doctor.stdout)["findings"]}
    tell(
        "used",
        status=status,
        said=said,
        there=there,
        mode=[oct(state.st_mode & 0o777), state.st_uid, state.st_gid],
        cards=cards,
        loaded=loaded(),
        built=built,
        sources=sources,
        doctor=probes,
        complaints=complaints(),
    )


def remove() -> None:
    """Removing the package unloads the modules, and leaves nothing for the next boot."""
    status, said = run("dpkg", "--purge", "tierd-dkms")
    gone = wait(lambda: not DEVICE.exists())
    tell(
        "removed",
        status=status,
        said=said,
        gone=gone,
        loaded=loaded(),
        files=[str(file) for file in files()],
        left=[str(path) for path in PLACES if path.exists()],
        dkms=run("dkms", "status", "-m", "tierd")[1],
        modprobe=run("modprobe", "tierd")[0],
        load=run("systemctl", "restart", "systemd-modules-load")[0],
        complaints=complaints(),
    )


if __name__ == "__main__":
    tell("booted", release=os.uname().release)
    install()
    use()
    remove()
    tell("done")
