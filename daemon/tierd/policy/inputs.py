# SPDX-License-Identifier: Apache-2.0
"""`Inputs`, all that a policy gets in a tick, and `Policy`, the interface of policies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tierd.core.migration import MigrationPlan, MigrationResult
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.hotness.view import HeatView, PageSet
from tierd.policy.limits import Budget, Groups
from tierd.policy.rule import Verdict
from tierd.policy.traffic import Traffic

if TYPE_CHECKING:
    from tierd.policy.cost import CostPolicyState


@dataclass(frozen=True, slots=True)
class Inputs:
    """One tick's whole input; the same inputs give the same plan, bit for bit."""

    heat: HeatView
    tiers: TierMap
    usage: Mapping[int, NodeUsage]
    budget: Budget
    last: MigrationResult | None = None
    groups: Groups | None = None
    """Groups of targets with limits of their own; None where there are none."""
    traffic: Traffic | None = None
    """The bandwidth of nodes; None where it is not measured."""
    exchanged: frozenset[int] = frozenset()
    """Nodes whose hot 4 KiB pages the fast path exchanges for cold ones."""


class Policy(Protocol):
    """A pure decision, without I/O or clock; the base class of policies, with defaults."""

    name: str

    @property
    def low_watermark(self) -> float:
        """The fraction below which a node is short of memory; 0 for the kernel's reserve."""
        return 0.0

    @property
    def busy(self) -> bool:
        """Whether it measures the effect of a change, so that the next tick must not wait."""
        return False

    @property
    def holds(self) -> bool:
        """Whether the fast path shall promote nothing."""
        return False

    @property
    def state(self) -> CostPolicyState | None:
        """The state of the cost policy; None for others, and before the first decision."""
        return None

    @abstractmethod
    def decide(self, inputs: Inputs) -> MigrationPlan:
        """The moves to make now."""
        ...

    def explain(self, inputs: Inputs, page: PageSet) -> Verdict | str:
        """The decision about one page, or a sentence about it; "" if there is none."""
        ...
