# SPDX-License-Identifier: Apache-2.0
"""`Rooms`: the parts that the loop wires together, and `Makers`, which make them anew.

Owns: the list of parts.
Must not touch: which implementation fills which room (`tierd.service.build` says that).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tierd.access import AccessSource
from tierd.config import Config
from tierd.heat.table import HeatTable
from tierd.mover import Mover
from tierd.policy.inputs import NodeUsage, Policy
from tierd.service.companion import Companion
from tierd.service.loads import Loads
from tierd.service.selection import SourceSelector
from tierd.service.steering import Steering
from tierd.service.strain import CgroupStrain, Strain
from tierd.service.tracking import Tracking
from tierd.tiermap import TierMap
from tierd.topology import HotplugWatcher


@dataclass(frozen=True)
class Rooms:
    """The parts the loop wires together."""

    sources: SourceSelector
    tracking: Tracking
    heat: HeatTable
    policy: Policy
    mover: Mover
    read_tiers: Callable[[], TierMap]
    read_usage: Callable[[TierMap], Mapping[int, NodeUsage]]
    hotplug: HotplugWatcher
    companions: Sequence[Companion] = ()
    steering: Steering | None = None
    """The native path between ticks, and what answers changes of the hot set."""
    strain: Strain = field(default_factory=Strain)
    cgroup_strain: CgroupStrain = field(default_factory=CgroupStrain)
    loads: Loads | None = None
    """What memory serves; None where the policy does not ask."""


@dataclass(frozen=True)
class Makers:
    """How the parts are made that a reload replaces; each may raise a TierdError.

    `lacking` tells the capabilities that a configuration needs and the loop has not.
    """

    policy: Callable[[Config], Policy]
    sources: Callable[[Config], Sequence[AccessSource]]
    read_tiers: Callable[[Config], Callable[[], TierMap]]
    lacking: Callable[[Config], frozenset[str]]
    loads: Callable[[Config, HeatTable], Loads | None] = lambda config, heat: None
