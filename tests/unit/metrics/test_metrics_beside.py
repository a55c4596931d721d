# SPDX-License-Identifier: Apache-2.0
"""Figures of a recording and of lent GPU memory, as families."""

from __future__ import annotations

import numpy as np
from prometheus_client import generate_latest

from tierd.observe.metrics import families as f
from tierd.observe.metrics.background import of_errors, of_gpu, of_recorder
from tierd.observe.metrics.server import make_registry
from tierd.observe.metrics.values import Values
from tierd.observe.recording.recorder import RecorderStats
from tierd.topology.error_report import ErrorTotals, Kind
from tierd_gpu.harvest import Harvester
from tierd_gpu.links import CHUNK_BYTES, HOST, Gpu, GpuTopology
from tierd_gpu.metrics import Sample, samples
from tierd_gpu.settings import HarvestSettings
from tierd_gpu.tenant import TenantSpec


def test_a_recording_tells_its_size_and_what_it_lacks() -> None:
    assert of_recorder(RecorderStats(7, 900, 2, "")) == {
        f.RECORDING: {(): 1.0},
        f.RECORDED_TICKS: {(): 7.0},
        f.RECORDED_BYTES: {(): 900.0},
        f.RECORDING_DROPPED: {(): 2.0},
    }
    assert of_recorder(RecorderStats(7, 900, 2, "full"))[f.RECORDING] == {(): 0.0}


def test_memory_errors_begin_with_zero_for_each_node_and_kind() -> None:
    """An increase from nothing to 1 would be none to Prometheus."""
    told = of_errors(ErrorTotals({(7, Kind.POISON): 2}, lost=3), [0, 1])
    errors = told[f.MEMORY_ERRORS]
    assert errors.pop(("7", "poison")) == 2.0
    assert set(errors) == {(node, kind) for node in ("0", "1", "unknown") for kind in Kind}
    assert set(errors.values()) == {0.0}
    assert told[f.MEMORY_ERROR_EVENTS]["lost",] == 3.0


def test_the_harvesters_figures_have_a_bounded_number_of_families() -> None:
    told = of_gpu(
        [
            Sample("tierd_gpu_free_bytes", "gauge", "", {"gpu": "0"}, 5),
            Sample("tierd_gpu_free_bytes", "gauge", "", {"gpu": "1"}, 6),
            Sample("tierd_gpu_tenants", "gauge", "", {}, 2),
            Sample("tierd_gpu_moves_done_total", "counter", "", {"what": "push"}, 3),
            Sample("tierd_gpu_moves_refused_total", "counter", "", {"what": "ENOMEM"}, 1),
            Sample("tierd_gpu_revocations_total", "counter", "", {}, 4),
            Sample("tierd_gpu_bounce_limited_total", "counter", "", {}, 8),
            Sample("tierd_gpu_connections_accepted_total", "counter", "", {"reason": ""}, 9),
        ]
    )
    assert told == {
        f.GPU_FREE: {("0",): 5.0, ("1",): 6.0},
        f.GPU_TENANTS: {(): 2.0},
        f.GPU_MOVES: {("done", "push"): 3.0, ("refused", "ENOMEM"): 1.0},
        f.GPU_EVENTS: {("revocations",): 4.0, ("bounce_limited",): 8.0},
        f.GPU_CONNECTIONS: {("accepted", ""): 9.0},
    }
    for name, series in told.items():
        assert {len(labels) for labels in series} == {len(f.FAMILIES[name].labels)}


def test_every_gauge_of_the_harvester_is_served_as_one_with_its_labels() -> None:
    gpus = tuple(Gpu(i, bytes([i] * 16), f"gpu{i}", 2048 * CHUNK_BYTES) for i in range(2))
    rate = np.full((3, 3), 25e9)
    topology = GpuTopology(gpus, rate, np.ones((2, 2), np.int64))
    core = Harvester(topology, HarvestSettings(observe_ns=0))
    tenant = core.join(TenantSpec(1, 0, home=0, max_chunks=64))
    tenant.set_range(0, 64, True)
    tenant.set_state(0, HOST, 0, 1)
    for gpu in range(2):
        core.set_memory(gpu, 2048 * CHUNK_BYTES, 0)
    core.tick(1)
    core.set_memory(1, 0, lost=True)
    core.revoke_ns.append(9_000_000)
    told = list(samples(core))
    for sample in told:
        if sample.kind == "gauge":
            family = f.FAMILIES[sample.name]
            assert (family.type, family.help) == (f.Type.GAUGE, sample.help)
            assert family.labels == tuple(sample.labels)
    values = Values()
    values.publish()
    registry = make_registry(lambda: values.snapshot, [lambda: of_gpu(told)])
    served = generate_latest(registry).decode().splitlines()
    leased = tenant.lease[1] * CHUNK_BYTES
    assert leased > 0
    for name, series in {
        "tierd_gpu_leased_bytes": {'{gpu="0"}': 0, '{gpu="1"}': leased},
        "tierd_gpu_lost": {'{gpu="0"}': 0, '{gpu="1"}': 1},
        "tierd_gpu_revocation_longest_seconds": {"": 0.009},
    }.items():
        assert f"# TYPE {name} gauge" in served
        lines = [line.rsplit(" ", 1) for line in served if line.startswith(name)]
        assert {key: float(value) for key, value in lines} == {
            name + labels: value for labels, value in series.items()
        }
