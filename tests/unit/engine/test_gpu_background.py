# SPDX-License-Identifier: Apache-2.0
"""GPU memory beside the loop: the thread, the socket, and coherent GPUs among the tiers."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tierd.config.whole import loads
from tierd.core.errors import ConfigError, UnavailableError
from tierd.engine.build import make_companions
from tierd.observe.totals import MigrationTotals
from tierd_gpu.background import GpuBackgroundService, harvest_settings, server_settings
from tierd_gpu.links import Gpu, GpuTopology

WAIT_S = 120.0
"""For what must happen at all, on however busy a host."""


class Nvml:
    """Two GPUs; the second is coherent, and can fail."""

    def __init__(self) -> None:
        self.closed = False
        self.error: Exception | None = None
        self.asked = 0

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def topology(self) -> GpuTopology:
        gpus = tuple(
            Gpu(i, bytes([i] * 16), f"gpu{i}", 1 << 30, f"0000:0{i}:00.0", numa_node=node)
            for i, node in enumerate((None, 1))
        )
        return GpuTopology(gpus, np.full((3, 3), 1e10), np.ones((2, 2), np.int64))

    def free_bytes(self) -> list[int | None]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return [1 << 30, 1 << 30]

    def own_bytes(self) -> list[int | None]:
        return [0, 0]

    def close(self) -> None:
        self.closed = True


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.01)


def companion(path: Path, nvml: Nvml) -> GpuBackgroundService:
    config = dataclasses.replace(loads("").gpu, socket=path)
    made: Any = GpuBackgroundService(config, lambda: nvml)  # type: ignore[arg-type, return-value]
    return made


def test_the_thread_serves_until_it_is_closed(tmp_path: Path) -> None:
    path, nvml = tmp_path / "gpu.sock", Nvml()
    served = companion(path, nvml)
    served.start()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))
            until(lambda: served.service is not None and served.service.server.clients == 1, "in")
            until(lambda: nvml.asked > 1, "ticks")
            until(lambda: bool(served.figures), "figures")
            known = {figure.name for figure in served.figures}
            assert {"tierd_gpu_free_bytes", "tierd_gpu_unbacked_bytes"} <= known
    finally:
        served.close()
    assert not served.running
    assert nvml.closed
    assert not path.exists()
    served.close()


def test_a_failure_of_the_thread_hangs_up_on_clients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, nvml = tmp_path / "gpu.sock", Nvml()
    served = companion(path, nvml)
    served.start()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))
            nvml.error = OSError("the driver is gone")
            client.settimeout(WAIT_S)
            with contextlib.suppress(ConnectionResetError):  # what was not read is dropped
                while client.recv(65536):
                    pass
        until(lambda: not served.running, "the thread's end")
        assert "gpu_failed" in caplog.text
    finally:
        served.close()


def test_without_nvml_it_does_not_start_and_says_why(tmp_path: Path) -> None:
    def no_nvml() -> Any:
        raise UnavailableError("NVML finds no GPU")

    served = GpuBackgroundService(
        dataclasses.replace(loads("").gpu, socket=tmp_path / "s"), no_nvml
    )
    with pytest.raises(UnavailableError, match="no GPU"):
        served.start()
    served.close()
    assert not (tmp_path / "s").exists()


def test_a_socket_that_cannot_be_made_lets_nvml_go(tmp_path: Path) -> None:
    nvml = Nvml()
    served = companion(tmp_path / "none" / "gpu.sock", nvml)
    with pytest.raises(UnavailableError, match="cannot listen"):
        served.start()
    served.close()
    assert nvml.closed


def test_settings_come_from_the_configuration() -> None:
    config = loads(
        '[gpu]\nserve = true\nsocket = "/run/x.sock"\nusers = [7]\ngroups = [9]\ndurable = false\n'
        "in_place = false\n"
        'floor = "1MB"\nrefill = "2MB"\nquota = "25%"\nrevoke = "20ms"'
    ).gpu
    server, harvest = server_settings(config), harvest_settings(config)
    assert (server.path, server.users, server.groups) == (Path("/run/x.sock"), {7}, {9})
    assert server.mode == 0o666
    assert server_settings(loads("").gpu).mode == 0o600
    assert (harvest.floor_bytes, harvest.refill_bytes) == (10**6, 2 * 10**6)
    assert (harvest.durable, harvest.quota_share, harvest.revoke_bound_ns) == (False, 0.25, 2e7)
    assert not harvest.techniques.in_place
    usual = harvest_settings(loads("").gpu)
    assert usual.durable
    assert usual.techniques.in_place


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('socket = "gpu.sock"', "gpu.socket"),
        ('floor = "2GB"\nrefill = "1GB"', "gpu.refill"),
        ("users = [-1]", "gpu.users"),
        (f'socket = "/{"x" * 200}"', "gpu.socket"),
    ],
)
def test_mistakes_are_named_by_their_key(text: str, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(f"[gpu]\n{text}")
    assert caught.value.path.startswith(path)


def test_it_is_served_only_where_it_is_configured() -> None:
    companions, observers = make_companions(loads("[gpu]\nserve = true"), MigrationTotals())
    assert [c.name for c in companions] == ["gpu"]
    assert observers == []
