# SPDX-License-Identifier: Apache-2.0
"""What a policy is given each tick, beside the heat view and the tier map."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.core.nodes import NodeUsage
from tierd.core.tiermap import TierMap
from tierd.hotness.view import HeatView, PageSet
from tierd.policy.group_limits import Groups
from tierd.policy.traffic import Traffic
from tierd.policy.verdict import Verdict

if TYPE_CHECKING:
    from tierd.policy.cost import CostPolicyState


@dataclass(frozen=True, slots=True)
class Pressure:
    """Signs that moving pages does harm, each a share from 0 to 1; 0 where nobody tells.

    Attributes:
        memory: of the last 10 s in which some task waited for memory (PSI "some").
        cpu: ... for a CPU.
        bounced: of the pages moved lately, those that had moved within a minute before.
    """

    memory: float = 0.0
    cpu: float = 0.0
    ping_pong: float = 0.0


@dataclass(frozen=True, slots=True)
class Budget:
    """What the next plan may spend.

    Attributes:
        move_bytes: bytes that may change node, both directions together.
    """

    move_bytes: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """One tick's whole input; the same inputs give the same plan, bit for bit."""

    heat: HeatView
    tiers: TierMap
    usage: Mapping[int, NodeUsage]
    budget: Budget
    last: MigrationResult | None = None
    groups: Groups | None = None
    """Groups of targets with shares of their own; None where there are none."""
    traffic: Traffic | None = None
    """What memory serves now; None where nobody looked."""
    exchanged: frozenset[int] = frozenset()
    """Nodes whose hot 4 KiB pages change places with cold ones between decisions already."""


class Policy(Protocol):
    """A pure decision; a policy names this class as its base, and has these defaults then."""

    name: str

    @property
    def low_watermark(self) -> float:
        """The share of a node below which it is short of memory; 0: the kernel's reserve is."""
        return 0.0

    @property
    def busy(self) -> bool:
        """Whether it measures what a change did, so that the next decision must not wait."""
        return False

    @property
    def holds(self) -> bool:
        """Whether nothing shall be promoted between two decisions."""
        return False

    @property
    def state(self) -> CostPolicyState | None:
        """What a policy that reckons with costs knows; None for others, and at first."""
        return None

    @abstractmethod
    def decide(self, inputs: Inputs) -> MigrationPlan:
        """The moves to make now."""
        ...

    def explain(self, inputs: Inputs, page: PageSet) -> Verdict | str:
        """What `decide` does with one page, or a sentence about it; "" if it cannot tell."""
        ...
