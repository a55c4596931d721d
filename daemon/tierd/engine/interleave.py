# SPDX-License-Identifier: Apache-2.0
"""`Interleave`: sets the kernel's weighted interleaving by the cost policy's tier model.

It needs Linux 6.9. From 6.16 on the kernel computes weights from HMAT while `auto` is true. Writing
a weight turns that off, and `Interleave.close` turns it on again.

New pages that a program lets the kernel interleave are used alike, or nobody knows how. So a
node gets of them what it could serve more until all tiers are equally used: with loads as they
are, bandwidth times (level - used) for the level at which that is the present load and half as
much again. A node without room gets the least there is. Weights go towards that in steps, as
the effect of the last ones is seen only when programs have allocated.

Source: Documentation/ABI/testing/sysfs-kernel-mm-mempolicy-weighted-interleave (1 to 255).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from tierd.core.errors import UnavailableError
from tierd.core.linux import INTERLEAVE_MAX_WEIGHT
from tierd.core.logfmt import logfmt
from tierd.core.pagekey import F64Array
from tierd.core.tiermap import NodeUsage, TierMap
from tierd.core.tuning import BANDWIDTH, PACING
from tierd.observe.tick_record import TickRecord
from tierd.policy.cost import CostPolicyState
from tierd.policy.tiermodel import TierModel

log = logging.getLogger(__name__)


def wished(
    tiers: TierMap, model: TierModel, usage: Mapping[int, NodeUsage], low_watermark: float
) -> dict[int, float]:
    """Shares of new pages by node, sum 1; empty where no node has room."""
    wide, load = model.bytes_per_s, model.load
    more = BANDWIDTH.interleave_probe_load * max(float(load.sum()), 0.1 * float(wide.sum()))
    ask = np.maximum(_level(wide, load, more) * wide - load, 0.0)
    shares: dict[int, float] = {}
    for tier in tiers.tiers:
        own = [node for node in tier.nodes if _has_space(usage.get(node), low_watermark)]
        width = {node: tiers.nodes[node].bandwidth_bytes_per_s.value for node in own}
        every = sum(each for each in width.values() if each > 0)
        for node in own:
            part = width[node] / every if every > 0 else 1 / len(own)
            shares[node] = float(ask[tier.rank]) * max(part, 0.0)
    total = sum(shares.values())
    return {node: share / total for node, share in shares.items()} if total > 0 else {}


def _level(wide: F64Array, load: F64Array, more: float) -> float:
    """The utilisation to which `more` load fills tiers, the least used first."""
    used = load / wide
    order = np.argsort(used, kind="stable")
    width = np.cumsum(wide[order])
    held = np.cumsum(load[order])
    level = (more + held) / width
    # The first k tiers, if that leaves them below the next one.
    following = np.append(used[order][1:], np.inf)
    return float(level[int(np.argmax(level <= following))])


def _has_space(usage: NodeUsage | None, low_watermark: float) -> bool:
    if usage is None:
        return False
    return usage.free_bytes > usage.low_bytes(low_watermark)


def weights(before: Mapping[int, float], wish: Mapping[int, float]) -> dict[int, float]:
    """Shares a step from `before` towards `wish`, for all nodes of either."""
    nodes = sorted({*before, *wish})
    if not before:
        return {node: wish.get(node, 0.0) for node in nodes}
    return {
        node: before.get(node, 0.0)
        + min(
            BANDWIDTH.interleave_max_step,
            max(-BANDWIDTH.interleave_max_step, wish.get(node, 0.0) - before.get(node, 0.0)),
        )
        for node in nodes
    }


def integers(shares: Mapping[int, float]) -> dict[int, int]:
    """The kernel's weights, 1 to 255, for shares."""
    return {
        node: min(INTERLEAVE_MAX_WEIGHT, max(1, round(share * INTERLEAVE_MAX_WEIGHT)))
        for node, share in shares.items()
    }


FOLDER: Final = "sys/kernel/mm/mempolicy/weighted_interleave"


class Interleave:
    """A background service of the loop, and an observer of its ticks.

    Args:
        low_watermark: fraction of a node that is kept free.
    """

    name = "interleave"

    def __init__(self, low_watermark: float, root: Path = Path("/")) -> None:
        self.state: Callable[[], CostPolicyState | None] = lambda: None
        """The tier model of the policy's last decision; None before the first."""
        self._low = low_watermark
        self._folder = root / FOLDER
        self._before: dict[Path, str] = {}
        self._shares: dict[int, float] = {}
        self._written: dict[int, int] = {}
        self._next_ns = 0
        self._failed = False

    def start(self) -> None:
        """Save the present weights.

        Raises:
            UnavailableError: the kernel has no weights, or does not let them be written.
        """
        try:
            auto = self._folder / "auto"
            files = [*sorted(self._folder.glob("node*")), *([auto] if auto.exists() else [])]
            if not files:
                raise UnavailableError(
                    "the kernel has no weights of interleaving", hint="use Linux 6.9 or later"
                )
            before = {file: file.read_text().strip() for file in files}
            files[0].open("r+").close()
        except OSError as error:
            raise UnavailableError(
                f"weights of interleaving: {error}", hint="run as root, or set placement = false"
            ) from error
        self._before = before

    def on_tick(self, tick: TickRecord) -> None:
        """Change the weights by a step towards the model's, once an interval."""
        state = self.state()
        if not self._before or self._failed or state is None or tick.time_ns < self._next_ns:
            return
        if len(state.model.load) != len(tick.tiers.tiers):
            return  # the state belongs to another tier map
        self._next_ns = tick.time_ns + PACING.upkeep_interval_ns
        wish = wished(tick.tiers, state.model, tick.usage, self._low)
        if not wish:
            return
        known = {node: share for node, share in self._shares.items() if node in tick.tiers.nodes}
        self._shares = weights(known, {**dict.fromkeys(tick.tiers.nodes, 0.0), **wish})
        for node, weight in integers(self._shares).items():
            if not self._failed and weight != self._written.get(node):
                self._write(node, weight)

    def _write(self, node: int, weight: int) -> None:
        file = self._folder / f"node{node}"
        try:
            if not file.exists():
                return
            self._before.setdefault(file, "0")  # new node; 0 restores the kernel's weight
            file.write_text(f"{weight}\n")
        except OSError as error:
            self._failed = True
            log.warning(logfmt(event="interleave_failed", node=node, reason=str(error)))
            return
        self._written[node] = weight

    def close(self) -> None:
        """Restore the weights that `start` saved."""
        before, self._before = self._before, {}
        if not self._written:
            return
        auto = self._folder / "auto"
        mine = [self._folder / f"node{node}" for node in self._written]
        again = [auto] if before.get(auto) in ("true", "1", "Y") else mine
        for file in again:
            try:
                file.write_text(before[file] + "\n")
            except OSError as error:
                log.warning(
                    logfmt(event="interleave_not_restored", file=file.name, reason=str(error))
                )
        self._written.clear()
