# SPDX-License-Identifier: Apache-2.0
"""`StandingAccount`: whether moving pays, by what hardware counted and not by what sources said.

A source may be wrong about pages. What all requests to slow memory come to is counted by cards, and
that count knows nothing of pages. So the account compares the two. Time is cut into intervals. Each
gives a pair: by how much the requests a second should have fallen, which is the sum of the rates of
the pages that left the cards less those of the pages that came, and by how much they fell. A
regression line says how many requests ended for each predicted access, and with what standard
error. The slope need not be 1, because accessed bits show one access of many. Older pairs count
less.

Moving does not pay where even the upper bound of what came true, in latency saved until the
break-even time, is less than the time that the moves took, by at least a hundredth of a CPU. Then
the service stands down: it moves nothing for a while, and then it tries again. Where the upper
bound of the slope is below 0, moves have done harm, and are undone.

A load that grows makes requests rise while pages move, and is no fault of the moves. The line
therefore has an intercept. While all intervals are alike, nothing tells it from the slope. So
when a line through 0 says that moving does not pay, and the line with an intercept cannot tell, no
page moves for a few intervals, which shows how requests change without moves.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.access import LINES_PER_PAGE, AccessSource
from tierd.core.logfmt import logfmt
from tierd.core.migration import MOVED, PROMOTE, MigrationResult
from tierd.core.tiermap import TierMap
from tierd.core.tuning import ACCOUNT, VALUE
from tierd.hotness.view import heat_of_rate

log = logging.getLogger(__name__)


@dataclass
class Pairs:
    """Sums over intervals, of which older ones count less.

    Attributes:
        count: intervals.
        n: their weights. x, y, xx, xy, yy: weighted sums of predictions and observations.
        seconds: that they lasted. saved: predicted seconds saved a second. spent: on moving, s.
    """

    count: int = 0
    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0
    seconds: float = 0.0
    saved: float = 0.0
    spent: float = 0.0

    def add(self, x: float, y: float, elapsed_s: float, saved: float, spent: float) -> None:
        """Take in an interval."""
        kept = 0.5 ** (elapsed_s / ACCOUNT.half_life_s)
        self.count += 1
        for name, value in (
            ("n", 1.0), ("x", x), ("y", y), ("xx", x * x), ("xy", x * y), ("yy", y * y),
            ("seconds", elapsed_s), ("saved", saved), ("spent", spent),
        ):  # fmt: skip
            setattr(self, name, kept * getattr(self, name) + value)

    def slope(self, *, intercept: bool) -> tuple[float, float]:
        """Of the line, and its standard error; NaN: not known."""
        xx, xy, yy, free = self.xx, self.xy, self.yy, self.n - 1
        if intercept and self.n > 0:
            xx -= self.x * self.x / self.n
            xy -= self.x * self.y / self.n
            yy -= self.y * self.y / self.n
            free -= 1
        if free <= 1 or xx <= ACCOUNT.min_variation * self.xx:
            return math.nan, math.nan
        slope = xy / xx
        return slope, math.sqrt(max(0.0, yy - slope * xy) / free / xx)


class StandingAccount:
    """The account of one service; for the loop's thread.

    Attributes:
        stands: whether the service stands down.
        holds: whether nothing is moved: it stands down, or a control without moves is under way.
        harmful: whether the moves before it stood down made memory slower.
        times: how often the service has stood down.
    """

    def __init__(self) -> None:
        self.stands = self.harmful = False
        self.times = 0
        self._source: AccessSource | None = None
        self._counted: frozenset[int] = frozenset()
        self._until_ns = self._now_ns = self._acts_ns = 0
        self._wait_ns = ACCOUNT.retry_ns
        self._said = math.nan, math.nan, 0.0
        self._tiers: TierMap | None = None
        self._half_life_s = 0.0
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was known is of another source, or of before a pause."""
        self._begun_ns = 0
        self._requests: int | None = None
        """At the beginning of the interval; None where it has not begun."""
        self._rate: float | None = None
        self._fell = self._saved = self._fell_before = 0.0
        self._moves = self._copies = 0
        self._reports: list[MigrationResult] = []
        self._control = 0
        self._patience = self._next_control = ACCOUNT.min_intervals
        self._pairs = Pairs()

    def end(self) -> None:
        """Act again, begin anew, and next time wait as briefly as the first time."""
        self.stands = self.harmful = False
        self._wait_ns = ACCOUNT.retry_ns
        self.forget()

    @property
    def holds(self) -> bool:
        """See the class."""
        return self.stands or self._control > 0

    def moved(self, report: MigrationResult, tiers: TierMap, half_life_s: float) -> None:
        """Take in moves: what they are predicted to save, and what they cost.

        Moves between nodes that no card sees are left out.
        """
        if self._counted and len(report.plan):
            # Summed up once an interval: some hundred reports of few moves come in each.
            self._reports.append(report)
            self._tiers, self._half_life_s = tiers, half_life_s

    def _sum_up(self) -> None:
        """Take the reports of the interval into its sums.

        Room is often made in one report and used in another: so demotions are set against the
        promotions of the whole interval.
        """
        reports, self._reports = self._reports, []
        if not reports or self._tiers is None:
            return
        moved: Any = np.concatenate([each.fate for each in reports]) == MOVED
        moved = slice(None) if moved.all() else moved  # (without a copy of each column)

        def column(name: str) -> Any:
            return np.concatenate([getattr(each.plan, name) for each in reports])[moved]

        source, dest = column("source").astype(np.intp), column("dest").astype(np.intp)
        known = {node: tier for tier in self._tiers.tiers for node in tier.nodes}
        # One sum for each way from node to node. The first row and column are of unknown nodes.
        width = max(known, default=0) + 2
        source, dest = (np.where(n < width - 1, np.maximum(n, -1), -1) for n in (source, dest))
        seen, latency = np.zeros(width), np.zeros(width)
        for node, tier in known.items():
            seen[node + 1], latency[node + 1] = node in self._counted, tier.latency_ns.value
        told = np.add.outer(seen, seen)
        told[0] = told[:, 0] = 0.0
        way = (source + 1) * width + dest + 1

        def by_way(amount: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            sums = np.bincount(way, amount, width * width).reshape(width, width)
            return np.where(told > 0, sums, 0.0)

        pages = (np.int64(1) << column("order").astype(np.int64)).astype(np.float64)
        accesses = pages * column("heat") / heat_of_rate(self._half_life_s)
        rates, count = by_way(accesses), by_way(pages)
        self._fell += float((rates * np.subtract.outer(seen, seen)).sum())
        self._saved += float((rates * np.subtract.outer(latency, latency)).sum()) / 1e9
        self._copies += int((count * told).sum())
        # A demotion that makes no room for a promotion is for free memory, and not for speed.
        promoted = by_way(pages * (column("direction") == PROMOTE)).sum()
        self._moves += int(min(count.sum(), 2 * promoted))

    def see(
        self, source: AccessSource | None, now_ns: int, pays_in_s: float, *, counts: bool = True
    ) -> bool:
        """Close the interval, if it is time; whether moves have done harm and are to be undone.

        Args:
            counts: false where nothing is to be concluded from requests now.
        """
        self._now_ns = now_ns
        counted = frozenset() if source is None else source.counted_nodes
        if source is not self._source or (counted != self._counted and not self.stands):
            self._source, self._counted = source, counted
            self.end()
        if self.stands and now_ns >= self._until_ns:
            self.stands = self.harmful = False
            self._acts_ns = now_ns
            log.info(logfmt(event="acts_again"))
        elapsed_s = (now_ns - self._begun_ns) / 1e9
        if self._requests is not None and elapsed_s < ACCOUNT.interval_s:
            return False
        counts = counts and not self.stands
        requests = source.counted_requests() if source is not None and counts else None
        if requests is None or self._requests is None:
            self.forget()
        else:
            self._sum_up()
            fresh = requests - self._requests - self._copies * LINES_PER_PAGE
            self._add(max(0, fresh) / elapsed_s, elapsed_s)
        self._begun_ns, self._requests = now_ns, requests
        return requests is not None and self._judge(now_ns, pays_in_s)

    @property
    def part(self) -> tuple[float, float]:
        """Requests that ended for each predicted access, and the standard error; NaN: not known."""
        return self._said[:2] if self.stands else self._pairs.slope(intercept=False)

    def as_json(self) -> dict[str, Any]:
        """The account, JSON types only; while the service stands down, that of before."""
        part, error = self.part
        return {
            "stands_down": self.stands,
            "again_in_s": max(0, self._until_ns - self._now_ns) / 1e9 if self.stands else None,
            "times": self.times,
            "harmful": self.harmful,
            "counts": self._requests is not None,
            "part_seen": None if math.isnan(part) else part,
            "standard_error": None if math.isnan(error) else error,
            "cpu_share": self._said[2] if self.stands else self._cpu_share,
        }

    @property
    def _cpu_share(self) -> float:
        return self._pairs.spent / self._pairs.seconds if self._pairs.seconds else 0.0

    def _add(self, rate: float, elapsed_s: float) -> None:
        """Take in an interval with so many requests a second."""
        if self._rate is not None:
            # Moves are made throughout an interval: half their effect shows in the next one.
            fell = (self._fell + self._fell_before) / 2
            spent = self._moves * VALUE.move_s
            self._pairs.add(fell, self._rate - rate, elapsed_s, self._saved, spent)
        self._rate = rate
        self._fell_before, self._fell, self._saved = self._fell, 0.0, 0.0
        self._moves = self._copies = 0

    def _judge(self, now_ns: int, pays_in_s: float) -> bool:
        """Stand down, or begin a control, if need be; whether moves have done harm."""
        if self._control > 0:
            self._control -= 1
        pairs = self._pairs
        if pairs.count < ACCOUNT.min_intervals or not self._loses(pays_in_s, intercept=False):
            return False
        if self._loses(pays_in_s, intercept=True):
            self._stand_down(now_ns)
            return self.harmful
        if not self._control and pairs.count >= self._next_control:
            self._control = ACCOUNT.control_intervals
            # If the control says that moving pays, the next one comes later.
            self._patience *= 2
            self._next_control = pairs.count + self._control + self._patience
        return False

    def _loses(self, pays_in_s: float, *, intercept: bool) -> bool:
        """Whether moves do harm, or take time that they do not save."""
        slope, error = self._pairs.slope(intercept=intercept)
        if math.isnan(slope):
            return False
        most = slope + ACCOUNT.standard_errors * error
        saved_s = max(0.0, most) * max(0.0, self._pairs.saved) * pays_in_s
        return most < 0 or self._pairs.spent - saved_s > ACCOUNT.min_cost * self._pairs.seconds

    def _stand_down(self, now_ns: int) -> None:
        slope, error = self._pairs.slope(intercept=True)
        self._said = slope, error, self._cpu_share
        self.stands, self.harmful = True, slope + ACCOUNT.standard_errors * error < 0
        self.times += 1
        if now_ns - self._acts_ns > self._wait_ns:
            self._wait_ns = ACCOUNT.retry_ns
        self._until_ns = now_ns + self._wait_ns
        log.warning(
            logfmt(
                event="stands_down",
                reason="moving does not pay",
                part_seen=round(slope, 3),
                standard_error=round(error, 3),
                cpu_share=round(self._cpu_share, 4),
                undo=self.harmful,
                again_in_seconds=self._wait_ns / 1e9,
            )
        )
        self._wait_ns = min(2 * self._wait_ns, bounds.MAX_STAND_DOWN_NS)
