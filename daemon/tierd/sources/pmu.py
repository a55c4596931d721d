# SPDX-License-Identifier: Apache-2.0
"""Sampled loads and stores as an access source: Intel PEBS, AMD IBS.

The core samples one access in `period`, with its data address, at no cost to the others;
the period follows a wanted rate of samples and a CPU budget, and backs off when the
kernel throttles. Counted are user-mode accesses of watched processes, by virtual page.
On AMD a sample tells whether it was a store where it is passed on raw only; a BPF program
does not see that (it is no field of its context).
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from tierd.config.watching import PmuConfig
from tierd.core import bounds, linux
from tierd.core.access import Availability
from tierd.core.errors import ConfigError, UnavailableError
from tierd.sources.ebpf import events, host
from tierd.sources.ebpf.events import CpuModel, PmuEvent
from tierd.sources.ebpf.host import PMU_FOLDER, Cpu, Pmu
from tierd.sources.ebpf.sampler import Sampler
from tierd.sources.ebpf.source import Budget, SampledSource
from tierd.sources.ebpf.table import EventPlan, SamplerSettings


@dataclass(frozen=True, slots=True)
class Choice:
    """What would be sampled on this host.

    Attributes:
        cpu, model, pmu: of the host.
        events: to sample; reasons: roles that cannot be had, and why.
    """

    cpu: Cpu
    model: CpuModel
    pmu: Pmu
    events: tuple[PmuEvent, ...]
    reasons: dict[str, str]

    def describe(self) -> str:
        """One line for people."""
        names = ", ".join(f"{e.name} (config {e.config:#x})" for e in self.events)
        return f"{names} of {self.pmu.folder.name}, table {self.model.name}"


def choose(settings: PmuConfig, *, cpuinfo: Path = host.CPUINFO, pmus: Path = PMU_FOLDER) -> Choice:
    """What this host's CPU would be sampled with.

    Raises:
        UnavailableError: no table, no PMU, or none of the wanted events.
    """
    cpu = host.read_cpu(cpuinfo)
    try:
        model = events.find_model(cpu, events.load_tables())
    except ConfigError as error:
        raise UnavailableError(f"an event table cannot be read: {error}") from error
    pmu = host.find_pmu(model.pmu, pmus)
    chosen, reasons = events.choose(model, pmu, settings.events)
    if not chosen:
        told = "; ".join(f"{role}: {reason}" for role, reason in reasons.items())
        raise UnavailableError(f"no event of {model.name} can be sampled here: {told}")
    return Choice(cpu, model, pmu, tuple(chosen), reasons)


def would_use(cpuinfo: Path = host.CPUINFO, pmus: Path = PMU_FOLDER) -> Availability:
    """For `tierd doctor`: the event of the CPU at hand, or why there is none.

    Where the kernel shows no PMU, the answer still names the event that the CPU's table
    has, so that an operator sees what a host without virtualization would use.
    """
    settings = PmuConfig()
    try:
        choice = choose(settings, cpuinfo=cpuinfo, pmus=pmus)
    except UnavailableError as error:
        known = ""
        try:
            model = events.find_model(host.read_cpu(cpuinfo), events.load_tables())
            wanted = [e for e in model.events if e.role in settings.events] or model.events
            names = [e.name for e in wanted]
            known = f"; the table {model.name} has {', '.join(names)}"
        except (UnavailableError, ConfigError):
            pass
        return Availability(False, error.message + known, error.hint)
    return Availability(True, choice.describe())


def kernel_version() -> tuple[int, int]:
    """Major and minor number of the running kernel."""
    numbers = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


class PmuSource(SampledSource):
    """An `AccessSource`; see the module's text.

    Args:
        plans: events to sample in place of the tables' (tests attach the same program to
            a software event).
    """

    def __init__(
        self,
        settings: PmuConfig | None = None,
        *,
        sampler: SamplerSettings | None = None,
        plans: tuple[EventPlan, ...] = (),
    ) -> None:
        self._settings = settings or PmuConfig()
        self._sizes = sampler or SamplerSettings()
        self._plans = plans
        self._least = 1 if plans else bounds.PMU_LEAST_PERIOD
        super().__init__(
            "pmu",
            Budget(
                samples_per_s=self._settings.samples_per_s,
                cpu_share=self._settings.cpu_limit,
                interrupt_ns=bounds.PMU_INTERRUPT_NS,
                least_period=self._least,
                most_period=linux.IBS_PERIOD,
                mode=self._settings.mode,
            ),
        )

    def plans(self) -> tuple[EventPlan, ...]:
        """The events of this host, with the function that runs on each one's samples.

        Raises:
            UnavailableError: it has none.
        """
        if self._plans:
            return self._plans
        choice = choose(self._settings)
        return tuple(
            EventPlan(
                event.attr(choice.pmu.type, latency_cycles=self._settings.latency_cycles),
                "on_store" if event.role == "stores" else "on_load",
                event.writes,
                event.step,
            )
            for event in choice.events
        )

    def probe(self) -> Availability:
        """A table, a PMU, BPF, the events, and a way to load the program."""
        works = host.bpf_works()
        if not works.ok:
            return works
        try:
            plans = self.plans()
        except UnavailableError as error:
            return Availability(False, error.message, error.hint)
        for plan in plans:
            state = host.sampling("pmu", plan.attr, self._sizes.ways)
            if not state.ok:
                return state
        return state

    def first_period(self) -> int:
        """The first event's period to begin with."""
        return self.plans()[0].attr.period

    def mode(self) -> str:
        """As configured; raw where the program cannot trust the address it is given.

        Until Linux 6.3 a program runs before the kernel has completed the sample, and IBS
        samples ops that have no address: the field then holds what stood there before.
        """
        unsure = any(plan.writes is None for plan in self.plans())
        return (
            "raw" if unsure and kernel_version() < linux.COMPLETE_SAMPLES else self._settings.mode
        )

    def make_sampler(self) -> Sampler:
        """The events on each CPU."""
        return Sampler("pmu", self.plans(), self._sizes)

    def _counts_lines(self) -> bool:
        """Whether every event sampled is a line that memory served."""
        return self._settings.events == ("l3-miss",)
