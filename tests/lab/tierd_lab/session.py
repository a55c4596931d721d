# SPDX-License-Identifier: Apache-2.0
"""`run`: boot a machine, run one command in it, hand back what came of it."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tierd.core.errors import TierdError
from tierd_lab import accel as accelerators
from tierd_lab import files, host
from tierd_lab.compose import GUEST_PATH, SCRIPT, Boot, Share, compose
from tierd_lab.machine import Machine
from tierd_lab.process import QemuProcess
from tierd_lab.tail import Tail

START_MARK: Final = "tierd-lab: the command starts"
DEFAULT_TIMEOUT_S: Final = 600.0
_KEEP_BYTES: Final = 16 * 2**20
"""How much of stdout and of stderr a result keeps: the last."""
_CONSOLE_BYTES: Final = 256 * 2**10
_CONSOLE_LINES: Final = 20
_FATAL: Final = re.compile(r"Kernel panic|BUG: |Unable to mount root|Out of memory")
_LOOK_S: Final = 0.5
"""How often to look whether QEMU has ended without a word."""

Output = Callable[[str, bytes], None]
"""Called with a stream ("stdout", "stderr", "console") and what it said."""


class GuestError(TierdError):
    """The guest did not start, or ended without the command's exit status."""


@dataclass(frozen=True, slots=True)
class LabResult:
    """What came of one command in one guest.

    Attributes:
        machine: the machine's name.
        kernel: release of the kernel that was booted.
        accelerator: "kvm" or "tcg".
        accelerator_reason: why that one.
        qemu_version: such as "10.0.2".
        boot_s: host seconds from QEMU's start to the command's, None if it never started.
        duration_s: host seconds from QEMU's start to its end.
        exit_status: the command's; None when it timed out.
        timed_out: True if the guest was ended because the time was up.
        stdout, stderr: the last 16 MiB of each.
        console: the last 256 KiB of the guest's console.
    """

    machine: str
    kernel: str
    accelerator: str
    accelerator_reason: str
    qemu_version: str
    boot_s: float | None
    duration_s: float
    exit_status: int | None
    timed_out: bool
    stdout: bytes
    stderr: bytes
    console: str

    def as_dict(self) -> dict[str, object]:
        """The result without what the command said, for JSON."""
        return {
            "machine": self.machine,
            "kernel": self.kernel,
            "accelerator": self.accelerator,
            "accelerator_reason": self.accelerator_reason,
            "qemu_version": self.qemu_version,
            "boot_s": None if self.boot_s is None else round(self.boot_s, 3),
            "duration_s": round(self.duration_s, 3),
            "exit_status": self.exit_status,
            "timed_out": self.timed_out,
        }


def guest_script(
    command: str | Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    machine: str,
    shared: Sequence[Path] = (),
) -> str:
    """The shell script that the guest runs; `shared` are folders that it may write to.

    Raises:
        TierdError: a name in `env` that no shell accepts.
    """
    bin_folder = str(Path(sys.executable).absolute().parent)
    settings = {
        "PATH": f"{bin_folder}:{GUEST_PATH}",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "TIERD_LAB": machine,
        **env,
    }
    lines = ["#!/bin/bash", files.mount_script(files.folders(), shared)]
    for name, value in settings.items():
        if not name.isidentifier() or not name.isascii():
            raise TierdError(f"{name!r} is not the name of an environment variable")
        lines.append(f"export {name}={shlex.quote(value)}")
    lines += [f"cd {shlex.quote(cwd)} || exit 125", f"echo {shlex.quote(START_MARK)} >/dev/console"]
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    return "\n".join([*lines, f"exec {shlex.join(words)}"]) + "\n"


def run(
    machine: Machine | str,
    command: str | Sequence[str],
    *,
    kernel: str | Path | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
    share: Sequence[Share | Path | str] = (),
    cwd: str | Path | None = None,
    accel: str = "auto",
    on_line: Callable[[str], None] | None = None,
    on_output: Output | None = None,
    agent_fd: int | None = None,
    started: Callable[[QemuProcess], None] | None = None,
    folder: Path | None = None,
) -> LabResult:
    """Boot `machine`, run `command` as root, wait for its end.

    Args:
        machine: a machine or its name.
        command: a shell line, or the words of a command.
        kernel: release, start of a release or image; None: the newest installed.
        timeout_s: host seconds for everything, boot included; then the guest is ended.
        env: added to the command's small environment (PATH, HOME, LANG, TIERD_LAB).
        share: folders the guest may write to; the rest of the host it sees read-only,
            under a layer of its own that is gone afterwards.
        cwd: working folder; None: this process's.
        accel: "auto", "kvm" or "tcg".
        on_line: called with each line of stdout as it comes, without its end.
        on_output: called with each piece of "stdout", "stderr" and "console" as it comes.
        agent_fd: a connected socket for the guest's agent port (see `Guest`).
        started: called once, after QEMU's start, from the calling thread.
        folder: an empty folder for the run's files, kept for its caller (a watched machine's
            `tierd_lab.Traffic` needs it); None: one of its own that goes with the run.

    Raises:
        ConfigError: a mistake in the machine's file or in `share`.
        UnavailableError: the host lacks something.
        GuestError: the guest did not boot, or died under the command.
    """
    machine = machine if isinstance(machine, Machine) else Machine.load(machine)
    chosen = host.find_kernel(kernel)
    qemu = host.find_qemu()
    version = host.qemu_version(qemu)
    accelerator = accelerators.choose(accel, qemu, version, chosen, needs_tcg=machine.needs_tcg)
    shares = [item if isinstance(item, Share) else Share.parse(str(item)) for item in share]
    own = nullcontext(str(folder)) if folder else TemporaryDirectory(prefix="tierd-lab-")
    with own as place, QemuProcess() as process:
        boot = Boot(
            machine,
            chosen,
            accelerator.name,
            Path(place),
            shares,
            agent_fd=agent_fd,
            console_fd=process.console_fd,
        )
        script = guest_script(
            command,
            env=env or {},
            cwd=str(cwd or Path.cwd()),
            machine=machine.name,
            shared=[each.guest for each in shares],
        )
        (boot.folder / SCRIPT).write_text(script, encoding="utf-8")
        watch = _Watch(on_line, on_output)
        command_line = compose(boot)
        begin = time.monotonic()
        process.start(command_line, pass_fds=() if agent_fd is None else (agent_fd,))
        if started:
            started(process)
        timed_out = watch.follow(process, begin + timeout_s)
        qemu_status = process.status
        process.kill()
        for stream, data in process.last_words():
            watch.take(stream, data)
        watch.finish()
        status = None if timed_out else _exit_status(boot.result_file)
        if status is None and not timed_out:
            raise _death(machine, chosen, watch, qemu_status)
        return LabResult(
            machine=machine.name,
            kernel=chosen.version,
            accelerator=accelerator.name,
            accelerator_reason=accelerator.reason,
            qemu_version=version,
            boot_s=None if watch.start is None else watch.start - begin,
            duration_s=time.monotonic() - begin,
            exit_status=status,
            timed_out=timed_out,
            stdout=watch.tails["stdout"].data,
            stderr=watch.tails["stderr"].data,
            console=watch.tails["console"].text,
        )


class _Watch:
    """Takes what the streams say: keeps the last of it, calls back, finds the mark."""

    def __init__(self, on_line: Callable[[str], None] | None, on_output: Output | None) -> None:
        self.tails = {
            "stdout": Tail(_KEEP_BYTES),
            "stderr": Tail(_KEEP_BYTES),
            "console": Tail(_CONSOLE_BYTES),
        }
        self.start: float | None = None
        self._on_line = on_line
        self._on_output = on_output
        self._partial = b""

    def follow(self, process: QemuProcess, deadline: float) -> bool:
        """Take output until QEMU ends (False) or the deadline passes (True)."""
        while process.status is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            for stream, data in process.output(min(left, _LOOK_S)):
                self.take(stream, data)
        return False

    def take(self, stream: str, data: bytes) -> None:
        tail = self.tails[stream]
        tail.add(data)
        if stream == "console" and self.start is None and START_MARK in tail.text:
            self.start = time.monotonic()
        if self._on_output:
            self._on_output(stream, data)
        if self._on_line and stream == "stdout":
            *lines, self._partial = (self._partial + data).split(b"\n")
            for line in lines:
                self._on_line(line.decode("utf-8", "replace"))

    def finish(self) -> None:
        """Hand on a last line that has no end."""
        if self._on_line and self._partial:
            self._on_line(self._partial.decode("utf-8", "replace"))
        self._partial = b""


def _exit_status(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _death(machine: Machine, kernel: host.Kernel, watch: _Watch, status: int | None) -> GuestError:
    """Why there is no exit status: QEMU refused, the boot failed, or the guest died."""
    said = watch.tails["stderr"].text.strip().splitlines()
    console = watch.tails["console"].text.strip().splitlines()
    if status and watch.start is None:
        told = [line for line in said if line.startswith("qemu-system")]
        words = told[-1] if told else (said or console or ["it said nothing"])[-1]
        return GuestError(f"QEMU ended with status {status} before the command started: {words}")
    stage = "while it booted" if watch.start is None else "before the command ended"
    # A stack trace would push the reason out of a plain tail.
    fatal = [i for i, line in enumerate(console) if _FATAL.search(line)]
    begin_line = fatal[-1] if fatal else max(0, len(console) - _CONSOLE_LINES)
    last = "\n    ".join(console[begin_line:][:_CONSOLE_LINES]) or "(nothing)"
    return GuestError(
        f"the guest {machine.name} (kernel {kernel.version}) died {stage}; "
        f"the end of its console:\n    {last}"
    )
