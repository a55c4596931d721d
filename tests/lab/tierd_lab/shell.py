# SPDX-License-Identifier: Apache-2.0
"""`run_shell`: a guest whose console is this terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from tierd.core.errors import UnavailableError
from tierd_lab import accel as accelerators
from tierd_lab import host
from tierd_lab.compose import SCRIPT, Boot, Share, compose
from tierd_lab.machine import Machine
from tierd_lab.session import guest_script

_INTERACTIVE = "stty rows {rows} cols {columns} sane; exec setsid -c -w bash --norc -i"


def run_shell(
    machine: Machine,
    *,
    kernel: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    share: Sequence[Share] = (),
    cwd: str | None = None,
    accel: str = "auto",
) -> int:
    """Boot `machine` with a shell on this terminal; returns the shell's exit status.

    Raises:
        UnavailableError: no terminal, or the host lacks something.
        ConfigError: a mistake in the machine's file.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UnavailableError(
            "a shell needs a terminal", hint="tierd-lab run -- COMMAND works without one"
        )
    chosen = host.find_kernel(kernel)
    qemu = host.find_qemu()
    accelerator = accelerators.choose(
        accel, qemu, host.qemu_version(qemu), chosen, needs_tcg=machine.needs_tcg
    )
    setpriv = host.find_program("setpriv", "util-linux")
    size = shutil.get_terminal_size()
    shell = _INTERACTIVE.format(rows=size.lines, columns=size.columns)
    settings = {
        "TERM": os.environ.get("TERM", "linux"),
        "PS1": f"{machine.name}:\\w# ",
        **(env or {}),
    }
    with tempfile.TemporaryDirectory(prefix="tierd-lab-") as folder:
        boot = Boot(machine, chosen, accelerator.name, Path(folder), share, interactive=True)
        script = guest_script(
            f"exec </dev/ttyS0 >/dev/ttyS0 2>&1; {shell}",
            env=settings,
            cwd=cwd or str(Path.cwd()),
            machine=machine.name,
            shared=[each.guest for each in share],
        )
        (boot.folder / SCRIPT).write_text(script, encoding="utf-8")
        print(
            f"booting {machine.name} with {accelerator.name} ({accelerator.reason}); "
            "Ctrl-D ends it",
            file=sys.stderr,
        )
        command = compose(boot)
        saved = termios.tcgetattr(0)
        process = subprocess.Popen([setpriv, "--pdeathsig", "KILL", "--", *command])
        try:
            process.wait()
        finally:
            process.kill()
            process.wait()
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
        text = boot.result_file.read_text() if boot.result_file.exists() else ""
        return int(text) if text.strip().isdecimal() else 255
