# SPDX-License-Identifier: Apache-2.0
"""The command line that boots a machine, composed by virtme-ng.

virtme-ng chooses the devices, the kernel arguments and the initramfs with which a
stock kernel boots on the host's own root file system; its `virtme-run` is asked to
write the initramfs and to print QEMU's command instead of running it. tierd runs
that command itself, so that QEMU is its own child and ends when tierd ends.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.core.errors import ConfigError, TierdError
from tierd_lab import files, host, initramfs
from tierd_lab.machine import Machine
from tierd_lab.plugin import is_watched, make_window, plugin_options
from tierd_lab.qemu import memory_argument, qemu_options

GUEST_FOLDER: Final = "/run/tierd-lab"
"""Where the guest sees the folder of the run."""
SCRIPT: Final = "script"
"""File in that folder which the guest runs."""
GUEST_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
AGENT_PORT: Final = "tierd.agent"
"""Name of the virtio port through which `Guest` speaks with its agent."""
_GUEST_BIN: Final = Path(__file__).resolve().parent / "guestbin"
_OVERLAYS: Final = ("/etc", "/lib", "/home", "/opt", "/root", "/srv", "/usr", "/var", "/tmp")
_KERNEL_ARGS: Final = (
    *("loglevel=4", "nokaslr", "mitigations=off", "audit=0", "apparmor=0"),
    "cryptomgr.notests",
)
_SAFE_PATH: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+/.- "
)


@dataclass(frozen=True, slots=True)
class Share:
    """A host folder that the guest may write to, at the same path or another."""

    host: Path
    guest: Path

    @classmethod
    def parse(cls, text: str) -> Share:
        """`DIR`, or `GUESTDIR=DIR`.

        Raises:
            ConfigError: no such folder, or a character that cannot be passed on.
        """
        guest, equals, own = text.partition("=")
        path = Path(own if equals else guest).resolve()
        if not path.is_dir():
            raise ConfigError("--share", f"{path} is not a folder")
        share = cls(path, Path(guest) if equals else path)
        if not share.guest.is_absolute() or share.guest == Path("/"):
            raise ConfigError("--share", f"{share.guest} is not an absolute path below /")
        for side in (share.host, share.guest):
            if not set(str(side)) <= _SAFE_PATH:
                raise ConfigError("--share", f"{side} has characters that cannot be passed on")
        return share


@dataclass(frozen=True, slots=True)
class Boot:
    """Everything that decides a command line.

    Attributes:
        machine: what is booted.
        kernel: with which kernel.
        accelerator: "kvm" or "tcg".
        folder: the run's own folder on the host; holds the script.
        shares: folders the guest may write to.
        interactive: True to join the guest's console to the terminal.
        agent_fd: descriptor of a connected socket for the agent's port, or None.
        console_fd: descriptor the console is written to.
    """

    machine: Machine
    kernel: host.Kernel
    accelerator: str
    folder: Path
    shares: Sequence[Share] = ()
    interactive: bool = False
    agent_fd: int | None = None
    console_fd: int | None = None

    @property
    def result_file(self) -> Path:
        """Where the script's exit status arrives."""
        return self.folder / "status"


def virtme_arguments(boot: Boot) -> list[str]:
    """Arguments of `virtme-run` for `boot`."""
    machine = boot.machine
    arguments = ["--kimg", str(boot.kernel.image), "--mods", "auto", "--root", "/", "--force-9p"]
    arguments += ["--disable-kvm", "--dry-run", "--show-command", "--disable-monitor"]
    # A kernel that has what it needs of the root built in would boot without one.
    arguments += ["--force-initramfs", "--save-initramfs", str(boot.folder / "initramfs")]
    arguments += ["--name", "tierd-lab", "--cpus", str(machine.cpu_count)]
    arguments += ["--memory", memory_argument(machine)]
    for folder in _OVERLAYS:
        if Path(folder).is_dir():
            arguments += ["--overlay-rwdir", folder]
    arguments += ["--rodir", f"{GUEST_FOLDER.lstrip('/')}={boot.folder}"]
    for share in boot.shares:
        arguments += ["--rwdir", f"{str(share.guest).lstrip('/')}={share.host}"]
    arguments += ["--script-sh", f"exec bash {GUEST_FOLDER}/{SCRIPT}"]
    kernel_args = [*_KERNEL_ARGS, *machine.kernel_args]
    if not machine.coldplug:
        kernel_args.append(f"PATH={_GUEST_BIN}:{GUEST_PATH}")
    for argument in kernel_args:
        arguments += ["--kopt", argument]
    return arguments


def compose(boot: Boot) -> list[str]:
    """QEMU's command line for `boot`; the initramfs lies in its folder afterwards.

    Raises:
        UnavailableError: QEMU, virtme-ng or busybox is missing.
        TierdError: virtme-ng refused, or prints something else than expected.
    """
    if is_watched(boot.machine):
        make_window(boot.folder)
    virtme_run = host.find_virtme_run()
    host.find_program("busybox", "busybox-static")
    own = f"{os.environ.get('PATH', '')}:{GUEST_PATH}"
    done = subprocess.run(
        [virtme_run, *virtme_arguments(boot)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": own, "LC_ALL": "C.UTF-8"},
    )
    lines = [line for line in done.stdout.splitlines() if " -kernel " in line]
    if done.returncode or len(lines) != 1:
        told = (done.stderr or done.stdout).strip().splitlines()
        raise TierdError(
            f"virtme-run composed no command (status {done.returncode}): "
            f"{told[-1] if told else 'it said nothing'}",
            hint=f"is virtme-ng whole, and busybox static? {host.SETUP_HINT}",
        )
    archive = boot.folder / "initramfs"
    with archive.open("ab") as file:
        file.write(initramfs.root_cache_archive(archive.stat().st_size))
    # The machine's own devices last: one that brings a bus would have later ones put on it.
    return finish([*shlex.split(lines[0]), *files.options(files.disk())], boot)


def finish(composed: list[str], boot: Boot) -> list[str]:
    """virtme-ng's command with tierd's character devices and the machine's options.

    Raises:
        TierdError: a device that must be replaced is not there.
    """
    console = (
        "stdio,id=console,signal=off"
        if boot.interactive
        else f"file,id=console,path=/proc/self/fd/{boot.console_fd}"
    )
    replaced = {
        "console": console,
        "stdin": "null,id=stdin",
        "ret": f"file,id=ret,path={boot.result_file}",
    }
    command = list(composed)
    for position, option in enumerate(composed[:-1]):
        if option == "-chardev":
            fields = composed[position + 1].split(",")
            name = next((field[3:] for field in fields if field.startswith("id=")), "")
            if name in replaced:
                command[position + 1] = replaced.pop(name)
    if replaced:
        raise TierdError(
            f"this virtme-ng makes no character device {', '.join(sorted(replaced))}",
            hint="tierd was tried with virtme-ng 1.42: pip install 'virtme-ng==1.42'",
        )
    if boot.accelerator == "kvm":
        command += ["-accel", "kvm", "-cpu", "host"]
    else:
        counted = boot.machine.icount is not None
        thread = "single" if counted else "multi"
        command += ["-accel", f"tcg,thread={thread}", "-cpu", boot.machine.cpu]
        if counted:
            command += ["-icount", f"shift={boot.machine.icount},sleep=off"]
    if boot.agent_fd is not None:
        command += ["-chardev", f"socket,id=agent,fd={boot.agent_fd}"]
        command += ["-device", "virtio-serial-pci"]
        command += ["-device", f"virtserialport,name={AGENT_PORT},chardev=agent"]
    return command + qemu_options(boot.machine) + plugin_options(boot.machine, boot.folder)
