# SPDX-License-Identifier: Apache-2.0
"""Decisions for lenders: what may be lent, who gets it, taking back.

A revocation takes what is needed last, to whichever other place it is worth most. That it
ends within the bound follows from two rules: no more is ever parked on a GPU than can go to
the host in 60 % of that time (`plan.may_park`), and `hurry`: a lender that goes on taking
memory while it is given back gets more than it asks for, and all of it in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierd_gpu.links import CHUNK_BYTES, HOST, F64Array
from tierd_gpu.loans import Loan
from tierd_gpu.plan import may_park
from tierd_gpu.share import I64Array, divide
from tierd_gpu.tenant import Tenant
from tierd_gpu.tuning import RECLAIM
from tierd_gpu.wire import StateFlag

if TYPE_CHECKING:
    from tierd_gpu.harvest import GpuState, Harvester


def tick(core: Harvester, now_ns: int) -> None:
    """Sample every GPU, share out what it can lend, take back what it needs."""
    core.count_borrowed()
    for index, gpu in enumerate(core.gpus):
        gpu.lendable, gpu.loanable = _lendable(core, index, gpu, now_ns)
    if core.settings.techniques.peers:
        _lease(core, now_ns)
        most = RECLAIM.tick_commands
        for index in range(len(core.gpus)):
            most = _revoke(core, index, now_ns, most)


def _lendable(core: Harvester, index: int, gpu: GpuState, now_ns: int) -> tuple[int, int]:
    """Chunks that may be borrowed on a GPU, those that already are included; the same for loans."""
    settings = core.settings
    borrowed, room = gpu.borrowed_bytes, core.room(index) * CHUNK_BYTES
    if gpu.fresh:
        gpu.fresh = False
        gpu.most_own = max(gpu.most_own, gpu.total - room - borrowed)
        gpu.seen_ns = gpu.seen_ns if gpu.seen_ns >= 0 else now_ns
    if gpu.lost or gpu.seen_ns < 0 or now_ns - gpu.seen_ns < settings.observe_ns:
        return 0, 0
    spare = gpu.total * (1 - settings.own_margin) - gpu.most_own - settings.refill_bytes
    now = borrowed + room - settings.refill_bytes
    chunks = max(0, int(min(spare, now)) // CHUNK_BYTES)
    if borrowed and room < RECLAIM.floor_ratio * settings.floor_bytes:
        # It takes memory faster than it is given back bit by bit: all of it. Of loans, which the
        # driver may have evicted by now, what it needs, if NVML tells what it has.
        return 0, chunks if gpu.memory.own is not None else 0
    return chunks, chunks


def _lease(core: Harvester, now_ns: int) -> None:
    """Share every GPU among those that would borrow there, by need and link width.

    Tenants whose chunks are parked there and users with loans share alike, and what a user
    gets is shared among its loans. But loans are taken back before parked chunks: those have to
    be copied, loans have not.
    """
    borrowers = [t for t in core.tenants.values() if t.spec.borrows]
    if not borrowers and not core.loans.loans:
        return
    homeless = np.array([core.homeless(t) for t in borrowers], np.int64)
    wanting = (homeless > 0) | np.array([t.evicting > 0 for t in borrowers], np.bool_)
    peers = {
        session: core.cost.usable_peers(t.spec.home, t.blocked(now_ns))
        for session, t in core.tenants.items()
    }
    places = len(core.gpus)
    rates = np.array([peers[t.spec.session] for t in borrowers]).reshape(-1, places)
    for index, gpu in enumerate(core.gpus):
        most = int(gpu.total * core.settings.quota_share) // CHUNK_BYTES
        context = np.array([core.context_chunks(t, index) for t in borrowers], np.int64)
        need = np.minimum(most, homeless + RECLAIM.spare_chunks + context) * wanting
        # A tenant's rate to its own home is 0, and so is what it gets there.
        users = _users(core, index, peers, most, now_ns)
        loaned, weight = _table(list(users.values()))
        both = divide(gpu.loanable, np.append(need, loaned), np.append(rates[:, index], weight))
        granted, shares = both[: len(borrowers)], both[len(borrowers) :]
        if shares.any():
            parked = np.array([t.lent_count[index] for t in borrowers], np.int64)
            kept = divide(int(shares.sum()), np.maximum(0, parked - granted), np.ones(len(need)))
            granted = granted + kept
            shares = divide(int(shares.sum() - kept.sum()), loaned, weight)
        for user, share in zip(users.values(), shares.tolist(), strict=True):
            _grant(core, user, share, now_ns)
        granted = granted * (gpu.lendable > 0)
        for tenant, chunks in zip(
            borrowers, np.maximum(0, granted - context).tolist(), strict=True
        ):
            tenant.lease[index] = chunks


@dataclass(frozen=True, slots=True)
class _User:
    """One user's loans on one GPU: what each needs in chunks, what it weighs, and at most."""

    loans: list[Loan]
    context: list[int]
    need: I64Array
    weight: F64Array
    most: int


def _users(
    core: Harvester, index: int, peers: dict[int, F64Array], most: int, now_ns: int
) -> dict[int, _User]:
    """Those who have loans on a GPU or want some."""
    by_user: dict[int, list[Loan]] = {}
    for loan in core.loans.on(index):
        by_user.setdefault(loan.uid, []).append(loan)
    users = {}
    for uid, loans in by_user.items():
        context = [core.context_chunks(core.tenants[loan.session], index) for loan in loans]
        need = [loan.need + more for loan, more in zip(loans, context, strict=True)]
        weight = [loan.weight(float(peers[loan.session][index]), now_ns) for loan in loans]
        users[uid] = _User(loans, context, np.array(need, np.int64), np.array(weight), most)
    return users


def _table(users: list[_User]) -> tuple[I64Array, F64Array]:
    """What each user needs, and the weight of the loan of each that weighs most."""
    need = [min(user.most, int(user.need[user.weight > 0].sum())) for user in users]
    return np.array(need, np.int64), np.array([float(user.weight.max()) for user in users])


def _grant(core: Harvester, user: _User, share: int, now_ns: int) -> None:
    """Share what a user gets among its loans."""
    parts = divide(share, user.need, user.weight).tolist()
    for loan, part, context in zip(user.loans, parts, user.context, strict=True):
        core.loans.grant(loan, max(0, part - context), now_ns)


def hurry(age_ns: int, bound_ns: int) -> float:
    """The share of what is parked on a GPU that a revocation of this age takes at least."""
    first, last = RECLAIM.hurry_from, RECLAIM.hurry_all
    return min(1.0, max(0.0, (age_ns / bound_ns - first) / (last - first)))


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
        under_way = RECLAIM.tenant_commands - int(tenant.leaving.sum())
        wanted = min(over[tenant.spec.session], share, under_way)
        if wanted > 0:
            most -= _take_back(core, tenant, index, wanted, now_ns)
    return most


def _in_turn(core: Harvester, tenants: list[Tenant]) -> list[Tenant]:
    """Those of `tenants` whose chunks are read in this tick."""
    if len(tenants) <= RECLAIM.tenants_in_turn:
        return tenants
    first = core.ticks * RECLAIM.tenants_in_turn % len(tenants)
    return (tenants + tenants)[first : first + RECLAIM.tenants_in_turn]


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
        tenant.revoking_ns[index] = -1


def _take_back(core: Harvester, tenant: Tenant, index: int, over: int, now_ns: int) -> int:
    """Order `over` chunks away from a lender, the last needed first.

    Returns how many were ordered: chosen from a window, and of those at most `over`.
    """
    parked = tenant.at(index, RECLAIM.window_chunks)
    order = np.argsort(-tenant.expected_next(parked, now_ns), kind="stable")
    chosen = parked[order][:over].tolist()
    blocked = tenant.blocked(now_ns)
    flags = StateFlag.URGENT
    if core.settings.techniques.in_place:
        flags |= StateFlag.IN_PLACE
    for chunk in chosen:
        places = [HOST]
        places += [g for g in range(len(core.gpus)) if g != index and may_park(core, tenant, g)]
        first = not tenant.hosted[chunk]
        dest = core.cost.best_place(index, tenant.spec.home, 1.0, places, blocked, first=first)
        dest = HOST if dest == index else dest
        core.order(tenant, chunk, dest, flags=flags, now_ns=now_ns)
    return len(chosen)
