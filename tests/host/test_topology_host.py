# SPDX-License-Identifier: Apache-2.0
"""The topology of the running kernel, and its real uevents."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import pytest

from tierd import topology
from tierd.topology import HotplugWatcher
from tierd.topology.render import capture, unpack

NODE_UEVENT = Path("/sys/devices/system/node/node0/uevent")
CPU_UEVENT = Path("/sys/devices/system/cpu/cpu0/uevent")


def test_the_running_host_has_a_tier_with_all_nodes() -> None:
    tiers = topology.read()
    assert tiers.tiers
    assert tiers.tiers[0].capacity_bytes > 0
    assert sorted(n for tier in tiers.tiers for n in tier.nodes) == sorted(tiers.nodes)


def test_the_running_host_captured_reads_the_same(tmp_path: Path) -> None:
    # MemTotal may move under a balloon: everything else is compared.
    shown = topology.read(unpack(capture(), tmp_path))
    real = topology.read()
    assert [(t.name, t.nodes, t.latency_ns) for t in shown.tiers] == [
        (t.name, t.nodes, t.latency_ns) for t in real.tiers
    ]


def wait(watch: HotplugWatcher) -> bool:
    """Events are delivered within the writer's system call; allow a second all the same."""
    select.select([watch.fileno()], [], [], 1.0)
    return watch.changed()


@pytest.mark.skipif(os.geteuid() != 0, reason="writing uevent needs root")
def test_a_real_uevent_of_a_node_is_a_change_and_one_of_a_cpu_is_not() -> None:
    with HotplugWatcher() as watch:
        if watch.mode != "uevent":
            pytest.skip(watch.reason)
        watch.changed()
        CPU_UEVENT.write_text("change")
        assert not wait(watch)
        NODE_UEVENT.write_text("change")
        assert wait(watch)
        assert not watch.changed()


@pytest.mark.skipif(os.geteuid() != 0, reason="writing uevent needs root")
def test_an_overflow_of_the_real_socket_is_a_change_and_does_not_end_it() -> None:
    with HotplugWatcher() as watch:
        if watch.mode != "uevent":
            pytest.skip(watch.reason)
        # The receive buffer is 1 MiB or the sysctl's limit; a message costs about 1 KiB of it.
        for _ in range(4000):
            CPU_UEVENT.write_text("change")
        assert watch.changed()
        while watch.changed():
            pass
        NODE_UEVENT.write_text("change")
        assert wait(watch)
        assert watch.mode == "uevent"


def test_asking_does_not_block() -> None:
    with HotplugWatcher() as watch:
        start = time.monotonic()
        watch.changed()
        assert time.monotonic() - start < 0.5
