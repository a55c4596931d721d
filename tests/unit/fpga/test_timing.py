# SPDX-License-Identifier: Apache-2.0
"""The lab's time model: what single accesses, streams, and both together cost."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

PLUGIN = Path(__file__).resolve().parents[3] / "fpga/sim/plugin"
LINE = 64
DRAM, CXL = 0, 1
LATENCY = {DRAM: 118.0, CXL: 430.0}
BANDWIDTH = {DRAM: 100e9, CXL: 16.4e9}
WORKLOAD, DAEMON, KERNEL = 0, 1, 2
CDEF = """
struct timing_lines { uint64_t demand, prefetched, written; };
struct timing_node { double latency_ns, line_ns, delay_ns; uint32_t every, since_delay;
                     double free_ns; struct timing_lines lines; double waited_ns; };
struct timing { double now_ns, instruction_ns, mlp, waited_ns;
                uint64_t instructions[4]; double spent_ns[4];
                struct timing_lines lines[4];
                struct timing_node nodes[64]; uint64_t stream[32]; unsigned int next_stream; };
void timing_init(struct timing *, double instruction_ns, double mlp);
int timing_set_node(struct timing *, unsigned int, double, double, unsigned int);
int timing_set_delay(struct timing *, unsigned int, uint32_t, double);
void timing_execute(struct timing *, int owner, uint64_t count);
void timing_read(struct timing *, int owner, unsigned int node, uint64_t line);
void timing_write(struct timing *, int owner, unsigned int node);
double timing_loaded_ns(const struct timing *, unsigned int node);
"""


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> tuple[cffi.FFI, Any]:
    built = tmp_path_factory.mktemp("timing") / "timing.so"
    command = ["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", built, PLUGIN / "timing.c"], check=True)
    ffi = cffi.FFI()
    ffi.cdef(CDEF)
    return ffi, ffi.dlopen(str(built))


@pytest.fixture
def make(lib: tuple[cffi.FFI, Any]) -> Callable[..., Any]:
    ffi, native = lib

    def made(instruction_ns: float = 0.25, mlp: float = 1) -> Any:
        timing = ffi.new("struct timing *")
        native.timing_init(timing, instruction_ns, mlp)
        for node in (DRAM, CXL):
            assert not native.timing_set_node(timing, node, LATENCY[node], BANDWIDTH[node], LINE)
        return timing

    return made


def test_instructions_take_their_time_and_go_to_their_owner(lib, make) -> None:
    timing = make(0.5)
    lib[1].timing_execute(timing, WORKLOAD, 1000)
    lib[1].timing_execute(timing, DAEMON, 20)
    assert timing.now_ns == 510
    assert list(timing.instructions) == [1000, 20, 0, 0]
    assert list(timing.spent_ns) == [500, 10, 0, 0]


@pytest.mark.parametrize("node", [DRAM, CXL])
@pytest.mark.parametrize("mlp", [1, 4])
def test_a_pointer_chase_sees_the_latency(lib, make, node: int, mlp: int) -> None:
    timing = make(mlp=mlp)
    lines = np.random.default_rng(1).permutation(1 << 20)[:20_000]
    for line in lines:
        lib[1].timing_read(timing, WORKLOAD, node, int(line))
    each = timing.now_ns / len(lines)
    bound = max(LATENCY[node] / mlp, LINE * 1e9 / BANDWIDTH[node])
    assert each == pytest.approx(bound, rel=0.01)


@pytest.mark.parametrize("node", [DRAM, CXL])
def test_a_stream_sees_the_bandwidth(lib, make, node: int) -> None:
    timing = make()
    for line in range(50_000):
        lib[1].timing_execute(timing, WORKLOAD, 1)
        lib[1].timing_read(timing, WORKLOAD, node, line)
    assert LINE * 50_000 * 1e9 / timing.now_ns == pytest.approx(BANDWIDTH[node], rel=0.05)
    assert timing.nodes[node].lines.prefetched == 49_999


def test_a_triad_with_write_backs_sees_the_bandwidth_of_all_it_moves(lib, make) -> None:
    timing = make()
    for line in range(30_000):
        for array in range(3):
            lib[1].timing_read(timing, WORKLOAD, CXL, array << 32 | line)
        lib[1].timing_write(timing, WORKLOAD, CXL)
    assert LINE * 4 * 30_000 * 1e9 / timing.now_ns == pytest.approx(BANDWIDTH[CXL], rel=0.05)
    assert timing.nodes[CXL].lines.written == 30_000


def test_a_slow_program_does_not_wait_for_its_stream(lib, make) -> None:
    timing = make()
    for line in range(10_000):
        lib[1].timing_execute(timing, WORKLOAD, 100)  # 25 ns, a line takes 3.9 ns
        lib[1].timing_read(timing, WORKLOAD, CXL, line)
    assert timing.nodes[CXL].waited_ns == pytest.approx(LATENCY[CXL], rel=0.01)


def test_a_stream_slows_a_chase_on_its_node_and_not_on_the_other(lib, make) -> None:
    waits = {}
    for node in (DRAM, CXL):
        timing = make()
        chased = 0.0
        lines = np.random.default_rng(2).permutation(1 << 20)[:2000]
        for step, line in enumerate(lines):
            for k in range(32):
                lib[1].timing_read(timing, WORKLOAD, CXL, 1 << 40 | step * 32 + k)
            loaded = lib[1].timing_loaded_ns(timing, node)
            before = timing.now_ns
            lib[1].timing_read(timing, WORKLOAD, node, int(line))
            chased += timing.now_ns - before
            assert timing.now_ns - before == pytest.approx(loaded)
        waits[node] = chased / len(lines)
    assert waits[DRAM] == pytest.approx(LATENCY[DRAM], rel=0.01)
    assert waits[CXL] > LATENCY[CXL] * 1.1


def test_a_node_without_figures_costs_nothing(lib, make) -> None:
    timing = make()
    for line in range(0, 1000, 7):
        lib[1].timing_read(timing, KERNEL, 5, line)
        lib[1].timing_write(timing, KERNEL, 5)
    assert timing.now_ns == 0
    assert timing.nodes[5].lines.written == timing.nodes[5].lines.demand > 0


def test_lines_are_their_owners_wherever_they_are(lib, make) -> None:
    timing = make()
    for line in range(10):
        lib[1].timing_read(timing, WORKLOAD, line % 2, 1000 * line)
        lib[1].timing_read(timing, DAEMON, CXL, line)
    lib[1].timing_write(timing, KERNEL, DRAM)
    lines = [(each.demand, each.prefetched, each.written) for each in timing.lines]
    assert lines == [(10, 0, 0), (1, 9, 0), (0, 0, 1), (0, 0, 0)]
    nodes = [(each.lines.demand, each.lines.written) for each in timing.nodes[0:2]]
    assert nodes == [(5, 1), (6, 0)]


@pytest.mark.parametrize("figures", [(64, 1, 1, 64), (0, -1, 1, 64), (0, 1, -1, 64), (0, 1, 1, 0)])
def test_impossible_nodes_are_refused(lib, make, figures: tuple[int, ...]) -> None:
    assert lib[1].timing_set_node(make(), *figures) == -22


def test_one_miss_in_so_many_is_delayed_until_that_ends(
    make: Callable[..., Any], lib: tuple[cffi.FFI, Any]
) -> None:
    timing, native = make(), lib[1]

    def chase(steps: int) -> float:
        before = timing.now_ns
        for step in range(steps):
            native.timing_read(timing, WORKLOAD, CXL, 1000 + 2 * step)
        return float(timing.now_ns - before)

    usual = chase(1000)
    assert not native.timing_set_delay(timing, CXL, 100, 5000.0)
    assert chase(1000) == pytest.approx(usual + 10 * 5000)
    assert not native.timing_set_delay(timing, CXL, 0, 5000.0)
    assert chase(1000) == pytest.approx(usual)
    assert native.timing_set_delay(timing, 64, 1, 1.0) == -22
    assert native.timing_set_delay(timing, CXL, 1, -1.0) == -22


def test_a_node_gets_another_speed_while_it_works(
    make: Callable[..., Any], lib: tuple[cffi.FFI, Any]
) -> None:
    timing, native = make(), lib[1]
    native.timing_read(timing, WORKLOAD, CXL, 1)
    before = timing.now_ns
    assert not native.timing_set_node(timing, CXL, 2 * LATENCY[CXL], BANDWIDTH[CXL] / 2, LINE)
    native.timing_read(timing, WORKLOAD, CXL, 1000)
    assert timing.now_ns - before == pytest.approx(2 * LATENCY[CXL])
    assert timing.nodes[CXL].lines.demand == 2
