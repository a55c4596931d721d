# SPDX-License-Identifier: Apache-2.0
"""The watermark policy: keeps some fast memory free, and fills the rest with the hottest pages.

For every tier, fastest first:

1. A node with less free memory than the low watermark demotes its coldest pages up to the high
   watermark. Above the low one it demotes only pages that are not worth a move into free memory.
2. Groups get what their floors promise and give back what their caps forbid
   (`tierd.policy.limits`).
3. The hottest pages of the tiers below fill the free memory above the high watermark.
4. In a full tier, a hot page replaces the coldest page if the rule (`tierd.policy.rule`) finds the
   difference large and certain.

A page that tierd moved less than the migration cooldown ago stays where it is. 4 KiB pages of nodes
that the fast path serves (`Inputs.exchanged`) are promoted by step 3 only, because it sees each
access, while heat from a few scans a second finds too many pages worth an exchange.

Both watermarks lie above the kernel's own reserve, so that a promotion never wakes reclaim. The gap
between them keeps promotion and demotion from answering each other.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tierd.core import bounds
from tierd.core.access import F32Array
from tierd.core.migration import Direction, MigrationPlan, filled
from tierd.core.pagekey import PAGE_SIZE, I16Array, I64Array
from tierd.core.tiermap import Tier
from tierd.hotness.view import PageSet
from tierd.policy import pageset
from tierd.policy.candidates import Candidates
from tierd.policy.inputs import Inputs, Policy
from tierd.policy.limits import Fairness
from tierd.policy.rule import Contest, Rule, Verdict


@dataclass(frozen=True, slots=True)
class WatermarkSettings:
    """Settings of the policy.

    Attributes:
        low_watermark: demote when less than this fraction of a node is free (or less than
            the kernel's reserve, where that is larger).
        high_watermark: demote until this fraction is free; promotion stops here.
        margin: hysteresis: how much hotter, relatively, a page must be than the one it replaces.
        confidence: standard deviations by which the two must differ.
        min_residency_s: migration cooldown: seconds that a moved page stays where it is.
        max_moves_per_tick: the most folios considered for one plan and direction.
    """

    low_watermark: float
    high_watermark: float
    margin: float
    confidence: float
    min_residency_s: float
    max_moves_per_tick: int


class WatermarkPolicy(Policy):
    """The watermark policy. It holds settings only, and no state between ticks."""

    name = "watermark"

    def __init__(self, settings: WatermarkSettings) -> None:
        self.settings = settings

    @property
    def low_watermark(self) -> float:
        """See `Policy`."""
        return self.settings.low_watermark

    def decide(self, inputs: Inputs) -> MigrationPlan:
        """The moves to make now: all demotions, then all promotions, hottest first."""
        return self._decided(inputs).plan()

    def explain(self, inputs: Inputs, page: PageSet) -> Verdict:
        """The decision about one folio on a node that a tier has, and its reason."""
        from tierd.policy.explain import verdict

        return verdict(self._decided(inputs), page)

    def _decided(self, inputs: Inputs) -> Round:
        work = Round(inputs, self.settings)
        for tier in inputs.tiers.tiers:
            work.relieve(tier)
            work.keep_shares(tier)
            work.promote(tier)
        return work


class Round:
    """The state of one decision: free memory and budget left, planned moves, reasons."""

    def __init__(self, inputs: Inputs, settings: WatermarkSettings) -> None:
        self.inputs = inputs
        self.settings = settings
        self.rule = Rule(settings.margin, settings.confidence)
        self.left = inputs.budget.move_bytes
        self.notes: Counter[str] = Counter()
        self.moves: list[tuple[Direction, PageSet, I16Array]] = []
        self.low = {
            node: usage.low_bytes(settings.low_watermark) for node, usage in inputs.usage.items()
        }
        self.spare = {
            node: usage.free_bytes - self.low[node] for node, usage in inputs.usage.items()
        }
        """Free bytes above the low watermark, after the moves planned so far."""
        capacity = {node: usage.total_bytes for node, usage in inputs.usage.items()}
        self.fair = None if inputs.groups is None else Fairness(inputs.groups, capacity)
        self.find = Candidates(inputs, settings.min_residency_s, self.notes, self.fair)
        self.contests: dict[int, Contest] = {}
        """By rank of a tier: how far down pages came into it."""
        self.won: list[tuple[PageSet, F32Array]] = []
        """Planned promotions, and the hotness of what each displaces; 0 for free memory."""

    def _gap(self, node: int) -> int:
        share = self.settings.high_watermark - self.settings.low_watermark
        return int(share * self.inputs.usage[node].total_bytes)

    def _space(self, node: int) -> int:
        """Bytes that promotion may fill: free memory above the high watermark."""
        return max(0, self.spare[node] - self._gap(node)) if node in self.spare else 0

    def relieve(self, tier: Tier) -> None:
        """Demote the coldest pages of the tier's short nodes.

        Any page leaves below the low watermark; above it only unused ones, up to the high one.
        """
        for node in tier.nodes:
            usage = self.inputs.usage.get(node)
            if usage is None or usage.free_bytes >= self.low[node]:
                continue
            if self.inputs.tiers.demotion_tier(tier.rank) is None:
                self.notes["no_lower_tier"] += 1
                continue
            wanted = self.low[node] + self._gap(node) - usage.free_bytes
            need = min(wanted, self.left)
            if need < wanted:
                self.notes["rate_limit"] += (wanted - need) // PAGE_SIZE
            cold = self.find.coldest((node,), min(need // PAGE_SIZE + 1, self._limit))
            owed = pageset.prefix(cold, min(need, self.low[node] - usage.free_bytes))
            unused = pageset.take(cold, cold.heat <= self.rule.least)
            unused = pageset.prefix(unused, need)
            self._demote(tier, unused if len(unused) > len(owed) else owed)

    def keep_shares(self, tier: Tier) -> None:
        """Demote pages of groups above their caps; promote pages of groups below their floors."""
        if self.fair is None or self.inputs.tiers.demotion_tier(tier.rank) is None:
            return
        for group, excess in enumerate(self.fair.over_cap(tier.nodes)):
            if need := min(int(excess), self.left):
                own = self.find.coldest(tier.nodes, self._limit, of_group=group)
                self._demote(tier, pageset.prefix(own, need))
        for group, lack in enumerate(self.fair.below_floor(tier.nodes)):
            if lack:
                own = self.find.hottest(tier, self._limit, 0.0, of_group=group)
                space = min(int(lack), self.left)
                fits = np.cumsum(pageset.sizes(own)) <= space
                own = pageset.take(own, fits & self.fair.may_enter(own, tier.nodes))
                self._bring(tier, own, below_floor=group)

    def promote(self, tier: Tier) -> None:
        """Fill the tier's free memory with the hottest pages, then replace its coldest ones."""
        least = self.rule.least
        space = sum(self._space(node) for node in tier.nodes)
        if self.fair is None:
            # Sorting thousands of pages that replace nothing would be most of a tick's cost.
            to_win = self._least_to_win(tier)
            if to_win > least:
                least = to_win
                self.contests[tier.rank] = Contest(to_win, self.find.least_heat(tier))
            if self.inputs.exchanged:
                self._bring(tier, self.find.not_exchanged(tier, self._limit, least, space))
            else:
                self._bring_while_all_come(tier, least)
            return
        hot, capped = self.find.entering(tier, self._limit, least)
        hot = self.find.without_exchanged(hot, space)
        self.notes["group_max"] += len(capped)
        group = self.fair.group_of(capped)
        self._bring(tier, hot)
        for each in self.fair.capped:
            own = pageset.take(capped, group == each)
            self._bring(tier, pageset.take(own, self.fair.may_move(own)), instead_of=each)

    def _bring_while_all_come(self, tier: Tier, least: float) -> None:
        """Promote the hottest, and query more for as long as all of them are promoted."""
        asked = bounds.FIRST_HOT
        while limit := self._limit:
            hot = self.find.hottest(tier, min(asked, limit), least)
            more = self.find.more
            if not self._bring(tier, hot) or not more or asked >= limit:
                return
            asked *= 4

    def _least_to_win(self, tier: Tier) -> float:
        """A lower bound of the heat that a promotion needs; 0 while there is free memory.

        Pages below it are not queried, and not counted as rejected.
        """
        if any(self._space(node) >= PAGE_SIZE for node in tier.nodes):
            return 0.0
        if self.inputs.tiers.demotion_tier(tier.rank) is None:
            return 0.0
        victim = self.find.least_heat(tier)
        return self.rule.least_to_win(victim) if math.isfinite(victim) else 0.0

    def _bring(
        self,
        tier: Tier,
        hot: PageSet,
        *,
        instead_of: int | None = None,
        below_floor: int | None = None,
    ) -> bool:
        """Promote those of `hot`, best first, that fit or replace the tier's coldest pages.

        True if all of them are promoted.

        Args:
            instead_of: only pages of this group are displaced, and no free memory is used.
            below_floor: the pages are of this group, which is below its floor: they displace
                the coldest pages of others, however hot these are.
        """
        nodes = [node for node in tier.nodes if node in self.spare]
        if not nodes or not len(hot):
            return not len(hot)
        space = {node: 0 if instead_of is not None else self._space(node) for node in nodes}
        free = sum(space.values())
        ends = np.cumsum(pageset.sizes(hot))
        victims, wins, faced = self._victims(
            tier, hot, ends - free, instead_of=instead_of, below_floor=below_floor
        )
        if wins < len(hot) and instead_of is None and below_floor is None:
            refused_by = float(faced[wins]) if wins < len(faced) else None
            self.contests[tier.rank] = Contest(float(hot.heat[wins]), refused_by)
        # A replacement costs two moves, a promotion into free memory one.
        cost = ends + np.clip(ends - free, 0, None)
        chosen = min(wins, int(np.searchsorted(cost, self.left, side="right")))
        self.notes["rate_limit"] += wins - chosen
        self.notes["not_hotter"] += len(hot) - wins
        if not chosen:
            return False
        before = dict(self.spare)
        self._demote(tier, pageset.prefix(victims, int(ends[chosen - 1]) - free))
        for node in nodes:
            # Demoted pages make room for promoted ones, anywhere between the watermarks.
            space[node] += self.spare[node] - before[node]
        all_come = chosen == len(hot)
        hot = pageset.take(hot, slice(0, chosen))
        if below_floor is None:
            self.won.append((hot, faced[:chosen]))
        dest = filled(len(hot), -1, np.int16)
        for node in pageset.nodes_of(hot):
            own = hot.node == node
            order = self.inputs.tiers.nearest_first(node, tier)
            dest[own] = pageset.assign(pageset.take(hot, own), order, space)
        self._add(Direction.PROMOTE, hot, dest, "no room")
        return all_come

    def plan(self) -> MigrationPlan:
        """All that was planned, demotions first."""
        return self._joined(sorted(self.moves, key=lambda move: move[0]))

    def _joined(self, moves: list[tuple[Direction, PageSet, I16Array]]) -> MigrationPlan:
        """A plan of `moves` in their order, with the reasons for rejected pages."""
        notes = {reason: count for reason, count in self.notes.items() if count}
        if not moves:
            return MigrationPlan.empty(notes)
        pages = pageset.concat([move[1] for move in moves])
        return MigrationPlan(
            page=pages.page,
            order=pages.order,
            source=pages.node,
            dest=np.concatenate([move[2] for move in moves]),
            direction=np.concatenate([filled(len(m[1]), m[0], np.uint8) for m in moves]),
            heat=pages.heat,
            notes=notes,
        )

    @property
    def _limit(self) -> int:
        return min(self.settings.max_moves_per_tick, max(0, self.left) // PAGE_SIZE)

    def _victims(
        self,
        tier: Tier,
        hot: PageSet,
        shortfall: I64Array,
        *,
        instead_of: int | None,
        below_floor: int | None,
    ) -> tuple[PageSet, int, F32Array]:
        """(the tier's coldest pages, length of the prefix of `hot` that wins, displaced hotness).

        Displaced hotness is that of the last page that leaves for each of `hot`, 0 for free
        memory; it ends with the pages that may leave. `shortfall`, int64[len(hot)], are the bytes
        that must leave for hot[0..i] to fit.
        """
        fits = int(np.searchsorted(shortfall, 0, side="right"))
        into_room = np.zeros(fits, np.float32)
        if fits == len(hot) or self.inputs.tiers.demotion_tier(tier.rank) is None:
            return pageset.concat([]), fits, into_room
        heat, shortfall = hot.heat[fits:], shortfall[fits:]
        most = int(shortfall[-1]) // PAGE_SIZE + 1
        # An eighth more than two for each page: some of the coldest moved lately, and do not count.
        asked = max(
            min(bounds.FIRST_VICTIMS, 2 * most + bounds.FIRST_VICTIMS // 8),
            int(shortfall[0]) // PAGE_SIZE + 1,
        )
        # For 4 KiB pages at most one more query: thousands of promotions may need it.
        asked = min(self._limit, max(asked, most // 4))
        while True:
            passed_over = dict(self.notes)
            cold = self.find.coldest(tier.nodes, asked, of_group=instead_of, not_of=below_floor)
            # The last page that must leave for each further promotion.
            last = pageset.reach(cold, shortfall)
            known = int(np.searchsorted(last, len(cold), side="left"))
            faced = cold.heat[last[:known]]
            wins = known if below_floor is not None else self.rule.winners(heat[:known], faced)
            done = wins < known or known == len(heat)
            if done or asked == self._limit or not self.find.more:
                return cold, fits + wins, np.concatenate([into_room, faced])
            # All candidates are displaced: there may be more of them.
            asked = min(self._limit, 4 * asked)
            self.notes.clear()
            self.notes.update(passed_over)

    def _demote(self, tier: Tier, cold: PageSet) -> None:
        below = self.inputs.tiers.demotion_tier(tier.rank)
        if below is None:
            return
        if not len(cold):
            return
        for node in tier.nodes:
            own = pageset.take(cold, cold.node == node)
            order = self.inputs.tiers.nearest_first(node, below)
            # Down to the low watermark: promotions out of that tier free the memory again.
            dest = pageset.assign(own, order, {n: self.spare.get(n, 0) for n in order})
            self._add(Direction.DEMOTE, own, dest, "no room below")

    def _add(self, direction: Direction, pages: PageSet, dest: I16Array, refusal: str) -> None:
        """Plan the moves that have a destination."""
        placed = dest >= 0
        self.notes[refusal] += int(len(dest) - np.count_nonzero(placed))
        if self.fair is not None:
            allowed = self.fair.may_move(pages)
            self.notes["group_rate_limit"] += int(np.count_nonzero(placed & ~allowed))
            placed &= allowed
        pages = pageset.take(pages, placed)
        dest = dest[placed]
        if not len(pages):
            return
        self.moves.append((direction, pages, dest))
        self.find.planned(pages)
        if self.fair is not None:
            self.fair.moved(pages, dest)
        self.left -= pageset.total(pages)
        for sign, at in ((-1, dest), (1, pages.node)):
            for node, size in pageset.bytes_on(at, pages.order).items():
                if node in self.spare:
                    self.spare[node] += sign * size
