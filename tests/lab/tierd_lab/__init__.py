# SPDX-License-Identifier: Apache-2.0
"""Virtual tiered machines (virtme-ng and QEMU) for tests, demos and research."""

from __future__ import annotations

from tierd_lab.command import CommandResult, GuestProcess
from tierd_lab.compose import Share
from tierd_lab.guest import Guest
from tierd_lab.machine import Machine, machine_files
from tierd_lab.nodes import Node
from tierd_lab.session import GuestError, LabResult, run
from tierd_lab.shell import run_shell
from tierd_lab.traffic import Counts, Traffic, TrafficError

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
