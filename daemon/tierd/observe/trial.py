# SPDX-License-Identifier: Apache-2.0
"""What pairs of windows say of a gain: an interval without assumptions, and a verdict.

Each pair is a window with tierd acting and one with its moves undone, in random order. The gain is
the ratio of the two measures. Its interval is that of Wilcoxon's signed-rank statistic over the
logarithms of the pairs' ratios (Hollander and Wolfe, Nonparametric Statistical Methods, 3.3): it
asks that chance is as likely to help as to harm, and not that it is normal.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

CONFIDENCE: Final = 0.95
LEAST_PAIRS: Final = 6
"""With fewer, no interval has that confidence, whatever was measured."""


class Answer(enum.StrEnum):
    """Whether tiering pays."""

    PAYS = "pays"
    DOES_NOT_PAY = "does not pay"
    CANNOT_TELL = "cannot tell yet"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial came to.

    Attributes:
        gain: of the measure, relatively: 0.1 for a tenth faster; the median over pairs.
        low, high: the interval of the gain, of `CONFIDENCE`.
    """

    answer: Answer
    gain: float
    low: float
    high: float
    why: str


def verdict(ratios: Sequence[float], worthwhile: float) -> Verdict:
    """What pairs say.

    Args:
        ratios: of the measure with tierd to that without it, above 1 where tierd helps.
        worthwhile: a gain below this is not worth it.

    Raises:
        ValueError: a ratio is not a positive number.
    """
    if not all(0 < ratio < math.inf for ratio in ratios):
        raise ValueError(f"ratios {ratios}")
    if len(ratios) < LEAST_PAIRS:
        why = f"{len(ratios)} pairs of windows are too few: {LEAST_PAIRS} are needed"
        return Verdict(Answer.CANNOT_TELL, 0.0, -1.0, math.inf, why)
    logs = [math.log(ratio) for ratio in ratios]
    means = sorted((one + other) / 2 for i, one in enumerate(logs) for other in logs[i:])
    edge = _edge(len(logs))
    middle = len(means) // 2
    median = (means[middle] + means[-middle - 1]) / 2
    gain, low, high = (math.exp(each) - 1 for each in (median, means[edge], means[-edge - 1]))
    between = f"{CONFIDENCE:.0%} interval {low:+.1%} to {high:+.1%}"
    if low > 0 and gain >= worthwhile:
        return Verdict(Answer.PAYS, gain, low, high, f"the measure gains {gain:.1%} ({between})")
    if high < worthwhile:
        why = f"it gains less than {worthwhile:.1%} ({between})"
        return Verdict(Answer.DOES_NOT_PAY, gain, low, high, why)
    why = f"the {between} holds both less and more than is worth it; more pairs tell more"
    return Verdict(Answer.CANNOT_TELL, gain, low, high, why)


def without_moves(found: Verdict) -> Verdict:
    """The verdict where no page was moved in any window, nor put back: they differ by chance.

    There may be nothing to gain, or an earlier run of the service has placed all pages well, which
    an undo does not know of. So such a trial never says that tiering pays.
    """
    if found.answer is Answer.DOES_NOT_PAY:
        return found
    why = (
        "tierd moved no page in any window, so that these differ by chance only; pages that an "
        "earlier run of the service moved stay where they are"
    )
    return replace(found, answer=Answer.CANNOT_TELL, why=why)


def _edge(n: int) -> int:
    """How many of the least Walsh averages of n values lie outside of the interval."""
    # Of the 2^n signs, how many give each sum of the ranks of positive ones.
    ways = [1]
    for rank in range(1, n + 1):
        longer = ways + [0] * rank
        for total, count in enumerate(ways):
            longer[total + rank] += count
        ways = longer
    edge, tail = 0, ways[0]
    while tail + ways[edge + 1] <= (1 - CONFIDENCE) / 2 * 2**n:
        edge += 1
        tail += ways[edge]
    return edge
