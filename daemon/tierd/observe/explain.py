# SPDX-License-Identifier: Apache-2.0
"""Why a page was moved, or will be, or stays: `tierd explain`.

What happened is told from the log of decisions. What will happen is told by the policy, which
decides once more, on heat as it is now and on what the last decision knew of the host. That costs
nothing until somebody asks. The fast path's quota and the mover may still delay the move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tierd.core.migration import WORDS, Direction, Reason
from tierd.core.pagekey import PAGE_SHIFT, VPN_BITS, VPN_MASK
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.hotness.table import HeatTable
from tierd.hotness.view import PageSet
from tierd.observe.decisions import DecisionLog, counts_of, entry_of
from tierd.policy.page_out import IN_SWAP
from tierd.policy.rule import Verdict
from tierd.sources.neoprof import NeoProfSource
from tierd.sources.selection import SourceSelector


class ServiceView:
    """What an explanation needs of the service.

    Args:
        pids: target number → pid.
        spans: page keys [start, end) that may be moved.

    Attributes:
        tiers: at the last tick.
        usage: the use of the nodes' memory at that tick.
    """

    def __init__(
        self,
        pids: Callable[[], Mapping[int, int]],
        spans: Callable[[], Sequence[tuple[int, int]]],
        sources: SourceSelector,
    ) -> None:
        self.pids = pids
        self._spans = spans
        self._sources = sources
        self.tiers = TierMap((), {})
        self.usage: Mapping[int, NodeUsage] = {}

    @property
    def source(self) -> NeoProfSource | None:
        """The source in use, if it is `neoprof`."""
        active = self._sources.active
        return active if isinstance(active, NeoProfSource) and active.cards else None

    @property
    def epoch_ns(self) -> int:
        """Start of the earliest present epoch, CLOCK_MONOTONIC; 0 without cards."""
        epochs = {} if self.source is None else self.source.epochs
        return min((epoch.start_ns for epoch in epochs.values()), default=0)

    def movable(self, key: int) -> bool:
        """Whether the page is in a range that may be moved."""
        return any(start <= key < end for start, end in self._spans())

    def thresholds(self) -> Mapping[str, int]:
        """Counts above which a page is hot, by card; empty without cards."""
        source = self.source
        if source is None:
            return {}
        return {str(number): card.settings.threshold for number, card in source.cards.items()}


class Explainer:
    """Answers why a page is where it is. To be called in the loop's thread (`LoopExecutor.post`).

    Attributes:
        judge: what the policy in use would decide about a page now.
        page_out: what page-outs know of a page; None where they are not configured.
        slow_nodes: a sentence for each node that is slow now.
    """

    def __init__(self, heat: HeatTable, log: DecisionLog, around: ServiceView) -> None:
        self._heat = heat
        self._log = log
        self._around = around
        self.judge: Callable[[PageSet], Verdict | str] = lambda page: ""
        self.page_out: Callable[[int], str | None] = lambda key: None
        self.slow_nodes: Callable[[], list[str]] = list

    def explain(self, pid: int, vaddr: int | None) -> dict[str, Any]:
        """Why a page is where it is, or what was decided about a process.

        Returns:
            JSON types only. `watched`: whether the process is a target (if not, `why`
            says what that means and nothing else is there). For an address: `page` (its
            number), `node`, `heat`, `order`, `moved_s_ago` (null: never, or unknown),
            `verdict` (one sentence), `decision` (its terms: `reason`, `direction`, `dest`,
            `victim`, `bar`, `price`; null where no rule was asked), `page_out` (one sentence,
            where page-outs are configured), and `decisions`, newest first, each with
            `time_ns` (CLOCK_MONOTONIC), `what` ("promoted", "demoted", "held back",
            "promotion failed", "demotion failed"), `why`, `heat`, `bar`, `fate`, `node`.
            For a process: `decisions`, counts by what and why. `thresholds`: by card.
        """
        target = next((n for n, p in self._around.pids().items() if p == pid), None)
        told: dict[str, Any] = {"pid": pid, "watched": target is not None}
        if target is None:
            told["why"] = (
                "the process is not watched: it matches targets.deny, does not match "
                "targets.match, or has less memory than targets.min_rss"
                if Path(f"/proc/{pid}").exists()
                else "no process has that number; it may have ended"
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
        told |= {"decision": None} | self._verdict(key, found, entries)
        if (said := self.page_out(key)) is not None:
            told["page_out"] = said
            if not len(found) and said.startswith(IN_SWAP):
                told["verdict"] = said
        told["decisions"] = [entry_of(entry) for entry in entries]
        return told

    def _verdict(self, key: int, page: PageSet, entries: npt.NDArray[np.void]) -> dict[str, Any]:
        """`verdict` and `decision` of `explain`."""
        if not self._around.movable(key):
            return {"verdict": "it stays: " + WORDS[Reason.NOT_MOVABLE]}
        if not len(page):
            return {"verdict": "it stays: no access to it was seen, and no walk has met it yet"}
        if page.node[0] < 0:
            return {"verdict": "it stays: the kernel has not yet told which node it is on"}
        found = self.judge(page)
        if isinstance(found, str):
            return {"verdict": found or "nothing was decided yet, or tierd is paused"}
        if found.reason is Reason.FAST_PATH:
            return {"verdict": self._by_fast_path(entries), "decision": _decision(found)}
        return {"verdict": self._words(found), "decision": _decision(found)}

    def _words(self, verdict: Verdict) -> str:
        """A verdict of a tick as a sentence."""
        heat, why = f"its heat, {verdict.heat:.2f} accesses,", WORDS[verdict.reason]
        bar = ""
        if verdict.terms is not None and verdict.victim is not None:
            against = "the least that is worth a move into free memory"
            if verdict.victim > 0:
                against = f"which the page that had to leave for it sets ({verdict.victim:.2f})"
            above = "is above" if verdict.terms.promotes else "is not above"
            bar = f"{heat} {above} {verdict.terms.bar:.2f}, {against}"
        if verdict.direction is not None:
            # The tiers may have changed since: memory comes and goes.
            tiers = self._around.tiers.tiers
            named = [tier.name for tier in tiers if verdict.dest in tier.nodes]
            tier = named[0] if named else f"node {verdict.dest}"
            way = "promoted" if verdict.direction is Direction.PROMOTE else "demoted"
            return f"it will be {way} to {tier} in the next pass: {bar or why}"
        if bar:
            return f"it stays: {bar} (policy.confidence_sigmas, policy.hysteresis: {why})"
        return f"it stays: {heat} does not matter here: {why}"

    def _by_fast_path(self, entries: npt.NDArray[np.void]) -> str:
        """What the fast path made of a page; a card reports each page once an epoch."""
        begun_ns = self._around.epoch_ns
        for entry in entries:
            if int(entry["time_ns"]) >= begun_ns and entry["direction"] == Direction.PROMOTE:
                told = entry_of(entry)
                bar = "" if told["bar"] is None else f" against a bar of {told['bar']:.2f}"
                return (
                    f"the card reported it in this epoch, with a heat of {told['heat']:.2f}{bar}, "
                    f"and it was {told['what']}: {told['why']}"
                )
        counts = ", ".join(str(count) for count in self._around.thresholds().values())
        return (
            "it stays until a card reports it: since the present epoch began it was accessed less "
            f"often than the card's threshold ({counts} requests)"
        )


def _decision(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON types."""
    terms = verdict.terms
    return {
        "reason": verdict.reason.name.lower(),
        "direction": None if verdict.direction is None else verdict.direction.name.lower(),
        "dest": verdict.dest,
        "victim": None if verdict.victim is None else round(verdict.victim, 3),
        "bar": None if terms is None else round(terms.bar, 3),
        "price": None if terms is None else round(terms.price, 3),
    }
