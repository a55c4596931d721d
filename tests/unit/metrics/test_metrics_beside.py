# SPDX-License-Identifier: Apache-2.0
"""Figures of a recording and of lent GPU memory, as families."""

from __future__ import annotations

from tierd.gpu.metrics import Sample
from tierd.metrics import families as f
from tierd.metrics.beside import of_gpu, of_recorder
from tierd.recording.recorder import RecorderStats


def test_a_recording_tells_its_size_and_what_it_lacks() -> None:
    assert of_recorder(RecorderStats(7, 900, 2, "")) == {
        f.RECORDING: {(): 1.0},
        f.RECORDED_TICKS: {(): 7.0},
        f.RECORDED_BYTES: {(): 900.0},
        f.RECORDING_DROPPED: {(): 2.0},
    }
    assert of_recorder(RecorderStats(7, 900, 2, "full"))[f.RECORDING] == {(): 0.0}


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
