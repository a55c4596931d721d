# SPDX-License-Identifier: Apache-2.0
"""Decisions for one borrower: room at home, prefetch, use in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierd_gpu.links import CHUNK_BYTES, HOST
from tierd_gpu.predict import I32Array
from tierd_gpu.tenant import NOWHERE, I64Array, Tenant
from tierd_gpu.tuning import COST, PLAN, RECLAIM
from tierd_gpu.wire import StateFlag

if TYPE_CHECKING:
    from tierd_gpu.harvest import Harvester


def plan(core: Harvester, tenant: Tenant, now_ns: int) -> None:
    """Decide commands for `tenant`; they wait in it."""
    settings, use = core.settings, core.settings.techniques
    if not tenant.spec.borrows or not tenant.end:
        return
    window = tenant.predictor.next(PLAN.lookahead_uses, tenant.end)
    window = window[tenant.live[window]]
    near = window[: _reach(tenant, window, settings.prefetch_chunks)]
    wanted = _wanted(core, tenant, window, near, now_ns) if use.prefetch else near[:0]
    often = _often(core, tenant)
    if often:
        wanted = np.array(list(dict.fromkeys(often + wanted.tolist())), np.int32)
    free = core.room(tenant.spec.home) - tenant.fetching
    # What is expected stays, as long as that leaves half of the home to choose from.
    half = int(tenant.count[tenant.spec.home]) // 2
    spared = (window if use.reuse else near)[:half]
    _make_room(core, tenant, spared, free, wanted=len(wanted), now_ns=now_ns)
    tenant.brought += _fetch(core, tenant, wanted, free - PLAN.fault_chunks, now_ns)


def _reach(tenant: Tenant, window: I32Array, chunks: int) -> int:
    """How far the window goes until `chunks` of it are away from home."""
    away = np.cumsum(tenant.place[window] != tenant.spec.home)
    return int(np.searchsorted(away, chunks, side="right"))


def _wanted(
    core: Harvester, tenant: Tenant, window: I32Array, near: I32Array, now_ns: int
) -> I32Array:
    """Of the next chunks, those that are worth bringing home; others are used in place.

    No more of them between two reports of uses: what was told last is then no longer where
    the program is.
    """
    away = (tenant.place[near] != tenant.spec.home) & (tenant.place[near] != NOWHERE)
    idle = near[away & (tenant.busy[near] == 0)]
    if core.settings.techniques.in_place:
        beside = _moves_fit(core, tenant, len(window))
        worth = [
            not tenant.in_place[c] or (beside and _dense(core, tenant, c)) for c in idle.tolist()
        ]
        idle = idle[np.array(worth, np.bool_)]
    allowed = [core.may_bounce(tenant, chunk, now_ns) for chunk in idle.tolist()]
    most = core.settings.prefetch_chunks - tenant.brought
    return np.asarray(idle[np.array(allowed, np.bool_)][: max(0, most)])


def _uses(core: Harvester, tenant: Tenant, chunk: int) -> float:
    """Uses expected while a chunk would stay at home."""
    every = tenant.every_ns[chunk]
    if np.isnan(every):
        return 1.0
    return float(np.clip(PLAN.horizon_ns / every, 1.0, PLAN.most_uses))


def _dense(core: Harvester, tenant: Tenant, chunk: int) -> bool:
    """Whether a chunk that is used where it is would be better at home."""
    here, uses = int(tenant.place[chunk]), _uses(core, tenant, chunk)
    return core.cost.worth_fetching(here, tenant.spec.home, float(tenant.pages[chunk]), uses)


def _moves_fit(core: Harvester, tenant: Tenant, chunks: int) -> bool:
    """Whether what is away of the next chunks can come home while kernels compute.

    A fetch saves a read in place, and costs the link that read and the move of a chunk that
    makes place: where kernels wait for the link anyway, it costs more than it saves.
    """
    kernels_ns = tenant.kernel_ns * tenant.predictor.ahead(PLAN.lookahead_uses)
    away = chunks * core.homeless(tenant) / max(1, int(tenant.count.sum()))
    return kernels_ns > away * core.cost.exchange_ns(HOST, tenant.spec.home)


def _often(core: Harvester, tenant: Tenant) -> list[int]:
    """Chunks that were lately used in place, and more often than others."""
    often = [c for c in dict.fromkeys(tenant.remote) if tenant.in_place[c] and not tenant.busy[c]]
    tenant.remote.clear()
    most_ns = tenant.again_ns / PLAN.often_ratio
    return [c for c in often if tenant.every_ns[c] <= most_ns and _dense(core, tenant, c)]


def _make_room(
    core: Harvester, tenant: Tenant, spared: I32Array, free: int, *, wanted: int, now_ns: int
) -> None:
    """Send chunks away from home until enough is free ahead of need."""
    settings = core.settings
    ahead = settings.home_free_chunks if settings.techniques.pre_evict else wanted
    need = min(ahead - free - tenant.evicting, PLAN.victims, PLAN.commands - len(tenant.orders))
    if need <= 0:
        return
    home = tenant.spec.home
    # A GPU holds no more; a tenant that says otherwise is read a part at a time.
    here = tenant.at(home, core.gpus[home].total // CHUNK_BYTES)
    soon = tenant.scratch
    soon[spared] = True
    here = here[~soon[here] & (now_ns - tenant.last_ns[here] > COST.fault_ns)]
    soon[spared] = False
    blocked = tenant.blocked(now_ns)
    for chunk in _victims(core, tenant, here, need, now_ns).tolist():
        places = [HOST]
        if settings.techniques.peers:
            places += [g for g in range(len(core.gpus)) if may_park(core, tenant, g)]
        uses = PLAN.unknown_uses if np.isnan(tenant.every_ns[chunk]) else 1.0
        first = not tenant.hosted[chunk]
        dest = core.cost.best_place(home, home, uses, places, blocked, first=first)
        if dest != home:
            flags = StateFlag.IN_PLACE if settings.techniques.in_place else StateFlag(0)
            core.order(tenant, chunk, dest, flags=flags, now_ns=now_ns)


def _victims(core: Harvester, tenant: Tenant, here: I64Array, need: int, now_ns: int) -> I64Array:
    """The chunks that are needed last; without that knowledge, those longest here."""
    if core.settings.techniques.reuse:
        order = -tenant.expected_next(here, now_ns)
    else:
        order = tenant.arrived_ns[here]
    if len(here) > need:
        few = np.argpartition(order, need)[:need]
        here, order = here[few], order[few]
    return here[np.argsort(order, kind="stable")]


def may_park(core: Harvester, tenant: Tenant, gpu: int) -> bool:
    """Whether a neighbour takes one more chunk."""
    if core.settings.durable:
        return False
    one_ns = core.cost.alone_ns(gpu, HOST, first=True)
    within = core.parked_ns(gpu) + one_ns <= RECLAIM.parked_ratio * core.settings.revoke_bound_ns
    return within and core.room_for(tenant, gpu) > 0


def _fetch(core: Harvester, tenant: Tenant, wanted: I32Array, space: int, now_ns: int) -> int:
    """Bring chunks home in the order of their expected use; returns how many."""
    home = tenant.spec.home
    space = min(space, PLAN.commands - len(tenant.orders))
    blocked = tenant.blocked(now_ns)
    before = len(tenant.orders)
    for chunk in wanted[: max(0, space)].tolist():
        if not blocked[int(tenant.place[chunk]), home]:
            core.order(tenant, chunk, home, now_ns=now_ns)
    return len(tenant.orders) - before
