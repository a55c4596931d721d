# SPDX-License-Identifier: Apache-2.0
"""`Candidates`: the promotable and demotable pages of one decision, best first.

Heat is queried for a limited number of pages. Pages of a group that is held by its floor or cap
could fill the whole answer, and hide others that may move. Then heat is queried again without that
group's targets, until no group hides anything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np

from tierd.core import bounds
from tierd.core.pagekey import PAGE_SIZE, BoolArray, PageKeySet
from tierd.core.tiermap import Tier
from tierd.hotness.view import HeatView, PageSet
from tierd.policy import pageset
from tierd.policy.inputs import Inputs
from tierd.policy.limits import Fairness

Ask = Callable[[BoolArray | None], list[PageSet]]
"""A query: from a selection of targets (None: all) to one answer a node."""


class DecisionHeat:
    """Heat within one decision, in which it does not change.

    A query goes through the tags of the whole table, and a decision asks for more and more of the
    same. A longer answer begins with the shorter one, so that the second time much is asked for.
    """

    def __init__(self, heat: HeatView) -> None:
        self._heat = heat
        self.folios = heat.folios
        self._answers: dict[tuple[int, float | None], tuple[int, PageSet]] = {}
        self._least: dict[int, float] = {}

    def hottest(
        self, node: int, n: int, min_heat: float = 0.0, among: BoolArray | None = None
    ) -> PageSet:
        """See `HeatView`."""
        if among is not None:
            return self._heat.hottest(node, n, min_heat, among)
        ask = partial(self._heat.hottest, node, min_heat=min_heat)
        return self._first((node, min_heat), n, ask)

    def coldest(self, node: int, n: int, among: BoolArray | None = None) -> PageSet:
        """See `HeatView`."""
        if among is not None:
            return self._heat.coldest(node, n, among)
        return self._first((node, None), n, partial(self._heat.coldest, node))

    def least(self, node: int) -> float:
        """See `HeatView`."""
        if node not in self._least:
            self._least[node] = self._heat.least(node)
        return self._least[node]

    def _first(
        self, query: tuple[int, float | None], n: int, ask: Callable[..., PageSet]
    ) -> PageSet:
        asked, found = self._answers.get(query) or (n, ask(n=n))
        if n > asked and len(found) == asked:
            asked = max(n, min(bounds.ASKED_AGAIN * asked, bounds.ASKED_AT_ONCE))
            found = ask(n=asked)
        self._answers[query] = asked, found
        return pageset.take(found, slice(0, n))


class Candidates:
    """The queries of one decision.

    Args:
        min_residency_s: pages moved less than this ago stay where they are.
        notes: counts the rejected pages, by reason.
        fair: the groups, None where there are none.
    """

    def __init__(
        self, inputs: Inputs, min_residency_s: float, notes: Counter[str], fair: Fairness | None
    ) -> None:
        self._inputs, self._heat = inputs, DecisionHeat(inputs.heat)
        self._min_residency_s = min_residency_s
        self._notes = notes
        self._fair = fair
        self._planned: list[tuple[PageKeySet, set[int]]] = []
        self._in_plan = 0
        """Tracked pages that are no candidates."""
        self.more = False
        """Whether the last query reached its limit."""

    def planned(self, pages: PageSet) -> None:
        """Note that `pages` are in the plan, and are no candidates any more."""
        planned = PageKeySet()
        planned.add(pages.page)
        self._planned.append((planned, set(pageset.nodes_of(pages))))
        self._in_plan += len(pages)

    def hottest(
        self, tier: Tier, count: int, least: float, *, of_group: int | None = None
    ) -> PageSet:
        """At most `count` pages hotter than `least` that tiers below promote into `tier`."""
        wanted = count + self._in_plan
        answers = self._hotter(tier, wanted, least)(self._only(of_group))
        found = self._usable(pageset.concat(answers))
        self.more = len(found) > count or any(len(answer) == wanted for answer in answers)
        return pageset.take(self._sorted(found, hottest=True), slice(0, count))

    def not_exchanged(self, tier: Tier, count: int, least: float, space: int) -> PageSet:
        """The same, but 4 KiB pages that the fast path exchanges only as far as they fit `space`.

        `space`: free bytes of the tier that may be filled. Heat does not sort the others.
        """
        heat, apart = self._heat, self._inputs.exchanged
        fits = min(count, space // PAGE_SIZE)

        def ask(among: BoolArray | None) -> list[PageSet]:
            answers = []
            for node in self._below(tier):
                if node not in apart:
                    answers.append(heat.hottest(node, count, least, among))
                    continue
                small = heat.hottest(node, fits, least, among)
                answers.append(pageset.take(small, small.order == 0))
                answers.append(heat.folios(node, count, least, among))
            return answers

        hot = self._sorted(self._asked(ask, None), hottest=True)
        return self.without_exchanged(pageset.take(hot, slice(0, count)), space)

    def without_exchanged(self, hot: PageSet, space: int) -> PageSet:
        """`hot`, best first, without 4 KiB pages beyond `space` that the fast path exchanges."""
        apart = self._inputs.exchanged
        if not apart or not len(hot):
            return hot
        fits = np.cumsum(pageset.sizes(hot)) <= space
        others = (hot.order == 0) & np.isin(hot.node, list(apart))
        return pageset.take(hot, fits | ~others)

    def least_heat(self, tier: Tier) -> float:
        """A lower bound of the heat of the tier's pages; infinite if none is tracked."""
        return min((self._heat.least(node) for node in tier.nodes), default=math.inf)

    def entering(self, tier: Tier, count: int, least: float) -> tuple[PageSet, PageSet]:
        """(promotable pages that caps admit, pages that caps reject)."""
        return self._past(
            self._hotter(tier, count, least),
            count,
            lambda pages: self._groups.may_enter(pages, tier.nodes),
            hottest=True,
        )

    def coldest(
        self,
        nodes: tuple[int, ...],
        count: int,
        *,
        of_group: int | None = None,
        not_of: int | None = None,
    ) -> PageSet:
        """At least `count` demotable pages of `nodes`, or all there are, coldest first."""
        wanted = count + self._in_plan

        def ask(among: BoolArray | None) -> list[PageSet]:
            answers = [self._heat.coldest(node, wanted, among) for node in nodes]
            self.more = any(len(answer) == wanted for answer in answers)
            return answers

        if self._fair is None or of_group is not None:
            found = self._sorted(self._asked(ask, self._only(of_group)), hottest=False)
            return found if self._fair is None else self._leaving(found, nodes)
        leaving, held = self._past(
            ask,
            count,
            lambda pages: self._groups.may_leave(pages, nodes),
            hottest=False,
            without=set() if not_of is None else {not_of},
        )
        self._notes["group_min"] += len(held)
        return leaving

    def _leaving(self, cold: PageSet, nodes: tuple[int, ...]) -> PageSet:
        leaves = self._groups.may_leave(cold, nodes)
        self._notes["group_min"] += int(np.count_nonzero(~leaves))
        return pageset.take(cold, leaves)

    @property
    def _groups(self) -> Fairness:
        assert self._fair is not None
        return self._fair

    def _hotter(self, tier: Tier, count: int, least: float) -> Ask:
        nodes = self._below(tier)
        return lambda among: [self._heat.hottest(node, count, least, among) for node in nodes]

    def _below(self, tier: Tier) -> list[int]:
        """Nodes whose pages are promoted into the tier."""
        tiers = self._inputs.tiers
        return [
            node
            for slower in tiers.tiers[tier.rank + 1 :]
            if tiers.promotion_tier(slower.rank) is tier
            for node in slower.nodes
        ]

    def _only(self, group: int | None) -> BoolArray | None:
        return None if group is None else self._groups.targets({group}, inside=True)

    def _past(
        self,
        ask: Ask,
        count: int,
        allows: Callable[[PageSet], BoolArray],
        *,
        hottest: bool,
        without: set[int] | None = None,
    ) -> tuple[PageSet, PageSet]:
        """(pages that may move, pages that their groups reject), best first."""
        left_out = set(without or ())
        moving: list[PageSet] = []
        held: list[PageSet] = []
        while True:
            among = self._groups.targets(left_out, inside=False) if left_out else None
            answers = ask(among)
            pages = self._sorted(self._usable(pageset.concat(answers)), hottest=hottest)
            allowed = allows(pages)
            group = self._groups.group_of(pages)
            full = np.unique(group[~allowed])
            held.append(pageset.take(pages, ~allowed))
            have = sum(map(len, moving)) + int(np.count_nonzero(allowed))
            more = any(len(answer) == count for answer in answers)
            if not len(full) or not more or have >= count:
                moving.append(pageset.take(pages, allowed))
                break
            moving.append(pageset.take(pages, allowed & np.isin(group, full)))
            left_out.update(int(each) for each in full)
        return (
            self._sorted(pageset.concat(moving), hottest=hottest),
            self._sorted(pageset.concat(held), hottest=hottest),
        )

    def _asked(self, ask: Ask, among: BoolArray | None) -> PageSet:
        return self._usable(pageset.concat(ask(among)))

    def _usable(self, pages: PageSet) -> PageSet:
        settled = pages.idle_s >= self._min_residency_s
        lately = len(pages) - int(np.count_nonzero(settled))
        if lately:
            self._notes["cooldown"] += lately
            pages = pageset.take(pages, settled)
        nodes = set(pageset.nodes_of(pages)) if self._planned else set()
        for planned, left in self._planned:
            # A page is on one node: the moves planned from other nodes do not matter.
            if not nodes.isdisjoint(left):
                pages = pageset.take(pages, ~planned.has(pages.page))
        return pages

    @staticmethod
    def _sorted(pages: PageSet, *, hottest: bool) -> PageSet:
        heat = pages.heat
        in_order = heat[:-1] >= heat[1:] if hottest else heat[:-1] <= heat[1:]
        if np.count_nonzero(in_order) == len(in_order):
            return pages
        return pageset.take(pages, np.argsort(-heat if hottest else heat, kind="stable"))
