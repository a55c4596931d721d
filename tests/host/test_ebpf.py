# SPDX-License-Identifier: Apache-2.0
"""The eBPF sources on this host's own kernel, by each way of loading that it has.

Each check runs in a process and a mount namespace of its own. What a host cannot do is
told by the source's own words, which the test then demands instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tierd.config.watching import FaultsConfig
from tierd.core.access import WatchedRange, WatchedTarget
from tierd.sources.ebpf import host, loader
from tierd.sources.ebpf.files import find_bcc_python
from tierd.sources.ebpf.perf import EventAttr, Sample
from tierd.sources.ebpf.table import EventPlan
from tierd.sources.faults import FaultSource, fault_event
from tierd.sources.migrations import MigrationWatch
from tierd.sources.pmu import PmuSource, would_use
from tierd.sources.selection import SourceSelector

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "tests/vm/guest_ebpf.py"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF needs root")
EXACT = (
    "faults_are_exact",
    "raw_faults_are_exact",
    "pmu_program_on_the_software_event",
    "pmu_raw_on_the_software_event",
    "loss_is_counted",
    "ring_loss_is_counted",
    "period_follows_the_rate",
    "target_dies",
    "nothing_leaks",
    "no_bcc",
    "no_headers",
    "without_capabilities",
    "with_two_capabilities_only",
)


def test_the_tests_python_has_bcc_itself() -> None:
    """Else the sources would take the distribution's Python, and this one's would go untried."""
    assert find_bcc_python() == Path(sys.executable)


@pytest.fixture(scope="module")
def touch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program under watch."""
    program = tmp_path_factory.mktemp("touch") / "touch"
    source = ROOT / "tests/workloads/touch.c"
    flags = ["-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *flags, "-o", str(program), str(source)], check=True)
    return program


def run(touch: Path, way: str, *names: str) -> dict[str, Any]:
    """Results by check."""
    result = subprocess.run(
        ["unshare", "--mount", sys.executable, str(CHECKS), str(touch), "--way", way, *names],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "daemon")},
        timeout=600,
        check=False,
    )
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["check"] for line in lines] == list(names), result.stderr[-2000:]
    assert "Traceback" not in result.stderr, result.stderr[-2000:]
    return {line["check"]: line for line in lines}


def usable(way: str) -> bool:
    works = host.sampling("faults", fault_event(), [way])
    return works.ok


@needs_root
@pytest.mark.parametrize("way", loader.WAYS)
def test_every_check_holds_or_the_source_says_why_not(touch: Path, way: str) -> None:
    if not usable(way):
        # In guests `make soak` alone has bcc compile: where programs load, it must do so here.
        assert way != "bcc" or not usable("prebuilt")
        state = host.sampling("faults", fault_event(), [way])
        assert not state.ok and state.reason
        return
    names = EXACT if way == "prebuilt" else EXACT[:1] + EXACT[2:3] + EXACT[4:5]
    results = run(touch, way, *names)
    assert [r for r in results.values() if not r["ok"]] == []


@needs_root
@pytest.mark.parametrize("way", loader.WAYS)
def test_migrations_seen_are_the_kernels_own_count(touch: Path, way: str) -> None:
    watch = MigrationWatch()
    watch._settings = type(watch._settings)(table_bytes=1 << 20, ways=(way,))
    state = watch.available()
    if not state.ok:
        assert state.reason
        return
    result = run(touch, way, "migrations_equal_vmstat")["migrations_equal_vmstat"]
    assert result["ok"], result


def test_every_source_says_what_it_needs() -> None:
    """Root or not, PMU or not: words, never a traceback."""
    for state in (
        FaultSource().available(),
        PmuSource().available(),
        MigrationWatch().available(),
        would_use(),
    ):
        assert state.reason


@needs_root
def test_the_service_takes_the_first_source_that_works(touch: Path) -> None:
    """A source without its event, then faults: chosen, loaded in the background, heat-ready."""
    if not usable("prebuilt") and not usable("bcc"):
        assert not FaultSource().available().ok
        return
    no_such_event = EventPlan(EventAttr(0xFFFF, 0, 16, Sample.ADDR), "on_load", False)
    faults = FaultSource(FaultsConfig(samples_per_s=10**9, cpu_limit=1e3))
    selector = SourceSelector([PmuSource(plans=(no_such_event,)), faults])
    program = subprocess.Popen(
        [str(touch), "300", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdin is not None and program.stdout is not None
    pid, address = program.stdout.readline().split()
    first = int(address) >> 12
    targets = [WatchedTarget(9, int(pid), (WatchedRange(first, first + 300),))]
    try:
        selector.watch(targets, 1)
        assert selector.active is faults
        assert "does not have the event" in selector.reasons["pmu"]
        assert faults.ready(wait=True)
        selector.poll(2)
        program.stdin.write("go\n")
        program.stdin.flush()
        assert program.stdout.readline() == "done 450\n"
        (batch,) = selector.poll(3)
        assert batch.count.sum() == 450
        assert sorted(batch.page & np.uint64((1 << 48) - 1))[0] == first
        assert set((batch.page >> np.uint64(48)).tolist()) == {9}
        selector.watch([], 10**10)
        assert selector.poll(10**10 + 1) == []
    finally:
        selector.close()
        program.kill()
        program.communicate()
