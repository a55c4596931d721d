# SPDX-License-Identifier: Apache-2.0
"""The sampling interval: the time from clearing a page's accessed bit to checking it.

A page that is accessed `r` times a second is found accessed with a chance of `1 - exp(-r t)`
after an interval of `t` seconds. Where every page is in use, a whole period finds all of them so,
and tells none from another. Those that fast memory should hold are the `n` hottest, `n` being what
it has room for; scans tell them best from the others where about as many are found accessed. So
while more are, the interval is shortened; while fewer than half as many are, it grows, up to the
whole period, which finds the pages that are not in use at all.

That accessed bits say more the sooner they are checked is known from the kernel's own clock
(second-chance) reclaim, which goes round the faster the more it has to free; to choose the time by
what fits the fast tier is what MEMTIS (SOSP 2023) does with its hotness threshold.
"""

from __future__ import annotations

import math

from tierd.core.access import Seen
from tierd.core.tuning import INTERVAL


def last_fraction() -> float:
    """The fraction of the period that is tried before all of it.

    What is found grows no faster than the sampling interval. So where this one finds less than
    the target over `INTERVAL.alike_factor`, a whole period finds no more than the target times
    `INTERVAL.close_factor`, and the two do not take turns for ever.
    """
    return 1 / (INTERVAL.alike_factor * INTERVAL.close_factor)


def used_a_second(seen: Seen | None) -> float:
    """How often the scanned pages are used on average; 0 if that is not known.

    Where scans find nearly all of them in use, it is the least that can be.
    """
    if seen is None or seen.sampling_interval_s <= 0:
        return 0.0
    return -math.log1p(-min(seen.share, INTERVAL.saturated_fraction)) / seen.sampling_interval_s


def choose(seen: Seen, aim: float, now_us: int, *, least_us: int, most_us: int) -> int:
    """The sampling interval to scan with from now on, in us; 0 is the whole period.

    Args:
        aim: share of the pages that fast memory has room for.
        now_us: the interval that is set.
    """
    if aim >= 1 or least_us * INTERVAL.alike_factor >= most_us:
        return 0
    most = min(
        INTERVAL.saturated_fraction,
        (INTERVAL.alike_factor if now_us else INTERVAL.close_factor) * aim,
    )
    enough = seen.share * INTERVAL.alike_factor >= aim or not now_us
    if enough and seen.share <= most:
        return now_us
    # A whole period that finds too many in use has seen those that are used now and then, and
    # says nothing of how much the others are.
    factor = _factor(seen.share, max(aim, 0.01)) if now_us else 1 / INTERVAL.step_factor
    wanted_us = seen.sampling_interval_s * factor * 1e6
    if wanted_us * INTERVAL.alike_factor >= most_us:
        last_us = round(last_fraction() * most_us)
        return last_us if least_us <= last_us and 0 < now_us < last_us else 0
    return max(round(wanted_us), least_us)


def _factor(share: float, aim: float) -> float:
    """By how much longer the interval must be for `aim` to be seen in place of `share`."""
    if share > INTERVAL.saturated_fraction:
        return 1 / INTERVAL.step_factor
    if share <= 0:
        return INTERVAL.step_factor
    # As if all pages were alike, which makes for steps that are too small, and no overshooting.
    return min(
        INTERVAL.step_factor,
        max(
            1 / INTERVAL.step_factor,
            math.log1p(-min(aim, INTERVAL.saturated_fraction)) / math.log1p(-share),
        ),
    )
