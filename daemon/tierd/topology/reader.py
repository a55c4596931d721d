# SPDX-License-Identifier: Apache-2.0
"""Reading the host's topology: from files to a `TierMap`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tierd.core.overrides import TopologyOverrides
from tierd.core.tiermap import TierMap
from tierd.topology.cxl import read_devices
from tierd.topology.figures import Evidence, build_nodes
from tierd.topology.hmat import read_access
from tierd.topology.kernel_tiers import differences, read_kernel_tiers
from tierd.topology.nodes import read_nodes
from tierd.topology.rank import rank_tiers
from tierd.topology.sysfs import SysTree

_MODEL_NAME: Final = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


def read(root: Path = Path("/"), overrides: TopologyOverrides | None = None) -> TierMap:
    """Read the memory topology of the host, or of a captured tree below `root`.

    Args:
        root: the folder that holds sys/ and proc/.
        overrides: what the operator says about tiers and nodes.

    Raises:
        UnavailableError: there is no readable sysfs and no /proc/meminfo below `root`.
        ConfigError: the overrides contradict themselves or name nodes that cannot be.
    """
    tree = SysTree(root)
    overrides = overrides or TopologyOverrides()
    overrides.check()
    raw = read_nodes(tree)
    overrides.check_nodes(raw.possible)
    devices = read_devices(tree)
    kernel_tiers, kernel_notes = read_kernel_tiers(tree)
    model = _MODEL_NAME.search(tree.text("proc/cpuinfo") or "")
    nodes, figure_notes = build_nodes(
        Evidence(
            memory=raw.memory,
            cpu_only=raw.cpu_only,
            access={number: read_access(tree, number) for number in raw.memory},
            devices=devices,
            kernel_tiers=kernel_tiers,
            cpu_model=model[1] if model else "",
            overrides=overrides.by_node(),
        )
    )
    tiers, rank_notes = rank_tiers(nodes, overrides.tiers)
    return TierMap(
        tiers=tiers,
        nodes=nodes,
        differences=differences(tiers, nodes),
        notes=(*raw.notes, *devices.notes, *kernel_notes, *figure_notes, *rank_notes),
    )
