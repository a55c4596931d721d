# SPDX-License-Identifier: Apache-2.0
"""Why a page was moved, or was not: `tierd explain`.

Owns: a bounded record of decisions about pages, and the words in which they are told.
Must not touch: decisions; it hears of them after they were made.

Moves are told from the record. A page that was left alone is told by asking the policy's
own rule again, on what is known now: that costs nothing until somebody asks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from tierd.access import F32Array
from tierd.heat.view import PageSet
from tierd.moves import Direction, Fate, I16Array, MoveReport, U8Array
from tierd.pagekey import PAGE_SHIFT, VPN_BITS, VPN_MASK, U64Array
from tierd.policy.inputs import NodeUsage
from tierd.policy.watermark import WatermarkSettings
from tierd.tiermap import TierMap


class Reason(enum.IntEnum):
    """Why a decision about a page came out as it did; `daemon/native/promote.h` repeats it."""

    HOTTER_THAN_THE_COLDEST = 0
    """Promoted: hotter by enough than the page that it may push out, or there was room."""
    MAKES_ROOM = 1
    """Demoted: among the coldest of a fast tier that is short of room."""
    NOT_MOVABLE = 2
    """Held back: outside the ranges of its process that may be moved, or no target's."""
    MOVED_LATELY = 3
    """Held back: moved less than the least residency ago."""
    NOT_HOTTER = 4
    """Held back: not hotter by enough than the coldest page of the fast tier."""
    NO_ROOM = 5
    """Held back: no room on the fast tier, and no page known that could make some."""
    OVER_QUOTA = 6
    """Held back: the bytes that may move in this second were spent."""
    PART_OF_HUGE = 7
    """Left to the next tick: it is part of a 2 MiB folio, which is moved whole."""
    OVERFLOW = 8
    """Held back: more hot pages were reported in one interval than are looked at."""


WORDS: Final = {
    Reason.HOTTER_THAN_THE_COLDEST: "hotter by enough than the coldest page of the fast tier",
    Reason.MAKES_ROOM: "among the coldest of its tier, which was short of room",
    Reason.NOT_MOVABLE: "outside the ranges of its process that may be moved",
    Reason.MOVED_LATELY: "moved less than the least residency ago",
    Reason.NOT_HOTTER: "not hotter by enough than the coldest page of the fast tier",
    Reason.NO_ROOM: "no room on the fast tier, and no page known that could make some",
    Reason.OVER_QUOTA: "the bytes that may move in a second were spent",
    Reason.PART_OF_HUGE: "part of a 2 MiB folio, which the next tick moves whole",
    Reason.OVERFLOW: "more hot pages were reported in one interval than are looked at",
}

ENTRY: Final = np.dtype(
    [
        ("page", np.uint64),
        ("time_ns", np.uint64),
        ("heat", np.float32),
        ("bar", np.float32),
        ("node", np.int16),
        ("reason", np.uint8),
        ("fate", np.uint8),
        ("direction", np.uint8),
    ]
)
"""A decision: `heat` it was made on, `bar` that heat had to pass (NaN where there was none),
`node` the page was on afterwards."""


class DecisionLog:
    """The latest decisions about pages; older ones are overwritten and counted.

    Args:
        room: the most decisions kept (33 bytes each).
    """

    def __init__(self, room: int = 1 << 17) -> None:
        self._entries: npt.NDArray[np.void] = np.zeros(room, ENTRY)
        self._written = 0

    @property
    def overwritten(self) -> int:
        """Decisions that are not known any more."""
        return max(0, self._written - len(self._entries))

    def add(
        self,
        page: U64Array,
        time_ns: int | U64Array,
        heat: F32Array,
        *,
        node: I16Array,
        reason: U8Array | int,
        fate: U8Array,
        direction: U8Array,
        bar: F32Array | float = np.nan,
    ) -> None:
        """Add decisions, in order; all arrays have one length (see `ENTRY`)."""
        fresh = np.zeros(len(page), ENTRY)
        fields = (page, time_ns, heat, bar, node, reason, fate, direction)
        for name, values in zip(ENTRY.names or (), fields, strict=True):
            fresh[name] = values
        fresh_count = len(fresh)
        fresh = fresh[-len(self._entries) :]
        start = (self._written + fresh_count - len(fresh)) % len(self._entries)
        first = min(len(fresh), len(self._entries) - start)
        self._entries[start : start + first] = fresh[:first]
        self._entries[: len(fresh) - first] = fresh[first:]
        self._written += fresh_count

    def add_report(self, report: MoveReport, time_ns: int) -> None:
        """Add what became of a plan."""
        up = report.plan.direction == Direction.PROMOTE
        self.add(
            report.plan.page,
            time_ns,
            report.plan.heat,
            node=report.node,
            reason=np.where(up, Reason.HOTTER_THAN_THE_COLDEST, Reason.MAKES_ROOM).astype(np.uint8),
            fate=report.fate,
            direction=report.plan.direction,
        )

    def of_page(self, key: int, most: int = 16) -> npt.NDArray[np.void]:
        """The latest decisions, `ENTRY`[≤ most], about a page or its 2 MiB folio, newest first."""
        ages = (self._written - 1 - np.arange(len(self._entries))) % len(self._entries)
        head = key & ~0x1FF
        known = self._entries["time_ns"] != 0
        index = np.flatnonzero(known & np.isin(self._entries["page"], (key, head)))
        found: npt.NDArray[np.void] = self._entries[index[np.argsort(ages[index])][:most]]
        return found

    def of_target(self, target: int) -> npt.NDArray[np.void]:
        """All decisions known, `ENTRY`[n], about a target's pages."""
        known = self._entries["time_ns"] != 0
        ours = self._entries["page"] >> np.uint64(VPN_BITS) == target
        found: npt.NDArray[np.void] = self._entries[known & ours]
        return found


class Lookup(Protocol):
    """What is asked of the heat table."""

    def lookup(self, key: int) -> PageSet:
        """What is known of the folio whose first page is `key`; empty if nothing."""
        ...

    def coldest(self, node: int, n: int) -> PageSet:
        """At most `n` folios on `node`, coldest first."""
        ...


class Surroundings(Protocol):
    """What an explanation needs of the service; `tierd.service.steering` has it."""

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
    """Answers why a page is where it is. To be called in the loop's thread (`Calls.post`).

    Args:
        heat: the heat table.
        log: the decisions.
        around: the service's state.
        settings: the policy's.
    """

    def __init__(
        self, heat: Lookup, log: DecisionLog, around: Surroundings, settings: WatermarkSettings
    ) -> None:
        self._heat = heat
        self._log = log
        self._around = around
        self._settings = settings

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
            return told | {"decisions": _counts(self._log.of_target(target))}
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
        told["decisions"] = [_entry(entry) for entry in entries]
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
                f"{self._settings.min_residency_s:g} s (policy.min_residency)"
            )
        return self._by_heat(page)

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
                "(policy.confidence squared), the least that is worth a move"
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
            f"of {above.name} ({victim:.2f}) sets with policy.margin and policy.confidence"
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


def _what(direction: int, fate: int, reason: int) -> str:
    way = "promot" if direction == Direction.PROMOTE else "demot"
    if fate == Fate.MOVED:
        return way + "ed"
    if fate == Fate.NOT_TRIED:
        return "held back" if reason > Reason.MAKES_ROOM else way + "ion not tried"
    return way + "ion failed"


def _entry(entry: Any) -> dict[str, Any]:
    bar = float(entry["bar"])
    return {
        "time_ns": int(entry["time_ns"]),
        "what": _what(int(entry["direction"]), int(entry["fate"]), int(entry["reason"])),
        "why": WORDS[Reason(int(entry["reason"]))],
        "heat": round(float(entry["heat"]), 3),
        "bar": round(bar, 3) if np.isfinite(bar) else None,
        "fate": Fate(int(entry["fate"])).name.lower(),
        "node": int(entry["node"]) if entry["node"] >= 0 else None,
    }


def _counts(entries: npt.NDArray[np.void]) -> dict[str, dict[str, int]]:
    told: dict[str, dict[str, int]] = {}
    code = (
        entries["direction"].astype(np.int64) << 16
        | entries["fate"].astype(np.int64) << 8
        | entries["reason"]
    )
    for value, count in zip(*np.unique(code, return_counts=True), strict=True):
        what = _what(int(value) >> 16, int(value) >> 8 & 0xFF, int(value) & 0xFF)
        why = WORDS[Reason(int(value) & 0xFF)]
        kinds = told.setdefault(what, {})
        kinds[why] = kinds.get(why, 0) + int(count)
    return told
