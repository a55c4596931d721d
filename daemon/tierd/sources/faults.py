# SPDX-License-Identifier: Apache-2.0
"""Page faults as an access source: first touches, and NUMA hint faults.

The event PERF_COUNT_SW_PAGE_FAULTS fires on each fault of a user address, with the
address, on any kernel with perf events, in any virtual machine. A page that is present
does not fault again, so this sees first touches, refaults, and what NUMA balancing
unmaps to see who touches it; it is no measure of how hot a resident page is, and comes
last in the order of sources. `hint_faults` of the totals' extras counts the last kind,
where the kernel lets a kprobe be set on task_numa_fault (else they are counted as any).
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from pathlib import Path
from typing import Final

from tierd.config.watching import FaultsConfig
from tierd.core import bounds
from tierd.core.access import Availability
from tierd.sources.ebpf import host, syscalls
from tierd.sources.ebpf.perf import EventAttr, Layout, Sample, Type
from tierd.sources.ebpf.sampler import Sampler
from tierd.sources.ebpf.source import Budget, SampledSource
from tierd.sources.ebpf.table import EventPlan, SamplerSettings

log = logging.getLogger(__name__)

HINT_FUNCTION: Final = "task_numa_fault"
KPROBE_TYPE: Final = Path("/sys/bus/event_source/devices/kprobe/type")
SAMPLE: Final = Sample.TID | Sample.TIME | Sample.ADDR


def fault_event() -> EventAttr:
    """The software page-fault event, of each fault."""
    return EventAttr(Type.SOFTWARE, Layout.PAGE_FAULTS, 1, SAMPLE)


class FaultSource(SampledSource):
    """An `AccessSource`; see the module's text."""

    def __init__(
        self, settings: FaultsConfig | None = None, *, sampler: SamplerSettings | None = None
    ) -> None:
        self._settings = settings or FaultsConfig()
        self._sizes = sampler or SamplerSettings()
        self._hint_fd = -1
        self.hints_reason = "not tried yet"
        super().__init__(
            "faults",
            Budget(
                samples_per_s=self._settings.samples_per_s,
                cpu_share=self._settings.cpu_limit,
                interrupt_ns=bounds.FAULT_EVENT_NS,
                least_period=1,
                most_period=1024,
                mode=self._settings.mode,
            ),
        )

    def probe(self) -> Availability:
        """BPF, the software event, and a way to load the program."""
        return host.sampling("faults", fault_event(), self._sizes.ways)

    def make_sampler(self) -> Sampler:
        """One event a CPU, and the hint-fault program where it may be of use."""
        hints = self._settings.hint_faults and kprobe_type() is not None
        return Sampler(
            "faults",
            [EventPlan(fault_event(), "on_fault", None)],
            self._sizes,
            functions=(("on_numa_fault", "kprobe"),) if hints else (),
        )

    def started(self, sampler: Sampler) -> None:
        """Set the kprobe, if the kernel lets us; faults are counted without it as well."""
        self.hints_reason = self._attach_hints(sampler)
        log.info('event=hint_faults state="%s"', self.hints_reason or "told apart")

    def _attach_hints(self, sampler: Sampler) -> str:
        """Why hint faults are not told apart; empty when they are."""
        if not self._settings.hint_faults:
            return "turned off"
        kind = kprobe_type()
        if kind is None:
            return "this kernel has no kprobes"
        assert sampler.loaded is not None and sampler.table is not None
        program = sampler.loaded.programs.get("on_numa_fault")
        if program is None:
            return "its program was not loaded"
        name = ctypes.create_string_buffer(HINT_FUNCTION.encode())
        event = EventAttr(kind, 0, 0, Sample(0), config1=ctypes.addressof(name))
        try:
            self._hint_fd = syscalls.perf_event_open(event.encode(), -1, 0)
            syscalls.event_attach(self._hint_fd, program)
        except OSError as error:
            self._close_hints()
            return f"the kernel refused a kprobe on {HINT_FUNCTION}: {error.strerror}"
        sampler.table.configure(hints=1)
        return ""

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the kernel's side since loading, by name."""
        sampler = self._sampler
        if sampler is None or sampler.table is None:
            return {}
        names = ("seen", "foreign", "no_address", "hints", "hints_foreign", "hints_lost")
        found = {name: sampler.table.stat(name) for name in names}
        if self.totals.period_changes == 0:
            found["missed"] = sampler.missed()
        return found

    def _close_hints(self) -> None:
        if self._hint_fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._hint_fd)
            self._hint_fd = -1

    def close(self) -> None:
        """Remove the kprobe as well."""
        self._close_hints()
        super().close()


def kprobe_type() -> int | None:
    """Number of the kprobe PMU; None where the kernel has no kprobes."""
    try:
        return int(KPROBE_TYPE.read_text())
    except (OSError, ValueError):
        return None
