# SPDX-License-Identifier: Apache-2.0
"""Checks of what is counted: exact pages, loss, periods."""

from __future__ import annotations

import time
from pathlib import Path

from guest_ebpf_ground import Ground, Result, Touch, per_page

from tierd.config.watching import FaultsConfig, PmuConfig
from tierd.sources.ebpf.table import EventPlan, SamplerSettings
from tierd.sources.faults import FaultSource, fault_event
from tierd.sources.pmu import PmuSource


class Counts(Ground):
    """What was touched is counted, or counted as lost."""

    def faults_are_exact(self) -> Result:
        return self.exact(self.kept_faults(), 3000, 5)

    def raw_faults_are_exact(self) -> Result:
        return self.exact(self.faults("raw"), 2000, 3)

    def pmu_program_on_the_software_event(self) -> Result:
        plan = EventPlan(fault_event(), "on_load", False)
        return self.exact(self.pmu(plan, "table"), 1000, 4)

    def pmu_raw_on_the_software_event(self) -> Result:
        plan = EventPlan(fault_event(), "on_store", True)
        return self.exact(self.pmu(plan, "raw"), 1000, 4)

    def pmu(self, plan: EventPlan, mode: str, samples_per_s: int = 10**9) -> PmuSource:
        settings = PmuConfig(samples_per_s=samples_per_s, cpu_limit=1e3, mode=mode)
        return PmuSource(settings, sampler=self.settings(), plans=(plan,))

    def loss_is_counted(self) -> Result:
        """A table of 1,000 pages and 100,000 pages touched: sampled + lost == touched."""
        table = 2 * 32 * 1000
        touch = Touch(self.program, 100_000, 1)
        source = self.faults(table_bytes=table)
        with self.watching(source, touch) as told:
            assert source._sampler is not None
            room = source._sampler.size.pages
            source.poll()
            own = faults_of(touch.pid)
            before = (source.totals.samples, source.totals.lost, source.totals.outside)
            touch.say("go")
            batches = source.poll()
            counted = int(per_page(batches, touch).sum())
            own = faults_of(touch.pid) - own
            now = (source.totals.samples, source.totals.lost, source.totals.outside)
            samples, lost, outside = (b - a for a, b in zip(before, now, strict=True))
            # The program's stack or library may fault as well: the kernel knows how often.
            return told | {
                "ok": 900 <= room <= 1000
                and samples == own == counted + outside + lost
                and 0 <= own - 100_000 <= 8
                and sum(batch.lost for batch in batches) == lost
                and 0 < counted <= room,
                "room": room,
                "sampled": counted,
                "outside": outside,
                "lost": lost,
                "touched": own,
            }

    def ring_loss_is_counted(self) -> Result:
        """A ring buffer that is too small loses samples, and says how many."""
        touch = Touch(self.program, 50_000, 1)
        source = FaultSource(
            FaultsConfig(samples_per_s=10**9, cpu_limit=1e3, mode="raw"),
            sampler=SamplerSettings(ring_bytes=1, ways=self.ways),
        )
        with self.watching(source, touch) as told:
            source.poll()
            touch.say("go")
            counted = int(per_page(source.poll(), touch).sum())
            lost = source.totals.lost
            return told | {
                "ok": 0 <= counted + lost - 50_000 <= 64 and lost > 0,
                "sampled": counted,
                "lost": lost,
                "touched": 50_000,
            }

    def period_follows_the_rate(self) -> Result:
        """Too many samples a second lengthen the period; counts keep their meaning."""
        touch = Touch(self.program, 4000, 1)
        source = self.pmu(EventPlan(fault_event(), "on_load", False), "table", 1000)
        with self.watching(source, touch) as told:
            source.poll()
            periods = []
            for _ in range(5):
                touch.say("go")
                time.sleep(1.05)
                source.poll()
                periods.append(source.totals.period)
            before = source.totals.samples
            touch.say("go")
            batches = source.poll()
            taken = source.totals.samples - before
            weighed = sum(float(batch.count.sum()) for batch in batches)
            return told | {
                "ok": periods[-1] >= 2
                and taken <= 4100 / periods[-1] + 2
                and 0.8 * 4000 <= weighed <= 1.2 * 4000
                and source.totals.lost == 0,
                "periods": periods,
                "samples": taken,
                "weighed": weighed,
                "faults": 4000,
            }


def faults_of(pid: int) -> int:
    """Page faults of a process so far (/proc/PID/stat, minflt and majflt)."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[7]) + int(fields[9])
