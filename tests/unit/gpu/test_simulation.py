# SPDX-License-Identifier: Apache-2.0
"""The whole of it in virtual time: real client library, real core, on the stand-in.

Sizes are a 32nd of the paper's; docs/operate/gpu.md has the full table (tests/bench/gpu_huvm.py).
Every time here is virtual, so the same on every machine.
"""

from __future__ import annotations

from dataclasses import replace

import gpu_cases
import networks
import numpy as np
import pytest
from events import ACCESS, ALLOC, COMPUTE, EVENT, make
from gpu_huvm import SYSTEMS, lenders, run, speedup
from simulate import Job, Simulation
from standin import CHUNK

from tierd_gpu.metrics import samples
from tierd_gpu.settings import HarvestSettings, Techniques

SCALE = 32


@pytest.fixture(scope="module", params=[False, True], ids=["says its uses", "unmodified"])
def outcomes(request: pytest.FixtureRequest):
    """Case 1: of an unmodified program the launches tell what it uses, nothing else does."""
    jobs = [replace(job, launched=request.param) for job in gpu_cases.case(1, SCALE)]
    return jobs, {
        name: run(jobs, techniques, SCALE)
        for name, techniques in SYSTEMS.items()
        if name != "tierd, no peers"
    }


def test_harvesting_is_faster_than_the_driver_and_than_the_host_alone(outcomes) -> None:
    jobs, done = outcomes
    assert speedup(jobs, done["driver"], done["tierd"]) > 2.0
    assert speedup(jobs, done["host only"], done["tierd"]) > 1.2


def test_the_lender_is_never_refused_and_hardly_slowed(outcomes) -> None:
    jobs, done = outcomes
    alone = lenders(jobs, SCALE)
    assert done["tierd"].refused == 0
    for job in jobs:
        if not job.chunks:
            assert job.name in done["tierd"].time_ns
            assert done["tierd"].time_ns[job.name] < 1.05 * alone[job.name]


def test_the_driver_never_has_to_evict_a_borrower_and_the_floor_holds(outcomes) -> None:
    jobs, done = outcomes
    homes = {job.gpu for job in jobs if job.chunks}
    floor = HarvestSettings().floor_bytes // SCALE
    for gpu, stats in done["tierd"].stats.items():
        assert stats["evicted_of_others"] == 0
        if gpu not in homes:
            assert stats["least_room_bytes"] >= floor


def test_every_revocation_ends_within_its_bound(outcomes) -> None:
    _, done = outcomes
    bound = HarvestSettings().revoke_bound_ns
    assert all(took <= bound for took in done["tierd"].revoke_ns)
    assert done["tierd"].errors == 0


def restless(gpu: int, seed: int) -> Job:
    """A lender whose memory has no period: it grows by small steps and shrinks at random."""
    rng = np.random.default_rng(seed)
    rows, held = [], []
    for _ in range(600):
        if held and rng.random() < 0.35:
            rows.append((held.pop(int(rng.integers(len(held)))), 0, ALLOC, 0, CHUNK))
        elif len(held) < 23:
            slot = next(n for n in range(24) if n not in held)
            held.append(slot)
            rows.append((slot, 0, ALLOC, 0, 10 * CHUNK))
        rows.append((0, 0, COMPUTE, 0, int(rng.integers(100_000, 2_000_000))))
    return Job(f"restless@{gpu}", gpu, make(rows), 0, 0)


def test_lenders_that_grow_at_any_moment_get_their_memory_in_time() -> None:
    """Copies are under way whenever a revocation comes, in every direction."""
    jobs = [gpu_cases.borrower("pagerank", 0, 1.6, SCALE), *(restless(g, g) for g in (1, 2, 3))]
    settings = HarvestSettings(observe_ns=0, durable=False)
    done = run(jobs, SYSTEMS["tierd"], SCALE, settings)
    assert done.counts["revocations"] >= 5
    assert len(done.revoke_ns) >= 5
    assert max(done.revoke_ns) <= settings.revoke_bound_ns
    assert done.refused == 0
    assert done.errors == 0


def test_in_durable_mode_a_lost_neighbour_loses_nothing() -> None:
    """Every neighbour goes in mid-run; the borrower ends without an error."""
    jobs = [gpu_cases.borrower("pagerank", 0, 1.6, SCALE)]
    for durable in (True, False):
        simulation = Simulation(
            jobs,
            Techniques(),
            settings=HarvestSettings(
                durable=durable, observe_ns=0, floor_bytes=4 << 20, refill_bytes=8 << 20
            ),
            gpu_bytes=gpu_cases.GPU_BYTES // SCALE,
        )
        simulation.at(
            150_000_000, lambda world: [world.lib.cu.fg_device_lose(g) for g in (1, 2, 3)]
        )
        done = simulation.run()
        moved = sum(done.stats[gpu]["moved_in"] for gpu in (1, 2, 3))
        assert (moved > 0, done.errors > 0) == (not durable, not durable)


@pytest.mark.parametrize("revoke_ns", [50_000_000, 10_000_000])
def test_what_a_lost_neighbour_could_take_is_bounded_by_the_revoke_time(revoke_ns: int) -> None:
    """Without durable: never more than the neighbour's host link carries in 60 % of it."""
    settings = HarvestSettings(
        durable=False,
        observe_ns=0,
        floor_bytes=4 << 20,
        refill_bytes=8 << 20,
        revoke_bound_ns=revoke_ns,
    )
    jobs = [gpu_cases.borrower("pagerank", 0, 1.6, SCALE)]
    run_ = Simulation(jobs, Techniques(), settings=settings, gpu_bytes=gpu_cases.GPU_BYTES // SCALE)
    core = run_.core
    assert core is not None
    seen = [0, 0, 0, 0]
    told: list[float] = []
    tick = core.tick

    def watched(now_ns: int) -> None:
        tick(now_ns)
        for gpu in (1, 2, 3):
            seen[gpu] = max(seen[gpu], core.gpus[gpu].borrowed)
        told.extend(s.value for s in samples(core) if s.name == "tierd_gpu_unbacked_bytes")

    core.tick = watched  # type: ignore[method-assign]
    done = run_.run()
    assert done.errors == 0
    link = 12e9  # bytes a second of PCIe in the stand-in's v100x4
    for gpu in (1, 2, 3):
        assert seen[gpu] * CHUNK <= 0.6 * revoke_ns * 1e-9 * link
    assert max(told) == max(seen) * CHUNK > 0


def test_chunks_that_are_always_touched_sparsely_are_used_in_place_and_that_pays() -> None:
    rng = np.random.default_rng(4)
    trace = np.zeros(12_000, EVENT)
    trace["kind"], trace["pages"], trace["value"] = ACCESS, 4, 2000
    trace["index"] = rng.integers(0, 400, len(trace))
    trace["index"][:400] = np.arange(400)
    jobs = [Job("lookup@0", 0, trace, 400)]
    settings = HarvestSettings(observe_ns=0)
    done = run(jobs, Techniques(), SCALE, settings)
    never = run(jobs, Techniques(in_place=False), SCALE, settings)
    assert done.stats[0]["remote_bytes"] > 10 * never.stats[0]["remote_bytes"]
    assert done.stats[0]["remote_bytes"] > 1000 * 4096
    assert speedup(jobs, never, done) > 1.0


def test_a_run_repeats_to_the_nanosecond() -> None:
    jobs = gpu_cases.case(1, 128)
    first, second = (run(jobs, SYSTEMS["tierd"], 128) for _ in range(2))
    assert first.time_ns == second.time_ns
    assert first.counts == second.counts


@pytest.mark.parametrize(
    ("name", "weights"),
    [("vgg16", 138.4e6), ("resnet101", 44.5e6), ("mobilenet_v3", 5.5e6)],
)
def test_the_networks_have_the_published_number_of_weights(name: str, weights: float) -> None:
    """Within what biases, batch norm and skip projections add."""
    found = sum(layer.weights for layer in networks.NETWORKS[name]())
    assert found == pytest.approx(weights, rel=0.05)


def test_a_step_of_training_gives_back_all_it_took() -> None:
    events, first = networks.training("resnet101", 8)
    held = set()
    for index, _, kind, _, _ in events[first:].tolist():
        if kind == networks.ALLOC:
            held.add(index)
        elif kind == networks.FREE:
            held.discard(index)
    assert not held
