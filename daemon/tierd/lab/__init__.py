# SPDX-License-Identifier: Apache-2.0
"""Virtual tiered machines (virtme-ng and QEMU) for tests, demos and research.

Owns: machine files, booting them, running commands in them.
Must not touch: the memory or the settings of the host; everything happens in guests.
"""

from __future__ import annotations

from tierd.lab.command import CommandResult, GuestProcess
from tierd.lab.compose import Share
from tierd.lab.guest import Guest
from tierd.lab.machine import Machine, machine_files
from tierd.lab.nodes import Node
from tierd.lab.session import GuestError, LabResult, run
from tierd.lab.shell import run_shell
from tierd.lab.traffic import Counts, Traffic, TrafficError

__all__ = [
    "CommandResult",
    "Counts",
    "Guest",
    "GuestError",
    "GuestProcess",
    "LabResult",
    "Machine",
    "Node",
    "Share",
    "Traffic",
    "TrafficError",
    "machine_files",
    "run",
    "run_shell",
]
