# SPDX-License-Identifier: Apache-2.0
"""Decisions for one borrower: room at home, prefetch, staging, use in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierd_gpu.links import CHUNK_BYTES, HOST
from tierd_gpu.predict import I32Array
from tierd_gpu.tenant import NOWHERE, I64Array, Tenant
from tierd_gpu.wire import Op, StateFlag

if TYPE_CHECKING:
    from tierd_gpu.harvest import Harvester

PER_TURN = 48
"""Victims chosen in one turn, at most."""
KEEP_FREE = 2
"""Chunks of free memory at home that prefetches leave for faults."""
WINDOW = 512
"""Uses ahead that are looked at."""
STAGING = 6
"""Copies under way to one neighbour, at most: what its link carries between two turns."""
NO_FLAG = StateFlag(0)


def plan(core: Harvester, tenant: Tenant, now_ns: int) -> None:
    """Decide commands for `tenant`; they wait in it."""
    settings, use = core.settings, core.settings.techniques
    if not tenant.spec.borrows or not tenant.end:
        return
    window = tenant.predictor.next(WINDOW, tenant.end)
    window = window[tenant.live[window]]
    near = window[: _reach(tenant, window, settings.prefetch_chunks)]
    if use.cancel and tenant.predictor.jumped:
        _cancel(tenant, window)
    tenant.predictor.jumped = False
    wanted = _wanted(core, tenant, near, now_ns) if use.prefetch else near[:0]
    free = core.gpus[tenant.spec.home].free // CHUNK_BYTES - tenant.fetching
    # What is expected stays, as long as that leaves half of the home to choose from.
    half = int(tenant.count[tenant.spec.home]) // 2
    spared = (window if use.reuse else near)[:half]
    _make_room(core, tenant, spared, free, wanted=len(wanted), now_ns=now_ns)
    _fetch(core, tenant, wanted, free - KEEP_FREE, now_ns)
    if use.multi_path and use.peers:
        # The window has each chunk once; uses are more than that.
        pace_ns = tenant.pace_ns * WINDOW / max(1, len(window))
        _stage(core, tenant, window[len(near) :], pace_ns, now_ns)


def _reach(tenant: Tenant, window: I32Array, chunks: int) -> int:
    """How far the window goes until `chunks` of it are away from home."""
    away = np.cumsum(tenant.place[window] != tenant.spec.home)
    return int(np.searchsorted(away, chunks, side="right"))


def _cancel(tenant: Tenant, window: I32Array) -> None:
    """Prefetches home that are no longer expected are taken back."""
    expected = set(window.tolist())
    for chunk, op, _, dest, _ in tenant.orders.values():
        if op == Op.MOVE and dest == tenant.spec.home and chunk not in expected:
            tenant.cancels.append(chunk)


def _wanted(core: Harvester, tenant: Tenant, near: I32Array, now_ns: int) -> I32Array:
    """Of the next chunks, those that are worth bringing home; others are used in place."""
    away = (tenant.place[near] != tenant.spec.home) & (tenant.place[near] != NOWHERE)
    idle = near[away & (tenant.busy[near] == 0)]
    if core.settings.techniques.in_place:
        dense = [not _sparse(core, tenant, chunk, now_ns) for chunk in idle.tolist()]
        idle = idle[np.array(dense, np.bool_)]
    else:
        idle = idle[~tenant.in_place[idle]]
    allowed = [core.may_bounce(tenant, chunk, now_ns) for chunk in idle.tolist()]
    return np.asarray(idle[np.array(allowed, np.bool_)])


def _uses(core: Harvester, tenant: Tenant, chunk: int) -> float:
    """Uses expected while a chunk would stay at home."""
    every = tenant.every_ns[chunk]
    if np.isnan(every):
        return 1.0
    return float(np.clip(core.settings.horizon_ns / every, 1.0, 64.0))


def _sparse(core: Harvester, tenant: Tenant, chunk: int, now_ns: int) -> bool:
    """Whether a chunk is better read where it is; if so, sees to that."""
    here, home = int(tenant.place[chunk]), tenant.spec.home
    if not tenant.last_ns[chunk]:
        return False  # a daemon that came later knows nothing of it yet
    uses = _uses(core, tenant, chunk)
    if core.cost.worth_fetching(here, home, float(tenant.pages[chunk]), uses):
        return False
    if not tenant.in_place[chunk] and not (tenant.host_copy[chunk] and here != HOST):
        core.order(tenant, chunk, Op.MAP, here, flags=NO_FLAG, now_ns=now_ns)
    return True


def _make_room(
    core: Harvester, tenant: Tenant, spared: I32Array, free: int, *, wanted: int, now_ns: int
) -> None:
    """Send chunks away from home until enough is free ahead of need."""
    settings = core.settings
    ahead = settings.home_free_chunks if settings.techniques.pre_evict else wanted
    need = min(ahead - free - tenant.evicting, PER_TURN, settings.outstanding - len(tenant.orders))
    if need <= 0:
        return
    here = tenant.at(tenant.spec.home)
    soon = tenant.scratch
    soon[spared] = True
    here = here[~soon[here] & (now_ns - tenant.last_ns[here] > settings.fault_ns)]
    soon[spared] = False
    for chunk in _victims(core, tenant, here, need, now_ns).tolist():
        copied = bool(tenant.host_copy[chunk])
        places = [HOST]
        if settings.techniques.peers:
            places += [g for g in range(len(core.gpus)) if may_park(core, tenant, g)]
        uses = 0.3 if np.isnan(tenant.every_ns[chunk]) else 1.0
        home = tenant.spec.home
        dest, _ = core.cost.best_place(home, home, uses, places, now_ns, copied=copied)
        if dest == HOST and copied:
            core.order(tenant, chunk, Op.DROP, HOST, flags=NO_FLAG, now_ns=now_ns)
        elif dest != home:
            core.order(tenant, chunk, Op.MOVE, dest, flags=NO_FLAG, now_ns=now_ns)


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
    """Whether a neighbour takes one more chunk that has no other copy."""
    if core.settings.durable:
        return False
    return core.room_for(tenant, gpu) > 0 and core.dirty_on(gpu) < int(core.dirty_cap[gpu])


def _fetch(core: Harvester, tenant: Tenant, wanted: I32Array, space: int, now_ns: int) -> None:
    """Bring chunks home in the order of their expected use."""
    home = tenant.spec.home
    space = min(space, core.settings.outstanding - len(tenant.orders))
    for chunk in wanted[: max(0, space)].tolist():
        here = int(tenant.place[chunk])
        if core.cost.blocked_until[here, home] > now_ns:
            continue
        # What is only read keeps its host copy, and leaves again without a copy.
        clean = here == HOST and not tenant.written[chunk]
        keep = clean and core.settings.techniques.write_back and not tenant.in_place[chunk]
        op = Op.COPY if keep else Op.MOVE
        core.order(tenant, chunk, op, home, flags=StateFlag.PREFETCH, now_ns=now_ns)


def _stage(core: Harvester, tenant: Tenant, far: I32Array, pace_ns: float, now_ns: int) -> None:
    """Where the home's own host link is too slow for what comes, use neighbours' links."""
    far = far[: core.settings.stage_chunks]
    at_host = far[tenant.place[far] == HOST]
    # What the own link brings in the time until then keeps its host copy: left to it.
    link_ns = core.cost.chunk_ns[HOST, tenant.spec.home]
    carried = core.settings.own_share * len(far) * pace_ns / link_ns
    excess = len(at_host) - int(carried)
    if excess <= 0:
        return
    staged = at_host[np.linspace(0, len(at_host) - 1, excess).astype(np.int64)]
    staged = staged[(tenant.busy[staged] == 0) & ~tenant.in_place[staged]]
    peers = [g for g in range(len(core.gpus)) if core.room_for(tenant, g) > 0]
    peers = [g for g in peers if core.cost.blocked_until[HOST, g] <= now_ns]
    for chunk in staged.tolist():
        peers = [
            g
            for g in peers
            if core.cost.waiting[HOST, g] < STAGING and core.room_for(tenant, g) > 0
        ]
        if not peers or len(tenant.orders) >= core.settings.outstanding:
            return
        if not core.may_bounce(tenant, chunk, now_ns):
            continue
        peer = min(peers, key=lambda g: core.cost.move_ns(HOST, g))
        gain = core.cost.access_ns(HOST, tenant.spec.home)
        gain -= core.cost.access_ns(peer, tenant.spec.home)
        if gain <= 0:
            return
        core.order(tenant, chunk, Op.COPY, peer, flags=StateFlag.PREFETCH, now_ns=now_ns)
