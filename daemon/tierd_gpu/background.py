# SPDX-License-Identifier: Apache-2.0
"""GPU memory beside the loop: the harvester in a thread of its own.

The thread wakes every 2 ms while a client is connected, every 50 ms otherwise. When it
fails, clients notice within a second and fall back to the driver's behaviour.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from tierd.config.serving import GpuConfig
from tierd.core.logfmt import logfmt
from tierd_gpu.metrics import Sample, samples
from tierd_gpu.nvml import Nvml
from tierd_gpu.server import ServerSettings
from tierd_gpu.service import GpuService
from tierd_gpu.settings import HarvestSettings, Techniques

log = logging.getLogger(__name__)

FIGURES_S: Final = 1.0
"""Figures are taken this often; the thread owns what they are read from."""
JOIN_S: Final = 5.0
"""`close` waits so long for the thread; a turn of it takes 50 ms at most."""


def server_settings(config: GpuConfig) -> ServerSettings:
    """Who may connect, by the configuration."""
    users, groups = frozenset(config.users), frozenset(config.groups)
    # Whoever may open the socket is still asked who they are (SO_PEERCRED).
    mode = 0o666 if users or groups else 0o600
    return ServerSettings(config.socket, users=users, groups=groups, mode=mode)


def harvest_settings(config: GpuConfig) -> HarvestSettings:
    """The harvester's knobs, by the configuration."""
    return HarvestSettings(
        floor_bytes=config.floor_bytes,
        refill_bytes=config.refill_bytes,
        revoke_bound_ns=config.revoke_ns,
        quota_share=config.quota_share,
        durable=config.durable,
        techniques=Techniques(in_place=config.in_place),
    )


class GpuBackgroundService:
    """A `BackgroundService` of the loop that serves GPU memory.

    Args:
        config: the section [gpu].
        open_nvml: opens NVML.

    Attributes:
        figures: the harvester's figures of a second ago at most, for any thread to read
            (`service` itself belongs to its own thread); () before the first.
    """

    name = "gpu"

    def __init__(self, config: GpuConfig, open_nvml: Callable[[], Nvml] = Nvml) -> None:
        self._config = config
        self._open = open_nvml
        self._nvml: Nvml | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.service: GpuService | None = None
        self.figures: tuple[Sample, ...] = ()

    def start(self) -> None:
        """Open NVML and the socket, and start the thread.

        Raises:
            UnavailableError: no GPU, no NVML, or the socket cannot be made.
        """
        self._nvml = self._open()
        topology = self._nvml.topology()
        self.service = GpuService(
            topology, self._nvml, server_settings(self._config), harvest_settings(self._config)
        )
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="tierd-gpu", daemon=True)
        self._thread.start()
        log.info(
            logfmt(
                event="gpu_serving",
                gpus=len(topology.gpus),
                socket=self._config.socket,
                durable=self._config.durable,
            )
        )

    def _run(self) -> None:
        service = self.service
        assert service is not None
        due = 0.0
        try:
            while not self._stop.is_set():
                service.step()
                if time.monotonic() >= due:
                    due = time.monotonic() + FIGURES_S
                    self.figures = tuple(samples(service.core, service.server))
        except Exception:
            # Whatever it was, clients must not wait for a server that does nothing.
            log.exception(logfmt(event="gpu_failed", effect="clients fall back to the driver"))
        finally:
            self.figures = ()
            service.close()

    @property
    def running(self) -> bool:
        """Whether the thread lives."""
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Hang up on clients, end the thread, let NVML go."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            self._thread = None
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None
