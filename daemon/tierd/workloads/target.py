# SPDX-License-Identifier: Apache-2.0
"""What a watched process is to everybody else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A watched process.

    Attributes:
        number: what page keys carry, 0 to 65535.
        pid: process id, valid while `pidfd` is held.
        start_time: clock ticks since boot.
        pidfd: descriptor of the process, owned by the registry.
        comm: its name at the last refresh; chosen by the process, for people only.
        cgroup: its cgroup at the last refresh.
        uid: its effective user at the last refresh.
        rss_bytes: resident memory at the last refresh.
        rule: index of the first rule that matched it at the last refresh, -1 for none.
        activity: `Stat.activity` at the last refresh. While it stays the same, cgroup and
            uid are not read anew.
    """

    number: int
    pid: int
    start_time: int
    pidfd: int
    comm: str
    cgroup: str
    uid: int
    rss_bytes: int
    rule: int = -1
    activity: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetChanges:
    """What one refresh changed. A process that executed a program is in both."""

    started: tuple[Target, ...] = ()
    ended: tuple[Target, ...] = ()
