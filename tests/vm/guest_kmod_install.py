# SPDX-License-Identifier: Apache-2.0
"""What an installation adds to the module, in a lab guest: the udev rule, modprobe's rule."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
from guest_kmod import Result

from tierd.core.errors import UnavailableError
from tierd.sources.kmod.ring import Ring

DEVICE = Path("/dev/tierd")
RULE = lab.ROOT / "systemd/99-tierd.rules"
MODPROBE = lab.ROOT / "kmod/modprobe-tierd.conf"
UDEVADM = "/usr/bin/udevadm"
"""Not the one that the lab's quick boot puts first."""


def udev() -> Result:
    """With the rule udev gives the device to root alone and tells systemd of it."""
    rules = Path("/run/udev/rules.d")
    rules.mkdir(parents=True, exist_ok=True)
    shutil.copy(RULE, rules)
    subprocess.run([UDEVADM, "control", "--reload"], check=True, timeout=120)
    with lab.module():
        # What the rule has to undo.
        DEVICE.chmod(0o666)
        os.chown(DEVICE, 1, 1)
        subprocess.run(
            [UDEVADM, "trigger", "--action=add", "/sys/class/misc/tierd"], check=True, timeout=120
        )
        subprocess.run([UDEVADM, "settle", "--timeout=120"], check=True)
        state = DEVICE.stat()
        told = subprocess.run(
            [UDEVADM, "info", "--query=property", str(DEVICE)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
    (rules / RULE.name).unlink()
    tags = next((line for line in told if line.startswith("TAGS=")), "")
    mode = (oct(state.st_mode & 0o777), state.st_uid, state.st_gid)
    return {
        "ok": mode == ("0o600", 0, 0) and ":systemd:" in tags,
        "mode_uid_gid": mode,
        "tags": tags,
    }


def reader() -> None:
    """A daemon's part: has the ring open until the module asks it to close, and looks late."""
    ring = Ring.open()
    print("open", flush=True)
    while not ring.closing:
        time.sleep(3)
    ring.close()


def modprobe() -> Result:
    """`modprobe -r` with the rule asks the reader to let go, waits for it, and removes."""
    with installed():
        return modprobe_removes()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """The module where modprobe finds it: a folder of its own over the kernel's (depmod is
    slow there), and the rule."""
    release = os.uname().release
    folder, over = Path("/tmp/modules"), Path("/lib/modules") / release
    folder.mkdir(exist_ok=True)
    shutil.copy(lab.module_file(), folder / "tierd.ko")
    rule = Path("/etc/modprobe.d/tierd.conf")
    shutil.copy(MODPROBE, rule)
    subprocess.run(["mount", "--bind", str(folder), str(over)], check=True)
    try:
        subprocess.run(["depmod", release], check=True, capture_output=True, timeout=300)
        yield
    finally:
        if lab.loaded():
            lab.unload()
        subprocess.run(["umount", str(over)], check=True)
        rule.unlink()


def modprobe_removes() -> Result:
    """The check, with the module installed."""
    subprocess.run(["modprobe", "tierd"], check=True)
    command = [sys.executable, __file__, "reader"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            refused = not lab.try_unload()
            removal = subprocess.run(
                ["modprobe", "-r", "tierd"], capture_output=True, text=True, check=False
            )
            gone = not lab.loaded()
            status = process.wait(timeout=120)
        finally:
            process.kill()
    # Nobody has it open, and it is not there: both are quick and quiet.
    subprocess.run(["modprobe", "tierd"], check=True)
    again = subprocess.run(["modprobe", "-r", "tierd"], check=False).returncode
    absent = subprocess.run(["modprobe", "-r", "tierd"], check=False).returncode
    try:
        Ring.open().close()
        opened = True
    except UnavailableError:
        opened = False
    return {
        "ok": refused
        and removal.returncode == 0
        and gone
        and status == 0
        and again == absent == 0
        and not lab.loaded()
        and not opened,
        "rmmod_refused": refused,
        "modprobe": [removal.returncode, removal.stderr[-300:], again, absent],
        "gone": gone,
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["reader"]:
        reader()
    else:
        sys.exit(lab.main({"udev": udev, "modprobe": modprobe}))
