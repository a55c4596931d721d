# SPDX-License-Identifier: Apache-2.0
"""Why a page was moved, or was not: `tierd explain`.

Moves are told from the record. A page that was left alone is told by asking the policy's
own rule again, on what is known now: that costs nothing until somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from tierd.core.nodes import NodeUsage
from tierd.core.pagekey import PAGE_SHIFT, VPN_BITS, VPN_MASK
from tierd.core.tiermap import TierMap
from tierd.hotness.view import PageSet
from tierd.observe.decisions import WORDS, DecisionLog, Reason, counts_of, entry_of
from tierd.policy.watermark import WatermarkSettings

__all__ = ["WORDS", "DecisionLog", "Explainer", "Reason"]


class Lookup(Protocol):
    """What is asked of the heat table."""

    def lookup(self, key: int) -> PageSet:
        """What is known of the folio whose first page is `key`; empty if nothing."""
        ...

    def coldest(self, node: int, n: int) -> PageSet:
        """At most `n` folios on `node`, coldest first."""
        ...


class ServiceView(Protocol):
    """What an explanation needs of the service; `tierd.engine.service_view` has it."""

    @property
    def pids(self) -> Mapping[int, int]:
        """Target number → pid."""
        ...

    @property
    def tiers(self) -> TierMap:
        """The tiers now."""
        ...

    @property
    def usage(self) -> Mapping[int, NodeUsage]:
        """How full the nodes were at the last tick."""
        ...

    def movable(self, key: int) -> bool:
        """Whether the page is in a range that may be moved."""
        ...

    def thresholds(self) -> Mapping[str, int]:
        """Counts that make a page hot, by card; empty without cards."""
        ...


class Explainer:
    """Answers why a page is where it is. To be called in the loop's thread (`LoopExecutor.post`).

    Args:
        heat: the heat table.
        log: the decisions.
        around: the service's state.
        settings: the policy's.
    """

    def __init__(
        self, heat: Lookup, log: DecisionLog, around: ServiceView, settings: WatermarkSettings
    ) -> None:
        self._heat = heat
        self._log = log
        self._around = around
        self._settings = settings
        self.judge: Callable[[PageSet], str] | None = None
        """What the policy in use says of a page, where it is not the watermark policy."""

    def explain(self, pid: int, vaddr: int | None) -> dict[str, Any]:
        """Why a page is where it is, or what was decided about a process.

        Args:
            pid: a process.
            vaddr: an address in it, or None for the whole process.

        Returns:
            JSON types only. `watched`: whether the process is a target (if not, `why`
            says what that means and nothing else is there). For an address: `page` (its
            number), `node`, `heat`, `order`, `moved_s_ago` (null: never, or unknown),
            `verdict` (one sentence), and `decisions`, newest first, each with `time_ns`
            (CLOCK_MONOTONIC), `what` ("promoted", "demoted", "held back", "promotion
            failed", "demotion failed"), `why`, `heat`, `bar`, `fate`, `node`.
            For a process: `decisions`, counts by what and why. `thresholds`: by card.
        """
        target = next((n for n, p in self._around.pids.items() if p == pid), None)
        told: dict[str, Any] = {"pid": pid, "watched": target is not None}
        if target is None:
            told["why"] = (
                "the process is not watched: it matches targets.deny, does not match "
                "targets.match, has less memory than targets.min_rss, or has ended"
            )
            return told
        told["thresholds"] = dict(self._around.thresholds())
        if vaddr is None:
            return told | {"decisions": counts_of(self._log.of_target(target))}
        vpn = (vaddr >> PAGE_SHIFT) & VPN_MASK
        return told | {"address": hex(vaddr), "page": vpn} | self._page(target << VPN_BITS | vpn)

    def _page(self, key: int) -> dict[str, Any]:
        found = self._heat.lookup(key)
        if not len(found):
            head = self._heat.lookup(key & ~0x1FF)
            found = head if len(head) and head.order[0] else found
        entries = self._log.of_page(key)
        told: dict[str, Any] = {"node": None, "heat": 0.0, "order": 0, "moved_s_ago": None}
        if len(found):
            idle = float(found.idle_s[0])
            told = {
                "node": int(found.node[0]) if found.node[0] >= 0 else None,
                "heat": round(float(found.heat[0]), 3),
                "order": int(found.order[0]),
                "moved_s_ago": round(idle, 3) if np.isfinite(idle) else None,
            }
        told["verdict"] = self._verdict(key, found)
        told["decisions"] = [entry_of(entry) for entry in entries]
        return told

    def _verdict(self, key: int, page: PageSet) -> str:
        """What the rules say of the page now, in their order."""
        if not self._around.movable(key):
            return "it stays: " + WORDS[Reason.NOT_MOVABLE]
        if not len(page):
            return "it stays: no access to it was seen, and no walk has met it yet"
        if page.node[0] < 0:
            return "it stays: the kernel has not yet told which node it is on"
        idle = float(page.idle_s[0])
        if idle < self._settings.min_residency_s:
            return (
                f"it stays: moved {idle:.1f} s ago, and a moved page stays for "
                f"{self._settings.min_residency_s:g} s (policy.migration_cooldown)"
            )
        return (self.judge(page) if self.judge is not None else "") or self._by_heat(page)

    def _by_heat(self, page: PageSet) -> str:
        tiers, node, heat = self._around.tiers, int(page.node[0]), float(page.heat[0])
        try:
            tier = tiers.tier_of(node)
        except KeyError:
            return f"it stays: node {node} is in no tier"
        above = tiers.promotion_tier(tier.rank)
        if above is None:
            return self._on_fast(node, heat)
        least = self._settings.confidence**2
        if heat <= least:
            return (
                f"it stays: its heat, {heat:.2f} accesses, is not above {least:.2f} "
                "(policy.confidence_sigmas squared), the least that is worth a move"
            )
        cold = [self._heat.coldest(each, 1) for each in above.nodes]
        victims = [float(each.heat[0]) for each in cold if len(each)]
        victim = min(victims, default=0.0)
        bar = self.bar(heat, victim)
        if heat > bar:
            return (
                f"it will be promoted to {above.name} when room and budget allow: its heat "
                f"{heat:.2f} is above {bar:.2f}, which the coldest page there ({victim:.2f}) sets"
            )
        return (
            f"it stays: its heat, {heat:.2f}, is not above {bar:.2f}, which the coldest page "
            f"of {above.name} ({victim:.2f}) sets with policy.hysteresis and "
            "policy.confidence_sigmas"
        )

    def _on_fast(self, node: int, heat: float) -> str:
        usage = self._around.usage.get(node)
        text = f"it is on a tier that nothing is promoted from; its heat is {heat:.2f}"
        if usage is None:
            return text
        low = max(usage.reserve_bytes, int(self._settings.low_watermark * usage.total_bytes))
        short = usage.free_bytes < low
        return text + (
            "; the tier is short of room, so its coldest pages leave"
            if short
            else "; it leaves only for a hotter page, as one of the coldest"
        )

    def bar(self, heat: float, victim: float) -> float:
        """The heat that a page must pass to replace one of heat `victim`."""
        return float(
            victim * (1 + self._settings.margin)
            + self._settings.confidence * np.sqrt(heat + victim)
        )
