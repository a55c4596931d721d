# SPDX-License-Identifier: Apache-2.0
"""Memory that cannot move: it is left alone ever longer, and takes nothing from anybody else."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from fastpath_bench import two_tiers
from heat_words import S, batch, place, report
from policies import watermarks

from tierd.core import bounds
from tierd.core.migration import Fate, MigrationResult
from tierd.core.pagekey import U64Array, make_keys, target_of
from tierd.core.tiermap import NodeUsage
from tierd.core.tuning import PACING
from tierd.engine.refusals import Refusals
from tierd.engine.tracking import without
from tierd.hotness.table import HeatTable
from tierd.policy.inputs import Inputs
from tierd.policy.limits import RateLimiter, RateLimiterSettings
from tierd.policy.watermark import WatermarkPolicy

TICK_NS = S // 2
G = 1 << 30
MIB = 256
"""Pages."""
BUSY_NS, LASTS_NS = PACING.upkeep_interval_ns, bounds.REREAD_NS


@dataclass
class Tenant:
    """A process: how many pages, how hot, which of them refuse, and how.

    Attributes:
        mappings: how its pages are divided; one mapping where there are none.
        refuses: every so manyth page does; 0: none.
    """

    number: int
    pages: int
    rate: float
    refuses: int = 0
    fate: Fate = Fate.REFUSED
    mappings: int = 1
    tried: list[tuple[int, int]] = field(default_factory=list)
    """Times, and how many pages were refused then."""
    fast: int = 0
    """Pages that were promoted."""
    served_ns: int = 0
    """When nine tenths of what can move had been promoted."""

    @property
    def keys(self) -> U64Array:
        return make_keys(self.number, np.arange(0x1000, 0x1000 + self.pages, dtype=np.uint64))

    def spans(self) -> U64Array:
        edges = np.linspace(0x1000, 0x1000 + self.pages, self.mappings + 1).astype(np.uint64)
        return np.column_stack([edges[:-1], edges[1:]])


class Host:
    """What a tick does with refusals, policy and budget, in modelled time."""

    def __init__(self, *tenants: Tenant, space: int = 1 << 16) -> None:
        self.tenants = {each.number: each for each in tenants}
        self.heat = HeatTable(capacity_pages=1 << 18, half_life_s=5.0)
        self.refusals = Refusals(self.heat, lambda n: self.tenants[n].spans(), space)
        self.limiter = RateLimiter(RateLimiterSettings(200_000_000, 0.2))
        self.policy = WatermarkPolicy(watermarks(low_watermark=0.02, high_watermark=0.04))
        self.tiers = two_tiers()
        self.now = self.start = S
        for each in tenants:
            self.heat.ingest(batch(each.keys, each.rate, at=self.now))
            place(self.heat, each.keys, 1)

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * S) // TICK_NS):
            self.now += TICK_NS
            for each in self.tenants.values():
                self.heat.ingest(batch(each.keys, each.rate / 2, at=self.now))
            self.tick()

    def tick(self) -> None:
        fast = sum(each.fast for each in self.tenants.values()) << 12
        usage = {0: NodeUsage(G, G - fast, 44 << 20), 1: NodeUsage(2 * G, G, 88 << 20)}
        budget = self.limiter.next(TICK_NS / S)
        limits = self.limiter.limits(budget)
        self.heat.limit(*np.array(list(limits.items()), np.uint64).reshape(-1, 2).T)
        self.refusals.release(self.now)
        plan = self.policy.decide(Inputs(self.heat, self.tiers, usage, budget))
        fate, node = np.full(len(plan), Fate.MOVED, np.uint8), plan.dest.copy()
        for each in self.tenants.values():
            own = target_of(plan.page) == each.number
            refused = own & (plan.page % (each.refuses or 1) == 0) & bool(each.refuses)
            fate[refused], node[refused] = each.fate, plan.source[refused]
            if count := np.count_nonzero(refused):
                each.tried.append((self.now - self.start, int(count)))
            each.fast += int(np.count_nonzero(own & ~refused))
            can_move = each.pages - (each.pages // each.refuses if each.refuses else 0)
            if not each.served_ns and each.fast >= 0.9 * can_move:
                each.served_ns = self.now - self.start
        done = MigrationResult(plan, fate, node, {}, 0, 0, 0, 0)
        self.heat.moved(done)
        self.refusals.see(done, self.now)
        self.limiter.see(done)


def alone() -> int:
    """How long a good tenant takes where there is no other, ns."""
    host = Host(Tenant(9, 96 * MIB, 20.0))
    host.run(10)
    return host.tenants[9].served_ns


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.BUSY, Fate.FAILED])
@pytest.mark.parametrize("mib", [8, 64, 192])
def test_a_tenant_whose_pages_never_move_does_not_keep_another_waiting(mib: int, fate: Fate):
    """Hot pages of one that cannot move: shared by two processes, pinned, or of another error."""
    host = Host(Tenant(1, mib * MIB, 40.0, 1, fate), Tenant(9, 96 * MIB, 20.0))
    host.run(10)
    assert 0 < host.tenants[9].served_ns <= alone() + TICK_NS
    assert host.limiter.in_force == 1.0
    assert host.limiter.shares.keys() == {1}


def test_a_tenant_that_comes_later_is_served_as_if_it_were_alone():
    host = Host(Tenant(1, 192 * MIB, 40.0, 1, Fate.BUSY))
    host.run(40)
    late = Tenant(9, 96 * MIB, 20.0)
    host.tenants[9] = late
    host.heat.ingest(batch(late.keys, late.rate, at=host.now))
    place(host.heat, late.keys, 1)
    began = host.now - host.start
    host.run(10)
    assert late.served_ns - began <= alone()


def test_three_of_ten_tenants_that_refuse_do_not_keep_the_seven_waiting():
    bad = [Tenant(n, 64 * MIB, 40.0, 1, Fate(3 + 2 * (n % 2))) for n in range(3)]
    good = [Tenant(n, 14 * MIB, 20.0) for n in range(3, 10)]
    host = Host(*bad, *good)
    host.run(10)
    assert max(each.served_ns for each in good) <= alone() + 2 * TICK_NS
    assert host.limiter.shares.keys() == {0, 1, 2}


def test_of_a_tenant_that_is_pinned_in_part_the_rest_moves():
    """Registered buffers within a heap: their mapping has pages that do move."""
    host = Host(Tenant(1, 64 * MIB, 40.0, 2, Fate.BUSY), Tenant(9, 96 * MIB, 20.0))
    host.run(60)
    assert host.tenants[1].served_ns
    assert host.tenants[9].served_ns <= alone() + TICK_NS


@pytest.mark.parametrize(("fate", "first_ns"), [(Fate.REFUSED, LASTS_NS), (Fate.BUSY, BUSY_NS)])
def test_each_try_of_a_mapping_is_twice_as_long_after_the_one_before(fate: Fate, first_ns: int):
    host = Host(Tenant(1, MIB, 40.0, 1, fate))
    host.run(15 * first_ns / S + 5)
    times = [time for time, _ in host.tenants[1].tried]
    assert (
        np.diff(times).tolist()
        == [first_ns, 2 * first_ns, 4 * first_ns, 8 * first_ns][: len(times) - 1]
    )
    assert len(times) >= 4


def test_the_wait_ends_at_the_longest():
    host = Host(Tenant(1, 100, 40.0, 1))
    refused = report(host.tenants[1].keys, Fate.REFUSED, 1)
    for _ in range(20):
        host.refusals.see(refused, host.now)
        host.now += 2 * bounds.MAX_LEFT_ALONE_NS
        host.refusals.release(host.now)
    host.refusals.see(refused, host.now)
    host.refusals.release(host.now + bounds.MAX_LEFT_ALONE_NS - 1)
    assert not len(host.heat.hottest(1, 100))
    host.refusals.release(host.now + bounds.MAX_LEFT_ALONE_NS)
    assert len(host.heat.hottest(1, 100)) == 100


def test_single_pages_that_refuse_leave_their_mapping_alone_only_where_none_moves():
    host = Host(Tenant(1, 200, 40.0))
    keys = host.tenants[1].keys
    host.refusals.see(report(keys[: PACING.few_pages - 1], Fate.BUSY, 1), host.now)
    assert host.refusals.pages()["busy"] == PACING.few_pages - 1
    host.refusals.see(report(keys[100:101], Fate.MOVED, 0), host.now)
    host.refusals.see(report(keys[70:72], Fate.BUSY, 1), host.now)
    assert host.refusals.pages()["busy"] == PACING.few_pages + 1
    host.refusals.see(report(keys[101:190], Fate.BUSY, 1), host.now)
    assert host.refusals.pages()["busy"] == 200
    assert host.refusals.spans() == [(int(keys[0]), int(keys[-1]) + 1)]


def test_a_mapping_that_moves_again_is_no_more_left_alone():
    host = Host(Tenant(1, 200, 40.0))
    keys = host.tenants[1].keys
    host.refusals.see(report(keys[:100], Fate.BUSY, 1), host.now)
    host.now += BUSY_NS
    host.refusals.release(host.now)
    host.refusals.see(report(keys[:100], Fate.MOVED, 0), host.now)
    assert host.refusals.spans() == []
    assert host.refusals.retried == {"moved": 100, "refused": 0}
    # The next refusal is as if it were the first.
    host.refusals.see(report(keys[:100], Fate.BUSY, 1), host.now)
    host.refusals.release(host.now + BUSY_NS)
    assert len(host.heat.hottest(1, 200)) == 200


def test_one_mapping_of_a_process_leaves_its_others_alone():
    """A shared memfd beside anonymous memory of the same process."""
    tenant = Tenant(1, 200, 40.0, mappings=2)
    host = Host(tenant)
    host.refusals.see(report(tenant.keys[:90], Fate.REFUSED, 1), host.now)
    assert sorted(host.heat.hottest(1, 200).page) == sorted(tenant.keys[100:])


def test_what_is_remembered_has_a_bound_and_what_is_dropped_is_counted():
    host = Host(Tenant(1, 200, 40.0, mappings=100), space=50)
    keys = host.tenants[1].keys
    host.refusals.see(report(keys[:40], Fate.REFUSED, 1), host.now)
    host.refusals.see(report(keys[100:140], Fate.BUSY, 1), host.now)
    assert host.refusals.dropped == 30
    # Those that would have been tried next are found again.
    assert host.refusals.pages() == {"refused": 40, "busy": 10, "failed": 0}
    assert len(host.heat.hottest(1, 200)) == 200 - 50


def test_a_full_node_and_pages_that_are_gone_say_nothing_of_pages():
    host = Host(Tenant(1, 200, 40.0))
    for fate in (Fate.NO_ROOM, Fate.GONE, Fate.NOT_TRIED, Fate.JOINED, Fate.ALREADY_THERE):
        host.refusals.see(report(host.tenants[1].keys, fate, 1), host.now)
    assert not any(host.refusals.pages().values())


def test_only_mappings_of_what_a_report_is_of_are_looked_at():
    """One process whose pages refuse costs the reports of others nothing."""
    one, other = Tenant(1, 200, 40.0), Tenant(2, 200, 40.0)
    host, asked = Host(one, other), []

    def mappings(number: int) -> U64Array:
        asked.append(number)
        return host.tenants[number].spans()

    refusals = Refusals(host.heat, mappings, 1 << 16)
    refusals.see(report(one.keys, Fate.MOVED, 0), host.now)
    assert asked == []
    refusals.see(report(one.keys[:10], Fate.BUSY, 1), host.now)
    refusals.see(report(other.keys, Fate.MOVED, 0), host.now)
    assert asked == [1]
    refusals.see(report(one.keys[100:], Fate.MOVED, 0), host.now)
    assert asked == [1, 1]


def test_a_process_that_ended_leaves_nothing_to_the_next_with_its_number():
    host = Host(Tenant(1, 200, 40.0))
    host.refusals.see(report(host.tenants[1].keys[:40], Fate.BUSY, 1), host.now)
    host.refusals.forget(1)
    host.refusals.see(report(host.tenants[1].keys[100:140], Fate.BUSY, 1), host.now)
    assert host.refusals.pages()["busy"] == 40


def test_victims_that_cannot_leave_are_passed_over():
    """Pinned cold pages in fast memory: others leave in their place, and hot pages come in."""
    cold, warm, hot = Tenant(1, 100, 0.1), Tenant(2, 100, 0.2), Tenant(3, 100, 400.0)
    host = Host(cold, warm, hot)
    for each in (cold, warm):
        place(host.heat, each.keys, 0)
    host.refusals.see(report(cold.keys, Fate.BUSY, 0), host.now)
    assert set(target_of(host.heat.coldest(0, 50).page).tolist()) == {2}


def test_a_page_and_a_mapping_are_told_why_and_for_how_long():
    host = Host(Tenant(1, 200, 40.0))
    keys = host.tenants[1].keys
    host.refusals.see(report(keys[:1], Fate.BUSY, 1), host.now)
    told = host.refusals.why(int(keys[0]), host.now + S)
    assert "refused to move it: it is pinned" in told
    assert told.endswith("left alone for 2 s, of which 1 s are left")
    assert host.refusals.why(int(keys[1]), host.now) == ""
    host.refusals.see(report(keys[1:80], Fate.REFUSED, 1), host.now)
    assert "refused to move its mapping: other processes map it" in host.refusals.why(
        int(keys[150]), host.now
    )
    assert host.refusals.why(int(keys[150]), host.now + LASTS_NS) == ""


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ([], [(10, 20), (30, 40)]),
        ([(0, 100)], []),
        ([(12, 14), (18, 33), (50, 60)], [(10, 12), (14, 18), (33, 40)]),
        ([(20, 30)], [(10, 20), (30, 40)]),
    ],
)
def test_spans_without_what_is_left_alone(
    gone: list[tuple[int, int]], expected: list[tuple[int, int]]
):
    assert without([(10, 20), (30, 40)], gone) == expected


def test_one_huge_folio_that_refuses_leaves_its_mapping_alone():
    """A refusal of 2 MiB costs as much as its move: 64 of them would be a long wait for others."""
    host = Host(Tenant(1, 2048, 40.0))
    key = host.tenants[1].keys[512:513]
    refused = report(key, Fate.BUSY, 1)
    refused.plan.order[:] = 9
    host.refusals.see(refused, host.now)
    assert host.refusals.pages()["busy"] == 2048
    assert not len(host.heat.hottest(1, 100))


def test_a_large_mapping_is_tried_again_by_a_part_of_it():
    """All of it might be refused again, at the cost of moves."""
    host = Host(Tenant(1, 16 * MIB, 40.0, 1, Fate.BUSY))
    host.run(20 * BUSY_NS / S)
    first, *more = [count for _, count in host.tenants[1].tried]
    assert first > 512
    assert more
    assert max(more) <= 512


def test_of_a_part_that_nobody_plans_all_is_tried():
    host = Host(Tenant(1, 16 * MIB, 40.0))
    keys = host.tenants[1].keys
    host.refusals.see(report(keys[: 2 * PACING.few_pages], Fate.BUSY, 1), host.now)
    host.refusals.release(host.now + BUSY_NS)
    assert len(host.heat.hottest(1, 16 * MIB)) == 512
    host.refusals.release(host.now + 2 * BUSY_NS - 1)
    assert len(host.heat.hottest(1, 16 * MIB)) == 512
    host.refusals.release(host.now + 2 * BUSY_NS)
    assert len(host.heat.hottest(1, 16 * MIB)) == 16 * MIB


def test_a_part_that_moves_lets_all_of_its_mapping_move():
    host = Host(Tenant(1, 16 * MIB, 40.0))
    keys = host.tenants[1].keys
    host.refusals.see(report(keys[: 2 * PACING.few_pages], Fate.BUSY, 1), host.now)
    host.refusals.release(host.now + BUSY_NS)
    host.refusals.see(report(keys[:1], Fate.MOVED, 0), host.now + BUSY_NS)
    assert len(host.heat.hottest(1, 16 * MIB)) >= 16 * MIB - 1
    assert host.refusals.spans() == []


def test_a_mapping_that_is_split_while_it_waits_leaves_no_page_behind():
    """mprotect or munmap of a part: what has no mapping that refuses is let go."""
    tenant = Tenant(1, 8 * MIB, 40.0)
    host = Host(tenant)
    keys, half = tenant.keys, 4 * MIB
    host.refusals.see(report(keys[: 2 * PACING.few_pages], Fate.BUSY, 1), host.now)
    host.refusals.release(host.now + BUSY_NS)
    tenant.mappings = 2
    host.refusals.see(report(keys[:1], Fate.BUSY, 1), host.now + BUSY_NS)
    assert host.refusals.spans() == [(int(keys[0]), int(keys[half]))]
    assert sorted(host.heat.hottest(1, 8 * MIB).page) == sorted(keys[half:])
    # It waits for twice as long as before.
    host.refusals.release(host.now + 3 * BUSY_NS - 1)
    assert len(host.heat.hottest(1, 8 * MIB)) == half


def test_a_mapping_that_begins_elsewhere_than_before_is_known_still():
    tenant = Tenant(1, 8 * MIB, 40.0)
    host = Host(tenant)
    keys = tenant.keys
    host.refusals.see(report(keys[: 2 * PACING.few_pages], Fate.BUSY, 1), host.now)
    host.refusals.release(host.now + BUSY_NS)
    host.refusals._mappings_of = lambda _: tenant.spans() + np.array([100, 0], np.uint64)
    host.refusals.see(report(keys[110:111], Fate.BUSY, 1), host.now + BUSY_NS)
    assert host.refusals.spans() == [(int(keys[100]), int(keys[-1]) + 1)]


def test_a_page_by_which_a_mapping_is_tried_again_is_not_told_to_be_left_alone():
    host = Host(Tenant(1, 8 * MIB, 40.0))
    keys = host.tenants[1].keys
    host.refusals.see(report(keys[: 2 * PACING.few_pages], Fate.BUSY, 1), host.now)
    host.refusals.release(host.now + BUSY_NS)
    assert host.refusals.why(int(keys[1]), host.now + BUSY_NS) == ""
    assert "its mapping" in host.refusals.why(int(keys[600]), host.now + BUSY_NS)
