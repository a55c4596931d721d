# SPDX-License-Identifier: Apache-2.0
"""`StandingAccount`: whether moving pays, by what hardware counted and not by what sources said.

A source may be wrong about pages. What all requests to slow memory come to is counted by cards, and
that count knows nothing of pages. So the account compares the two. Time is cut into intervals. Each
gives a pair: by how much the requests a second should have fallen, which is the sum of the rates of
the promoted pages less those of the demoted ones, and by how much they fell. The slope of a line
through 0 and all pairs says how many requests ended for each predicted access, and has a standard
error. It need not be 1, because accessed bits show one access of many. Older pairs count less.

Moving does not pay where even the upper bound of what came true, in latency saved until the
break-even time, is less than the time that the moves took, and that time is worth mentioning. Then
the service stands down: it moves nothing for a while, and then it tries again. Where the upper
bound is below 0, moves have done harm, and are undone. A phase change makes pairs that no line
explains. They widen the error, so that the account does not stand down because a program does
something else than before.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from tierd.core import bounds
from tierd.core.access import LINES_PER_PAGE, AccessSource
from tierd.core.logfmt import logfmt
from tierd.core.migration import MOVED, PROMOTE, MigrationResult
from tierd.core.tiermap import TierMap
from tierd.core.tuning import ACCOUNT, VALUE

log = logging.getLogger(__name__)


class StandingAccount:
    """The account of one service; for the loop's thread.

    Attributes:
        stands: whether the service stands down.
        harmful: whether the moves before that made memory slower.
        times: how often the service has stood down.
    """

    def __init__(self) -> None:
        self.stands = self.harmful = False
        self.times = 0
        self._until_ns = self._now_ns = 0
        self._wait_ns = ACCOUNT.retry_ns
        self.forget()

    def forget(self) -> None:
        """Begin anew: what was known is of other memory, or of another source."""
        self._begun_ns = 0
        self._requests: int | None = None
        """At the beginning of the interval; None where it has not begun."""
        self._rate: float | None = None
        self._fell = self._saved = self._fell_before = 0.0
        self._pages = 0
        self._pairs = self._xx = self._xy = self._yy = 0.0
        self._saves = self._spent = 0.0

    def end(self) -> None:
        """Act again, and begin anew."""
        self.stands = False
        self.forget()

    def moved(self, report: MigrationResult, tiers: TierMap, half_life_ns: int) -> None:
        """Take in moves: what they are predicted to save, and what they cost.

        Args:
            report: of the moves.
            tiers: their latencies.
            half_life_ns: of hotness.
        """
        plan, done = report.plan, report.fate == MOVED
        if not done.any():
            return
        latency = {n: tier.latency_ns.value for tier in tiers.tiers for n in tier.nodes}
        table = np.array([latency.get(node, 0.0) for node in range(max(latency, default=0) + 1)])
        pages = np.int64(1) << plan.order[done].astype(np.int64)
        rates = pages * plan.heat[done] * (math.log(2) * 1e9 / half_life_ns)
        source, dest = (
            table[np.clip(node[done], 0, len(table) - 1)] for node in (plan.source, plan.dest)
        )
        self._fell += float(np.where(plan.direction[done] == PROMOTE, rates, -rates).sum())
        self._saved += float((rates * (source - dest)).sum()) / 1e9
        self._pages += int(pages.sum())

    def see(self, source: AccessSource | None, now_ns: int, pays_in_s: float) -> bool:
        """Close the interval, if it is time; whether moves have done harm and are to be undone.

        Args:
            source: counts requests; None: nothing is to be concluded from them now.
            now_ns: CLOCK_MONOTONIC.
            pays_in_s: break-even time.
        """
        self._now_ns = now_ns
        if self.stands and now_ns >= self._until_ns:
            self.end()
            log.info(logfmt(event="acts_again"))
        elapsed_s = (now_ns - self._begun_ns) / 1e9
        if self._requests is not None and elapsed_s < ACCOUNT.interval_s:
            return False
        requests = None if source is None or self.stands else source.requests()
        if requests is None or self._requests is None:
            self.forget()
        else:
            copies = self._pages * LINES_PER_PAGE
            self._add(max(0, requests - self._requests - copies) / elapsed_s, elapsed_s)
        self._begun_ns, self._requests = now_ns, requests
        return requests is not None and self._stands_down(now_ns, pays_in_s)

    @property
    def part(self) -> tuple[float, float]:
        """Requests that ended for each predicted access, and the standard error; NaN: not known."""
        if self._xx <= 0 or self._pairs < 2:
            return math.nan, math.nan
        slope = self._xy / self._xx
        left = max(0.0, self._yy - slope * self._xy)
        return slope, math.sqrt(left / (self._pairs - 1) / self._xx)

    def as_json(self) -> dict[str, Any]:
        """The account, JSON types only; seconds are of the latest `ACCOUNT.half_life_s`."""
        part, error = self.part
        return {
            "stands_down": self.stands,
            "again_in_s": max(0, self._until_ns - self._now_ns) / 1e9 if self.stands else None,
            "times": self.times,
            "harmful": self.harmful,
            "part_seen": None if math.isnan(part) else part,
            "standard_error": None if math.isnan(error) else error,
            "predicted_saved_s_per_s": self._saves,
            "spent_s": self._spent,
        }

    def _add(self, rate: float, elapsed_s: float) -> None:
        """Take in an interval with so many requests a second."""
        if self._rate is not None:
            # Moves are made throughout an interval: half their effect shows in the next one.
            x, y = (self._fell + self._fell_before) / 2, self._rate - rate
            kept = 0.5 ** (elapsed_s / ACCOUNT.half_life_s)
            self._pairs = kept * self._pairs + 1
            self._xx = kept * self._xx + x * x
            self._xy = kept * self._xy + x * y
            self._yy = kept * self._yy + y * y
            self._saves = kept * self._saves + self._saved
            self._spent = kept * self._spent + self._pages * VALUE.move_s
        self._rate = rate
        self._fell_before, self._fell, self._saved, self._pages = self._fell, 0.0, 0.0, 0

    def _stands_down(self, now_ns: int, pays_in_s: float) -> bool:
        """Stand down if moving does not pay; whether moves have done harm."""
        part, error = self.part
        if self._pairs < ACCOUNT.min_intervals or math.isnan(part):
            return False
        most = part + ACCOUNT.standard_errors * error
        lost_s = self._spent - max(0.0, most) * self._saves * pays_in_s
        if most >= 0 and lost_s < ACCOUNT.min_cost * ACCOUNT.interval_s * self._pairs:
            return False
        self.stands, self.harmful = True, most < 0
        self.times += 1
        self._until_ns = now_ns + self._wait_ns
        log.warning(
            logfmt(
                event="stands_down",
                reason="moving does not pay",
                part_seen=round(part, 3),
                standard_error=round(error, 3),
                spent_seconds=round(self._spent, 3),
                undo=self.harmful,
                again_in_seconds=self._wait_ns / 1e9,
            )
        )
        self._wait_ns = min(2 * self._wait_ns, bounds.STANDS_DOWN_NS)
        return self.harmful
