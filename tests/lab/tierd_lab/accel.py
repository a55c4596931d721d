# SPDX-License-Identifier: Apache-2.0
"""KVM or TCG: KVM is chosen only where a guest kernel really boots with it.

/dev/kvm may exist and not work (nested hosts, sandboxes), so the probe boots the
kernel itself until it misses a root file system, which is all of a kernel's start.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tierd.core.errors import ConfigError, UnavailableError
from tierd_lab.host import Kernel
from tierd_lab.process import QemuProcess
from tierd_lab.tail import Tail

PROBE_TIMEOUT_S: Final = 20.0
_DEVICE: Final = Path("/dev/kvm")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PROOF: Final = "VFS: Unable to mount root"
"""What a kernel without a root file system says at the end of its start (init/do_mounts.c)."""
_FAILURES: Final = ("KVM internal error", "KVM: entry failed", "kvm run failed")
"""What QEMU says of a guest that KVM cannot go on with (accel/kvm, target/i386/kvm); it stays then,
and does nothing more."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What runs the guest's instructions.

    Attributes:
        name: "kvm" or "tcg".
        reason: why this one.
    """

    name: str
    reason: str


def choose(
    wanted: str, qemu: Path, version: str, kernel: Kernel, *, needs_tcg: str = ""
) -> Accelerator:
    """The accelerator for a guest with `kernel`.

    Args:
        wanted: "auto", "kvm" or "tcg".
        needs_tcg: why the machine cannot do with KVM, or an empty text.

    Raises:
        ConfigError: `wanted` is something else, or KVM for a machine that cannot do with it.
        UnavailableError: "kvm" was asked for, and no guest boots with it.
    """
    if wanted not in ("auto", "kvm", "tcg"):
        raise ConfigError("--accel", f"{wanted!r} is not known", hint="auto, kvm or tcg")
    if needs_tcg and wanted == "kvm":
        raise ConfigError("--accel", f"this machine needs TCG: {needs_tcg}")
    if needs_tcg:
        return Accelerator("tcg", needs_tcg)
    if wanted == "tcg":
        return Accelerator("tcg", "asked for")
    problem = kvm_problem(qemu, version, kernel)
    if not problem:
        return Accelerator("kvm", "a guest boots with it")
    if wanted == "kvm":
        raise UnavailableError(f"KVM is not usable: {problem}", hint="--accel tcg works anywhere")
    return Accelerator("tcg", f"KVM is not usable: {problem}")


def kvm_problem(qemu: Path, version: str, kernel: Kernel) -> str:
    """Why no guest boots with KVM; empty if one does. Probes each kernel once per host boot."""
    if not _DEVICE.exists():
        return f"there is no {_DEVICE}"
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return f"{_DEVICE} may not be opened (is this user in the group kvm?)"
    boot = _BOOT_ID.read_text().strip()
    key = f"{version} {kernel.version}"
    known = _known(boot)
    if key not in known:
        known[key] = probe(qemu, kernel)
        # Another process may have probed another kernel meanwhile.
        known = _known(boot) | {key: known[key]}
        _keep({"boot": boot, "problems": known})
    return known[key]


def _known(boot: str) -> dict[str, str]:
    """QEMU's version and kernel → its problem, as far as they were probed since `boot`."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        kept = json.loads(_cache_file().read_text(encoding="utf-8"))
        if kept["boot"] == boot:
            return {str(key): str(problem) for key, problem in kept["problems"].items()}
    return {}


def _keep(told: dict[str, Any]) -> None:
    """Put it in the place of what is kept, at once: others read it at the same time."""
    cache = _cache_file()
    with contextlib.suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
            new = Path(folder) / cache.name
            new.write_text(json.dumps(told), encoding="utf-8")
            new.replace(cache)


def _cache_file() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(home) / "tierd" / "kvm.json"


def probe(qemu: Path, kernel: Kernel, timeout_s: float = PROBE_TIMEOUT_S) -> str:
    """Boot `kernel` with KVM until it has no root to mount; returns the problem, or ""."""
    console = Tail(65536)
    with QemuProcess() as process:
        process.start(
            [
                *(str(qemu), "-accel", "kvm", "-cpu", "host", "-smp", "2", "-m", "512M"),
                *("-nodefaults", "-display", "none", "-no-reboot", "-kernel", str(kernel.image)),
                *("-append", "console=ttyS0 earlyprintk=serial,ttyS0 panic=-1 loglevel=4"),
                *("-chardev", f"file,id=console,path=/proc/self/fd/{process.console_fd}"),
                *("-serial", "chardev:console"),
            ]
        )
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            for _, data in process.output(min(left, 0.2)):
                console.add(data)
            if _PROOF in console.text:
                return ""
            if failure := _failure(console.text):
                return f"a guest did not boot ({failure})"
            if process.status is not None:
                for _, data in process.last_words():
                    console.add(data)
                break
        text = console.text
    if _PROOF in text:
        return ""
    last = text.strip().splitlines()[-1:] or ["the guest said nothing"]
    if left <= 0:
        return f"a guest did not boot within {timeout_s:.0f} s ({last[0].strip()})"
    if failure := _failure(text):
        return f"a guest did not boot ({failure})"
    return f"a guest did not boot ({last[0].strip()})"


def _failure(text: str) -> str:
    """The first whole line of `text` that tells of a failure of KVM, or an empty text."""
    lines = (line.strip() for line in text.splitlines(keepends=True) if line.endswith("\n"))
    return next((line for line in lines if any(words in line for words in _FAILURES)), "")
