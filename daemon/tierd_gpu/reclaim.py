# SPDX-License-Identifier: Apache-2.0
"""Decisions for lenders: what may be lent, who gets it, taking back.

A revocation takes what is needed last, to whichever other place it is worth most. That it
ends within the bound follows from two rules: no more is ever parked on a GPU than can go to
the host in 60 % of that time (`plan.may_park`), and `hurry`: a lender that goes on taking
memory while it is given back gets more than it asks for, and all of it in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierd_gpu.links import CHUNK_BYTES, HOST
from tierd_gpu.plan import may_park
from tierd_gpu.share import divide
from tierd_gpu.tenant import Tenant
from tierd_gpu.wire import Op, StateFlag

if TYPE_CHECKING:
    from tierd_gpu.harvest import GpuState, Harvester

HURRY_FROM, HURRY_ALL = 0.1, 0.25
"""Shares of the revoke bound: how old a revocation is when it takes more than was asked
for, and when everything that is parked there."""
TICK_COMMANDS = 3
"""Chunks taken back in one tick, in multiples of `outstanding`, from all tenants together."""
UNDER_WAY = 4
"""Commands that give memory back under way for one tenant, in multiples of `outstanding`."""
WINDOW = 4096
"""Parked chunks, of one tenant on one GPU, that are compared in one tick."""
IN_TURN = 4
"""Tenants from whom memory of one GPU is taken back in one tick."""


def tick(core: Harvester, now_ns: int) -> None:
    """Sample every GPU, share out what it can lend, take back what it needs."""
    for index, gpu in enumerate(core.gpus):
        gpu.lendable = _lendable(core, index, gpu, now_ns)
    if core.settings.techniques.peers:
        _lease(core, now_ns)
        most = TICK_COMMANDS * core.settings.outstanding
        for index in range(len(core.gpus)):
            most = _revoke(core, index, now_ns, most)


def _lendable(core: Harvester, index: int, gpu: GpuState, now_ns: int) -> int:
    """Chunks that may be borrowed on a GPU, those that already are included."""
    settings = core.settings
    borrowed, room = gpu.borrowed_bytes, core.room(index) * CHUNK_BYTES
    if gpu.fresh:
        gpu.fresh = False
        gpu.most_own = max(gpu.most_own, gpu.total - room - borrowed)
        gpu.seen_ns = gpu.seen_ns if gpu.seen_ns >= 0 else now_ns
    if gpu.lost or gpu.seen_ns < 0 or now_ns - gpu.seen_ns < settings.observe_ns:
        return 0
    if borrowed and room < settings.floor_bytes // 2:
        # It takes memory faster than it is given back bit by bit: all of it.
        return 0
    spare = gpu.total * (1 - settings.own_margin) - gpu.most_own - settings.refill_bytes
    now = borrowed + room - settings.refill_bytes
    return max(0, int(min(spare, now)) // CHUNK_BYTES)


def _lease(core: Harvester, now_ns: int) -> None:
    """Share every GPU among those that would borrow there, by need and link width."""
    borrowers = [t for t in core.tenants.values() if t.spec.borrows]
    if not borrowers:
        return
    homeless = np.array([core.homeless(t) for t in borrowers], np.int64)
    wanting = (homeless > 0) | np.array([t.evicting > 0 for t in borrowers])
    rates = np.array([core.cost.usable_peers(t.spec.home, t.blocked(now_ns)) for t in borrowers])
    for index, gpu in enumerate(core.gpus):
        most = int(gpu.total * core.settings.quota_share) // CHUNK_BYTES
        context = np.array([core.context_chunks(t, index) for t in borrowers], np.int64)
        need = np.minimum(most, homeless + 64 + context) * wanting
        # A tenant's rate to its own home is 0, and so is what it gets there.
        granted = divide(gpu.lendable, need, rates[:, index])
        for tenant, chunks in zip(
            borrowers, np.maximum(0, granted - context).tolist(), strict=True
        ):
            tenant.lease[index] = chunks


def hurry(age_ns: int, bound_ns: int) -> float:
    """The share of what is parked on a GPU that a revocation of this age takes at least."""
    return min(1.0, max(0.0, (age_ns / bound_ns - HURRY_FROM) / (HURRY_ALL - HURRY_FROM)))


def _revoke(core: Harvester, index: int, now_ns: int, most: int) -> int:
    """Tenants with more than their lease give it back; returns the commands of `most` left.

    How old a revocation is is each tenant's own: one that gives nothing back hurries nobody.
    """
    guests = [t for t in core.tenants.values() if t.spec.home != index]
    for tenant in guests:
        _time_revocation(core, tenant, index, now_ns)
    over = {t.spec.session: int(t.count[index] - t.lease[index] - t.leaving[index]) for t in guests}
    owing = _in_turn(core, [tenant for tenant in guests if over[tenant.spec.session] > 0])
    for position, tenant in enumerate(owing):
        share = most // (len(owing) - position)
        under_way = UNDER_WAY * core.settings.outstanding - int(tenant.leaving.sum())
        wanted = min(over[tenant.spec.session], share, under_way)
        if wanted > 0:
            most -= _take_back(core, tenant, index, wanted, now_ns)
    return most


def _in_turn(core: Harvester, tenants: list[Tenant]) -> list[Tenant]:
    """Those of `tenants` whose chunks are read in this tick."""
    if len(tenants) <= IN_TURN:
        return tenants
    first = core.ticks * IN_TURN % len(tenants)
    return (tenants + tenants)[first : first + IN_TURN]


def _time_revocation(core: Harvester, tenant: Tenant, index: int, now_ns: int) -> None:
    """Note when a tenant has to give back and when it has; the older, the smaller its lease."""
    bound, since = core.settings.revoke_bound_ns, int(tenant.revoking_ns[index])
    pending = tenant.lent_count[index] > tenant.lease[index]
    if core.gpus[index].lost:
        tenant.revoking_ns[index] = -1  # nobody waits for the memory of a GPU that is gone
    elif pending and since < 0:
        tenant.revoking_ns[index] = now_ns
        core.counts["revocations"] += 1
    elif pending:
        kept = int(tenant.lent_count[index] * (1 - hurry(now_ns - since, bound)))
        tenant.lease[index] = min(int(tenant.lease[index]), kept)
    elif since >= 0:
        core.counts["revocations_hurried"] += hurry(now_ns - since, bound) > 0
        core.revoke_ns.append(now_ns - since)
        del core.revoke_ns[:-4096]
        tenant.revoking_ns[index] = -1


def _take_back(core: Harvester, tenant: Tenant, index: int, over: int, now_ns: int) -> int:
    """Order `over` chunks away from a lender: the removable first, then the last needed.

    Returns how many were ordered: chosen from a window, and of those at most `over`.
    """
    parked = tenant.at(index, WINDOW)
    order = np.lexsort((-tenant.expected_next(parked, now_ns), ~tenant.host_copy[parked]))
    chosen = parked[order][:over].tolist()
    blocked = tenant.blocked(now_ns)
    for chunk in chosen:
        if tenant.host_copy[chunk]:
            core.order(tenant, chunk, Op.DROP, HOST, flags=StateFlag.URGENT, now_ns=now_ns)
            continue
        places = [HOST]
        places += [g for g in range(len(core.gpus)) if g != index and may_park(core, tenant, g)]
        first = not tenant.hosted[chunk]
        dest, _ = core.cost.best_place(index, tenant.spec.home, 1.0, places, blocked, first=first)
        dest = HOST if dest == index else dest
        flags = StateFlag.URGENT
        if core.settings.techniques.in_place:
            flags |= StateFlag.IN_PLACE
        core.order(tenant, chunk, Op.MOVE, dest, flags=flags, now_ns=now_ns)
    return len(chosen)
