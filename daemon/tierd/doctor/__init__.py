# SPDX-License-Identifier: Apache-2.0
"""What tierd could do on this host, and what stands in its way.

A new probe is a function with the decorator `tierd.doctor.findings.probe` in a module
that this one imports.
"""

from pathlib import Path

from tierd.doctor import compression, moving, privileges, sources
from tierd.doctor.findings import Finding, Group, Host, Report, Status, all_probes, ask_all, judge

__all__ = ["Finding", "Group", "Host", "Report", "Status", "conflicting", "examine"]

MODULES = (sources, moving, compression, privileges)
"""Imported for their probes."""


def examine(root: Path = Path("/")) -> Report:
    """Ask everything about the running host, or about a captured tree below `root`."""
    return judge(ask_all(Host(root), all_probes()))


def conflicting(root: Path = Path("/")) -> list[Finding]:
    """Who else moves pages here, or uses what tierd uses."""
    probes = [one for one in all_probes() if one.group is Group.CONFLICTS]
    return [found for found in ask_all(Host(root), probes) if found.status is Status.CONFLICT]
