# SPDX-License-Identifier: Apache-2.0
"""A machine that nothing outside touches, so that two runs of it are the same run.

QEMU's instruction counting makes a guest with one CPU a function of what it is given, and of
when. Here nothing is given after the start: files come in the archive (`image`), the cell in
memory (guest/parcel.py); there is no disk, no network and no port that the host writes to. What
it prints goes to plain files, which take everything at once. The clock begins at a fixed date, and
random numbers come of a seed. The two places of QEMU in which the host's time would still reach the
guest are closed by fpga/sim/plugin/steady.c.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from parcel import WINDOW_BYTES

from tierd.core.errors import TierdError
from tierd_lab import Machine
from tierd_lab.host import Kernel, find_qemu
from tierd_lab.plugin import make_window, plugin_options, plugin_path
from tierd_lab.process import QemuProcess
from tierd_lab.qemu import memory_argument, qemu_options

ROOT = Path(__file__).resolve().parents[3]
EPOCH: Final = "2026-01-01T00:00:00"
"""What the machine's calendar says when it starts."""
KERNEL_ARGS: Final = (
    *("console=ttyS0,115200", "loglevel=4", "panic=-1", "rdinit=/init"),
    *("nokaslr", "mitigations=off", "audit=0", "apparmor=0", "random.trust_cpu=on"),
)
TRANSLATIONS_MIB: Final = 512
"""QEMU's room for translated code; its own choice depends on the host's memory."""
CONSOLE, EVENTS = "console", "events"
"""Files in the machine's folder."""
_LOOK_S: Final = 0.2
_TAIL: Final = 1500


class SealedError(TierdError):
    """The machine ended without the event that was waited for."""


def command(
    machine: Machine, kernel: Kernel, image: Path, folder: Path, seed: int, *, profile: bool = False
) -> list[str]:
    """QEMU's command line.

    Raises:
        ValueError: a machine whose clock does not count instructions.
        UnavailableError: QEMU or the plugin is missing.
    """
    if machine.icount is None:
        raise ValueError(f"the clock of {machine.name} does not count instructions")
    words = [str(find_qemu()), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    words += ["-machine", "q35", "-cpu", machine.cpu, "-smp", "1", "-m", memory_argument(machine)]
    words += ["-accel", f"tcg,thread=single,tb-size={TRANSLATIONS_MIB}"]
    words += ["-icount", f"shift={machine.icount},sleep=off"]
    words += ["-seed", str(seed), "-rtc", f"base={EPOCH},clock=vm"]
    for name in (CONSOLE, EVENTS):
        path = str(folder / name).replace(",", ",,")
        words += ["-chardev", f"file,id={name},path={path}", "-serial", f"chardev:{name}"]
    told = [f"tierd.root={ROOT}", f"tierd.python={sys.executable}"]
    words += ["-kernel", str(kernel.image), "-initrd", str(image)]
    words += ["-append", " ".join([*KERNEL_ARGS, *machine.kernel_args, *told])]
    watched = plugin_options(machine, folder, WINDOW_BYTES, profile=profile)
    return words + qemu_options(machine) + watched


class Sealed:
    """One life of such a machine. Use as a context manager; leaving it ends QEMU.

    Args:
        folder: an empty one; the window is in it from the start (`tierd_lab.plugin.WINDOW`).
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine, self._folder = machine, folder
        self._process = QemuProcess()
        self._seen = 0
        make_window(folder, WINDOW_BYTES)

    def __enter__(self) -> Sealed:
        self._process.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__()

    def start(
        self,
        kernel: Kernel,
        image: Path,
        seed: int,
        *,
        profile: bool = False,
        preloads: Sequence[Path] = (),
    ) -> None:
        """Start it, with what is in its folder by now; `preloads` are loaded before QEMU."""
        words = command(self._machine, kernel, image, self._folder, seed, profile=profile)
        loaded = [plugin_path().with_name("libtierd-lab-steady.so"), *preloads]
        self._process.start(["env", f"LD_PRELOAD={':'.join(map(str, loaded))}", *words])

    def follow(self, take: Callable[[dict[str, Any]], bool], deadline: float) -> None:
        """Hand on its events as they come, until `take` is content with one.

        Args:
            deadline: of the host's monotonic clock.

        Raises:
            SealedError: it ended before, or the time is up.
        """
        while True:
            ended = self._process.status is not None
            if any(take(event) for event in self._events()):
                return
            if ended or time.monotonic() > deadline:
                why = "ended" if ended else "has not ended in time"
                raise SealedError(f"the machine {why}; it said last:\n{self.last_words()}")
            time.sleep(_LOOK_S)

    def _events(self) -> list[dict[str, Any]]:
        """Whole lines that came since the last time."""
        try:
            text = (self._folder / EVENTS).read_bytes()
        except FileNotFoundError:
            return []
        end = text.rfind(b"\n") + 1
        lines = text[self._seen : end].splitlines()
        self._seen = max(self._seen, end)
        return [json.loads(line) for line in lines if line.startswith(b"{")]

    def last_words(self) -> str:
        """The end of its console, and of what QEMU itself said."""
        console = self._folder / CONSOLE
        text = console.read_text(errors="replace") if os.path.lexists(console) else ""
        said = b"".join(data for _, data in self._process.last_words()).decode(errors="replace")
        return f"{text[-_TAIL:]}{said[-_TAIL:]}"
