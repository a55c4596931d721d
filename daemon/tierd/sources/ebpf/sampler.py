# SPDX-License-Identifier: Apache-2.0
"""`Sampler`: one BPF program on one or more perf events of every CPU."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.sources.ebpf import host, syscalls
from tierd.sources.ebpf.loader import Loaded, Loading, Program
from tierd.sources.ebpf.perf import Ring
from tierd.sources.ebpf.table import (
    EventPlan,
    PageTable,
    RawSamples,
    Sampled,
    SamplerSettings,
    TableSize,
    Watched,
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _CpuEvents:
    fds: list[int] = field(default_factory=list)
    rings: list[Ring] = field(default_factory=list)
    seen: int = 0
    mark: int = 0

    def close(self) -> None:
        for ring in self.rings:
            ring.close()
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)


def ring_pages(ring_bytes: int, rings: int) -> int:
    """Pages of one ring, a power of two, so that all are within `ring_bytes` if possible."""
    pages = max(1, ring_bytes // rings // mmap.PAGESIZE)
    return 1 << (pages.bit_length() - 1)


class Sampler:
    """Runs a program; everything is released by `close`.

    Args:
        functions: further functions of the program, as (name, kind).
        maps: further maps of the program, with their entries for each CPU.
    """

    def __init__(
        self,
        program: str,
        plans: Sequence[EventPlan],
        settings: SamplerSettings,
        *,
        functions: Sequence[tuple[str, str]] = (),
        maps: Mapping[str, int] | None = None,
    ) -> None:
        self._plans = list(plans)
        self._settings = settings
        self.size = TableSize.for_bytes(settings.table_bytes, host.possible_cpus())
        self._ring_pages = ring_pages(settings.ring_bytes, self.size.cpus * max(1, len(plans)))
        names = {plan.function: "perf_event" for plan in plans} | dict(functions)
        sizes = {"sets": self.size.all_sets, "stats": self.size.cpus, "config": 0, "targets": 0}
        self._program = Program(
            program,
            tuple(names.items()),
            sizes | {name: n * self.size.cpus for name, n in (maps or {}).items()},
            {"TIERD_SETS": self.size.all_sets, "TIERD_CPUS": self.size.cpus},
        )
        self._loading: Loading | None = None
        self.loaded: Loaded | None = None
        self.table: PageTable | None = None
        self._cpus: dict[int, _CpuEvents] = {}
        self._targets: dict[int, int] = {}
        self._received = 0
        self._ring_lost = 0
        self._unplaced = 0
        self._sampled = 0
        self._period = plans[0].attr.period if plans else 1
        self._missed = 0
        self.cpu_changes = 0

    def start(self) -> None:
        """Begin to load; `ready` says when it is done.

        Raises:
            UnavailableError: it cannot be loaded here.
        """
        if self.loaded is None and self._loading is None:
            self._loading = Loading(self._program, self._settings.ways)

    def ready(self, *, wait: bool = False) -> bool:
        """Whether samples are taken; attaches when loading has just finished.

        Raises:
            UnavailableError: loading or attaching failed.
        """
        if self._loading is not None:
            loaded = self._loading.wait() if wait else self._loading.poll()
            if loaded is None:
                return False
            self._loading = None
            self.loaded = loaded
            log.info(
                "event=bpf_loaded program=%s way=%s seconds=%.2f helper_peak_mib=%d",
                self._program.name,
                loaded.way,
                loaded.seconds,
                loaded.peak_rss_kib >> 10,
            )
            try:
                self.table = PageTable(loaded.maps, self.size)
                self.follow_cpus()
            except OSError as error:
                self.close()
                raise UnavailableError(
                    f"the kernel refused to map what {self._program.name} counts: {error}"
                ) from error
            except UnavailableError:
                self.close()
                raise
        return self.loaded is not None

    def follow_cpus(self) -> None:
        """Open events on CPUs that came, and close those of CPUs that went.

        Events of a CPU that went and came between two calls are dead, and opened again.

        Raises:
            UnavailableError: the kernel refused the event on every CPU.
        """
        wanted = host.running_cpus() if self._plans else {}
        if wanted == {cpu: own.mark for cpu, own in self._cpus.items()}:
            return
        self.cpu_changes += bool(self._cpus)
        for cpu in [cpu for cpu, own in self._cpus.items() if wanted.get(cpu) != own.mark]:
            # What its rings still hold is not received, and shows as lost.
            self._missed += self._missed_on(cpu, self._cpus[cpu])
            self._cpus.pop(cpu).close()
        refusal: OSError | None = None
        for cpu in sorted(wanted.keys() - self._cpus.keys()):
            try:
                self._cpus[cpu] = self._open(cpu, wanted[cpu])
            except OSError as error:
                refusal = error
        if refusal is not None and not self._cpus:
            raise UnavailableError(
                f"the kernel refused the event of {self._program.name}: {refusal.strerror}",
                hint="tierd doctor tells which events this host has",
            ) from refusal

    def _open(self, cpu: int, mark: int) -> _CpuEvents:
        assert self.loaded is not None
        events = _CpuEvents(seen=self._seen_on(cpu), mark=mark)
        try:
            for plan in self._plans:
                fd = syscalls.perf_event_open(plan.attr.encode(), -1, cpu)
                events.fds.append(fd)
                events.rings.append(Ring(fd, self._ring_pages))
                syscalls.event_attach(fd, self.loaded.programs[plan.function])
            if self._period != self._plans[0].attr.period:
                self._apply_period(events)
        except OSError:
            events.close()
            raise
        return events

    def set_targets(self, targets: dict[int, int]) -> None:
        """Sample these processes (pid → target number) and no others."""
        if self.loaded is None:
            return
        fd = self.loaded.maps["targets"]
        for pid in set(self._targets) - set(targets):
            with contextlib.suppress(OSError):
                syscalls.map_delete_u32(fd, pid)
            del self._targets[pid]
        for pid, number in list(targets.items())[: bounds.BPF_TARGETS]:
            if self._targets.get(pid) != number:
                with contextlib.suppress(OSError):
                    syscalls.map_update_u32(fd, pid, number)
                    self._targets[pid] = number

    def set_period(self, period: int) -> None:
        """Change the first event's period, and the others' in proportion."""
        self._period = period
        for events in self._cpus.values():
            self._apply_period(events)

    def _apply_period(self, events: _CpuEvents) -> None:
        first = self._plans[0].attr.period
        for plan, fd in zip(self._plans, events.fds, strict=True):
            scaled = plan.attr.period * self._period // first
            with contextlib.suppress(OSError):
                syscalls.event_period(fd, max(plan.step, scaled // plan.step * plan.step))

    def set_mode(self, mode: int) -> None:
        """Count in the kernel's table, or pass samples on."""
        if self.table is not None:
            self.table.mode = mode

    def missed(self) -> int:
        """Events on which the kernel did not run the program; right for a period of 1.

        It does not while another BPF program, or a map system call, is on that CPU.
        """
        return self._missed + sum(self._missed_on(cpu, own) for cpu, own in self._cpus.items())

    def _seen_on(self, cpu: int) -> int:
        return self.table.stat("seen", cpu) if self.table is not None else 0

    def _missed_on(self, cpu: int, events: _CpuEvents) -> int:
        total = 0
        for fd in events.fds:
            with contextlib.suppress(OSError):
                total += int.from_bytes(os.read(fd, 8), "little")
        return max(0, total - (self._seen_on(cpu) - events.seen))

    def program_runs(self) -> tuple[int, int]:
        """(ns, runs) of the programs while run statistics were on."""
        spent = runs = 0
        if self.loaded is not None:
            for fd in self.loaded.programs.values():
                with contextlib.suppress(OSError):
                    own = syscalls.program_runs(fd)
                    spent, runs = spent + own[0], runs + own[1]
        return spent, runs

    def drain(self, watched: Watched) -> Sampled:
        """What was sampled since the last call; both ways of counting are looked at."""
        assert self.table is not None
        passed = self.table.stat("passed")
        raw = self._read_rings(watched)
        counts = self.table.drain()
        # A sample that was passed and is not in a ring found it full.
        ring_lost = max(self._ring_lost, passed - self._received)
        unplaced = self.table.stat("unplaced")
        lost = counts.lost + ring_lost - self._ring_lost + unplaced - self._unplaced
        self._ring_lost, self._unplaced = ring_lost, unplaced
        counted = self.table.stat("counted") + passed + unplaced
        samples, self._sampled = counted - self._sampled, counted
        reads = counts.count - counts.writes
        keys = [counts.key[reads > 0], counts.key[counts.writes > 0], *raw.keys]
        numbers = [reads[reads > 0], counts.writes[counts.writes > 0]]
        numbers += [np.ones(len(k), np.uint32) for k in raw.keys]
        stores = [np.zeros(len(keys[0]), np.bool_), np.ones(len(keys[1]), np.bool_), *raw.stores]
        key = np.concatenate(keys)
        count = np.concatenate(numbers)
        inside = watched.inside(key)
        knows = all(plan.writes is not None for plan in self._plans) and len(self._plans) > 1
        knows = knows or bool(raw.keys and self._plans[0].writes is None)
        return Sampled(
            key=key[inside],
            count=count[inside].astype(np.float32),
            is_write=np.concatenate(stores)[inside] if knows else None,
            samples=samples,
            outside=int(count[~inside].sum(dtype=np.uint64)),
            lost=lost,
            throttled=raw.throttled,
            ordered=bool(raw.keys) and not len(counts.key),
        )

    def _read_rings(self, watched: Watched) -> RawSamples:
        raw = RawSamples()
        for own in self._cpus.values():
            for plan, ring in zip(self._plans, own.rings, strict=True):
                data = ring.read()
                if data:
                    raw.add(data, plan, watched)
        self._received += raw.received
        return raw

    def close(self) -> None:
        """Detach, close, and end a helper that still works."""
        if self._loading is not None:
            self._loading.close()
            self._loading = None
        for events in self._cpus.values():
            events.close()
        self._cpus = {}
        self._targets = {}
        self._received = self._ring_lost = self._unplaced = self._sampled = 0
        self.table = None
        if self.loaded is not None:
            self.loaded.close()
            self.loaded = None
