# SPDX-License-Identifier: Apache-2.0
"""Checks of the eBPF sources; run as root, in a lab guest or on a host.

    guest_ebpf.py TOUCH [--way bcc|prebuilt] [CHECK ...]

Prints one JSON line a check, {"check": name, "ok": bool, ...}; exits with 0 only if all
are ok. TOUCH is the program of tests/workloads/touch.c. Every check has a right answer
known beforehand (pages, counts, the kernel's own counters); times are printed only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tierd.access import AccessBatch, WatchedRange, WatchedTarget
from tierd.ebpf import cpus, files, loader, pins
from tierd.ebpf.sampler import EventPlan, SamplerSettings
from tierd.moves import MovePlan
from tierd.service.migrations import MigrationCounter
from tierd.service.tick import TickRecord
from tierd.sources.faults import FaultSettings, FaultSource, fault_event
from tierd.sources.migrations import MigrationWatch, read_vmstat
from tierd.sources.pmu import PmuSettings, PmuSource
from tierd.tiermap import TierMap

Result = dict[str, Any]
TARGET = 7
SYS_MOVE_PAGES = 279
MPOL_MF_MOVE = 2
VPN_MASK = (1 << 48) - 1


class Touch:
    """The program under watch."""

    def __init__(self, program: str, pages: int, rounds: int, cpu: int | None = None) -> None:
        argv = [program, str(pages), str(rounds)] + ([] if cpu is None else [str(cpu)])
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        pid, address = self.process.stdout.readline().split()
        self.pid, self.vpn = int(pid), int(address) >> 12
        self.pages, self.rounds = pages, rounds

    @property
    def target(self) -> WatchedTarget:
        """What a source shall watch."""
        return WatchedTarget(TARGET, self.pid, (WatchedRange(self.vpn, self.vpn + self.pages),))

    def say(self, words: str) -> str:
        """One command and its answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def expected(self) -> np.ndarray:
        """How often each page faults in one "go"."""
        return 1 + np.arange(self.pages) % self.rounds

    def faults(self) -> int:
        """The sum of that."""
        return int(self.expected().sum())

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


def per_page(batches: list[AccessBatch], touch: Touch) -> np.ndarray:
    """Counts of the touched pages; a key of another page or target is an error."""
    counts = np.zeros(touch.pages, np.int64)
    for batch in batches:
        index = (batch.page & np.uint64(VPN_MASK)).astype(np.int64) - touch.vpn
        assert (batch.page >> np.uint64(48) == TARGET).all()
        assert ((index >= 0) & (index < touch.pages)).all()
        np.add.at(counts, index, batch.count.astype(np.int64))
    return counts


class Checks:
    """One method a check; each returns its result with "ok"."""

    def __init__(self, touch: str, way: str) -> None:
        self.program = touch
        self.ways = (way,)
        self.watch: MigrationWatch | None = None

    def settings(self, table_bytes: int = 4 << 20) -> SamplerSettings:
        return SamplerSettings(
            table_bytes=table_bytes, ring_bytes=128 * cpus.possible() * 4096, ways=self.ways
        )

    def faults(self, mode: str = "table", table_bytes: int = 4 << 20) -> FaultSource:
        # A rate beyond reach: each fault counts, whatever the machine's speed.
        return FaultSource(
            FaultSettings(
                samples_per_s=1e9, cpu_share=1e3, mode=mode, sampler=self.settings(table_bytes)
            )
        )

    @contextlib.contextmanager
    def watching(self, source: FaultSource | PmuSource, touch: Touch) -> Iterator[Result]:
        """Let a source watch the program; the dictionary tells what loading cost."""
        try:
            state = source.available()
            assert state.ok, state
            begin = time.monotonic()
            source.watch([touch.target])
            assert source.ready(wait=True)
            assert source._sampler is not None and source._sampler.loaded is not None
            loaded = source._sampler.loaded
            yield {
                "way": loaded.way,
                "load_s": round(time.monotonic() - begin, 2),
                "helper_mib": loaded.peak_rss_kib >> 10,
            }
        finally:
            source.close()
            touch.close()

    def exact(self, source: FaultSource | PmuSource, pages: int, rounds: int) -> Result:
        """Every page of `touch` exactly as often as it was touched, nothing lost."""
        touch = Touch(self.program, pages, rounds)
        with self.watching(source, touch) as told:
            source.poll()
            done = touch.say("go")
            counts = per_page(source.poll(), touch)
            again = per_page(source.poll(), touch)
            wrong = int((counts != touch.expected()).sum())
            extra = source.counters if isinstance(source, FaultSource) else {}
            return told | {
                "ok": wrong == 0
                and again.sum() == 0
                and source.totals.lost == 0
                and done == f"done {touch.faults()}",
                "wrong_pages": wrong,
                "faults": touch.faults(),
                "counted": int(counts.sum()),
                "lost": source.totals.lost,
                "missed": extra.get("missed", 0),
            }

    def faults_are_exact(self) -> Result:
        return self.exact(self.faults(), 3000, 5)

    def raw_faults_are_exact(self) -> Result:
        return self.exact(self.faults("raw"), 2000, 3)

    def pmu_program_on_the_software_event(self) -> Result:
        plan = EventPlan(fault_event(), "on_load", False)
        settings = PmuSettings(
            samples_per_s=1e9, cpu_share=1e3, mode="table", sampler=self.settings()
        )
        return self.exact(PmuSource(settings, plans=(plan,)), 1000, 4)

    def pmu_raw_on_the_software_event(self) -> Result:
        plan = EventPlan(fault_event(), "on_store", True)
        settings = PmuSettings(
            samples_per_s=1e9, cpu_share=1e3, mode="raw", sampler=self.settings()
        )
        return self.exact(PmuSource(settings, plans=(plan,)), 1000, 4)

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
            FaultSettings(
                samples_per_s=1e9,
                cpu_share=1e3,
                mode="raw",
                sampler=SamplerSettings(ring_bytes=1, ways=self.ways),
            )
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

    def modes_follow_the_load(self) -> Result:
        """With a working set beyond the table, counting moves to raw samples."""
        touch = Touch(self.program, 4000, 1)
        source = FaultSource(
            FaultSettings(
                samples_per_s=1e9,
                cpu_share=1e3,
                mode="auto",
                sampler=SamplerSettings(
                    table_bytes=1 << 16, ring_bytes=256 * cpus.possible() * 4096, ways=self.ways
                ),
            )
        )
        with self.watching(source, touch) as told:
            modes = [source.totals.mode]
            total = 0
            for _ in range(5):
                touch.say("go")
                time.sleep(1.1)
                total += int(per_page(source.poll(), touch).sum())
                modes.append(source.totals.mode)
            return told | {
                "ok": "raw" in modes and 0 <= total + source.totals.lost - 20_000 <= 320,
                "modes": modes,
                "sampled": total,
                "lost": source.totals.lost,
            }

    def period_follows_the_rate(self) -> Result:
        """Too many samples a second lengthen the period; counts keep their meaning."""
        touch = Touch(self.program, 4000, 1)
        source = PmuSource(
            PmuSettings(samples_per_s=1000, cpu_share=1e3, mode="table", sampler=self.settings()),
            plans=(EventPlan(fault_event(), "on_load", False),),
        )
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

    def hint_faults_are_told_apart(self) -> Result:
        """NUMA hint faults, and what balancing then moves, agree with /proc/vmstat."""
        nodes = memory_nodes()
        if len(nodes) < 2:
            return {"ok": True, "left_out": "one node"}
        debug = Path("/sys/kernel/debug/sched/numa_balancing")
        subprocess.run(["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"], check=False)
        for name, value in (("scan_delay_ms", 100), ("scan_period_min_ms", 100)):
            if (debug / name).exists():
                (debug / name).write_text(str(value))
        balancing = Path("/proc/sys/kernel/numa_balancing")
        touch = Touch(self.program, 2000, 1)
        source = self.faults()
        before_value = balancing.read_text()
        try:
            with self.watching(source, touch) as told:
                touch.say("go")
                move(touch, nodes[1])
                source.poll()
                if source.hints_reason:
                    return told | {"ok": False, "why": source.hints_reason}
                balancing.write_text("0")
                watch = self.migrations()
                watch.watch([touch.target])
                settled(watch)
                marks, stat = at_one_moment(source)
                balancing.write_text("1")
                end = time.monotonic() + 90
                while time.monotonic() < end:
                    touch.say("spin 1000")
                    if source.counters["hints"] - marks["hints"] > 500:
                        break
                balancing.write_text("0")
                touch.say("spin 100")
                time.sleep(0.5)
                now, after = at_one_moment(source)
                seen = now["hints"] - marks["hints"]
                foreign = now["hints_foreign"] - marks["hints_foreign"]
                kernel = after["numa_hint_faults"] - stat["numa_hint_faults"]
                counted = int(per_page(source.poll(), touch).sum())
                report = watch.poll()
                assert report is not None
                moved = report.by_reason.get("numa_misplaced")
                promoted = moved.succeeded if moved else 0
                migrated = after["numa_pages_migrated"] - stat["numa_pages_migrated"]
                succeeded = sum(m.succeeded for m in report.by_reason.values())
                vpn = report.page & np.uint64(VPN_MASK)
                own = (vpn >= touch.vpn) & (vpn < touch.vpn + touch.pages)
                return told | {
                    "ok": seen > 0
                    and seen + foreign == kernel
                    and now["hints_lost"] == 0
                    and promoted == migrated > 0
                    and succeeded == after["pgmigrate_success"] - stat["pgmigrate_success"]
                    and report.unseen == 0
                    # Balancing runs in the owner, so these pages have its key.
                    and bool((report.page[own] >> np.uint64(48) == TARGET).all()),
                    "numa_misplaced": promoted,
                    "numa_pages_migrated": migrated,
                    "pgpromote_success": after.get("pgpromote_success", 0)
                    - stat.get("pgpromote_success", 0),
                    "hints": seen,
                    "foreign": foreign,
                    "numa_hint_faults": kernel,
                    "hints_lost": now["hints_lost"],
                    "faults_counted": counted,
                }
        finally:
            balancing.write_text(before_value)

    def migrations(self) -> MigrationWatch:
        """One watch for all checks: loading it takes minutes in an emulated guest."""
        if self.watch is None:
            self.watch = MigrationWatch(SamplerSettings(table_bytes=1 << 20, ways=self.ways))
            state = self.watch.available()
            assert state.ok, state
            self.watch.start()
            assert self.watch.ready(wait=True)
        return self.watch

    def migrations_equal_vmstat(self) -> Result:
        """move_pages there and back: pages by reason, pages by address, /proc/vmstat."""
        nodes = memory_nodes()
        touch = Touch(self.program, 1000, 1)
        touch.say("go")
        try:
            watch = self.migrations()
            watch.watch([touch.target])
            settled(watch)
            stat = read_vmstat()
            moved = 0
            for node in (nodes[-1], nodes[0], nodes[-1]) if len(nodes) > 1 else ():
                moved += move(touch, node)
            if len(nodes) == 1:
                Path("/proc/sys/vm/compact_memory").write_text("1")
            time.sleep(0.2)
            report = watch.poll()
            after = read_vmstat()
            assert report is not None
            seen = sum(m.succeeded for m in report.by_reason.values())
            failed = sum(m.failed for m in report.by_reason.values())
            kernel = after["pgmigrate_success"] - stat["pgmigrate_success"]
            refused = after["pgmigrate_fail"] - stat["pgmigrate_fail"]
            vpn = report.page & np.uint64(VPN_MASK)
            own = (vpn >= touch.vpn) & (vpn < touch.vpn + touch.pages)
            return {
                "ok": seen == kernel
                and failed == refused
                and report.unseen == 0
                and (len(nodes) == 1 or (seen >= 3000 and int(own.sum()) == 1000))
                and (len(nodes) == 1 or bool((report.moves[own] == 3).all())),
                "moved": moved,
                "seen": seen,
                "pgmigrate_success": kernel,
                "failed": failed,
                "pgmigrate_fail": refused,
                "pages": int(own.sum()),
                "bounced": report.bounced,
                "by_reason": {k: m.succeeded for k, m in report.by_reason.items()},
                "missing": watch.missing,
            }
        finally:
            touch.close()

    def migrations_in_the_service(self) -> Result:
        """What the service makes of them: who moved, and pages that went there and back."""
        nodes = memory_nodes()
        if len(nodes) < 2:
            return {"ok": True, "left_out": "one node only"}
        touch = Touch(self.program, 1000, 1)
        touch.say("go")
        try:
            watch = self.migrations()
            settled(watch)
            counter = MigrationCounter(watch)
            counter.start = lambda: None  # type: ignore[method-assign] - it runs already
            counter.running = True
            stat = read_vmstat()
            now, moved, bounced = 0, [], []
            for node in (nodes[-1], nodes[0], nodes[-1]):
                moved.append(move(touch, node))
                time.sleep(0.2)
                now += 2 * 10**9
                counter.on_tick(tick_at(now))
                bounced.append(counter.totals.bounced)
            after = read_vmstat()
            kernel = after["pgmigrate_success"] - stat["pgmigrate_success"]
            told = counter.totals
            everything = told.by_kernel + told.by_tierd + told.by_others + told.within_node
            return {
                "ok": everything == kernel
                and told.by_tierd == sum(moved)
                and told.unseen == 0
                and (told.unclear > 0 or bounced == [0, 1000, 2000]),
                "moved": moved,
                "bounced": bounced,
                "pgmigrate_success": kernel,
                "totals": dataclasses.asdict(told),
            }
        finally:
            touch.close()

    def demotions_equal_vmstat(self) -> Result:
        """Reclaim of a cgroup on the fast node demotes; the counts are the kernel's."""
        nodes = memory_nodes()
        enabled = Path("/sys/kernel/mm/numa/demotion_enabled")
        if len(nodes) < 2 or not enabled.exists():
            return {"ok": True, "left_out": "one node, or a kernel without demotion"}
        tiers = list(Path("/sys/devices/virtual/memory_tiering").glob("memory_tier[0-9]*"))
        if len(tiers) < 2:
            return {
                "ok": True,
                "left_out": "the kernel has both nodes in one tier, and no demotion",
            }
        root = Path("/tmp/tierd-cgroup")
        root.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "cgroup2", "none", str(root)], check=False)
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text("+memory")
        group = root / "tierd-test"
        group.mkdir(exist_ok=True)
        before_value = enabled.read_text()
        touch = Touch(self.program, 8000, 1)
        try:
            (group / "cgroup.procs").write_text(str(touch.pid))
            touch.say("go")
            move(touch, nodes[0])
            enabled.write_text("1")
            watch = self.migrations()
            settled(watch)
            stat = read_vmstat()
            for _ in range(20):
                with contextlib.suppress(OSError):
                    (group / "memory.reclaim").write_text("8M")
                if demoted(read_vmstat()) - demoted(stat) > 1000:
                    break
            time.sleep(0.2)
            report = watch.poll()
            after = read_vmstat()
            assert report is not None
            kernel = demoted(after) - demoted(stat)
            seen = report.by_reason.get("demotion")
            return {
                "ok": kernel > 0 and seen is not None and seen.succeeded == kernel,
                "pgdemote": kernel,
                "seen": seen.succeeded if seen else 0,
                "by_node": {str(k): v for k, v in report.demoted_from.items()},
                "unseen": report.unseen,
            }
        finally:
            enabled.write_text(before_value)
            touch.close()

    def cpu_hotplug(self) -> Result:
        """A CPU that goes and comes back is sampled again."""
        switch = Path("/sys/devices/system/cpu/cpu1/online")
        if not switch.exists():
            return {"ok": True, "left_out": "CPU 1 cannot go offline here"}
        touch = Touch(self.program, 500, 2, 0)
        source = self.faults()
        with self.watching(source, touch) as told:
            source.poll()
            total = 0
            try:
                switch.write_text("0")
                touch.say("go")
                total += int(per_page(source.poll(), touch).sum())
                offline = cpus.online()
            finally:
                switch.write_text("1")
            time.sleep(0.2)
            source.poll()  # finds the CPU again
            touch.say("cpu 1")
            touch.say("go")
            total += int(per_page(source.poll(), touch).sum())
            assert source._sampler is not None
            return told | {
                "ok": offline == [0] and total == 2 * touch.faults() and source.totals.lost == 0,
                "counted": total,
                "faults": 2 * touch.faults(),
                "changes": source._sampler.cpu_changes,
            }

    def target_dies(self) -> Result:
        """A target that is gone gives what it did and no error, before and after."""
        touch = Touch(self.program, 100, 1)
        source = self.faults()
        with self.watching(source, touch) as told:
            source.poll()
            touch.say("go")
            touch.close()
            counted = int(per_page(source.poll(), touch).sum())
            source.watch([touch.target])
            later = source.poll()
            source.watch([])
            return told | {"ok": counted == 100 and later == [] and source.poll() == []}

    def without_bpffs(self) -> Result:
        """Where bpffs is not mounted, descriptors come through a socket."""
        mounted = pins.is_bpffs(pins.BPFFS)
        if mounted:
            subprocess.run(["umount", "-l", str(pins.BPFFS)], check=True)
        try:
            return self.exact(self.faults(), 200, 2) | {"was_mounted": mounted}
        finally:
            if mounted:
                subprocess.run(["mount", "-t", "bpf", "bpf", str(pins.BPFFS)], check=True)

    def nothing_stays_pinned(self) -> Result:
        """Pins live for the hand-over only; what a killed service leaves is swept."""
        if not pins.is_bpffs(pins.BPFFS):
            subprocess.run(["mount", "-t", "bpf", "bpf", str(pins.BPFFS)], check=True)
        ready = self.exact(self.faults(), 100, 1)
        left = sorted(p.name for p in (pins.BPFFS / pins.FOLDER).glob("*"))
        # A process that pins what the helper does and is killed at that moment.
        code = (
            "import os, signal; from tierd.ebpf import pins, syscalls; "
            "f = pins.make_folder('faults'); "
            "syscalls.object_pin(f / 'prog_on_fault', syscalls.load_nothing()); "
            "os.kill(os.getpid(), signal.SIGKILL)"
        )
        subprocess.run([sys.executable, "-c", code], check=False)
        crashed = sorted(p.name for p in (pins.BPFFS / pins.FOLDER).glob("*"))
        again = self.exact(self.faults(), 100, 1)
        swept = sorted(p.name for p in (pins.BPFFS / pins.FOLDER).glob("*"))
        return {
            "ok": ready["ok"] and again["ok"] and left == [] and len(crashed) == 1 and swept == [],
            "crashed": crashed,
        }

    def nothing_leaks(self) -> Result:
        """Starting and closing a source again and again leaves no descriptor or mapping."""

        def held() -> tuple[int, int]:
            maps = Path("/proc/self/maps").read_text()
            return len(list(Path("/proc/self/fd").iterdir())), maps.count("bpf-map") + maps.count(
                "perf_ev"
            )

        touch = Touch(self.program, 10, 1)
        found = []
        # The watch of migrations, which is kept for all checks, is there all the time.
        _, kept = held()
        try:
            for _ in range(4):
                source = self.faults("raw")
                source.watch([touch.target])
                assert source.ready(wait=True)
                source.poll()
                during = held()
                source.close()
                del source
                found.append(held())
        finally:
            touch.close()
        return {
            "ok": found[0] == found[-1] and found[-1][1] == kept < during[1],
            "descriptors_and_mappings": found,
            "while_open": during,
        }

    def no_bcc(self) -> Result:
        """Without bcc the compiled object is used; without both, one message says why."""
        found, files.find_bcc_python = files.find_bcc_python, lambda: None
        ways, self.ways = self.ways, ("bcc", "prebuilt")
        try:
            source = self.faults()
            with_object = files.find_object("faults")
            if with_object is None:
                state = source.available()
                return {"ok": not state.ok and "bcc" in state.reason, "reason": state.reason}
            return self.exact(source, 100, 1)
        finally:
            files.find_bcc_python, self.ways = found, ways

    def no_headers(self) -> Result:
        """Without headers bcc is passed over, with the reason."""
        found, files.find_headers = files.find_headers, lambda *_: None
        try:
            self.ways, ways = ("bcc",), self.ways
            state = self.faults().available()
            return {
                "ok": not state.ok and "headers" in state.reason,
                "reason": state.reason,
                "hint": state.hint,
            }
        finally:
            files.find_headers, self.ways = found, ways

    def without_capabilities(self) -> Result:
        """Without any, and perf_event_paranoid at 4, each source says one clear sentence."""
        paranoid = Path("/proc/sys/kernel/perf_event_paranoid")
        before = paranoid.read_text()
        try:
            with contextlib.suppress(OSError):
                paranoid.write_text("4")
            code = (
                "from tierd.sources.faults import FaultSource; "
                "from tierd.sources.pmu import PmuSource; "
                "from tierd.sources.migrations import MigrationWatch; "
                "print(*(s().available() for s in (FaultSource, PmuSource, MigrationWatch)),"
                " sep='\\n')"
            )
            result = subprocess.run(
                [*with_capabilities(""), sys.executable, "-c", code],
                capture_output=True,
                text=True,
                check=False,
            )
            lines = result.stdout.splitlines()
            root = self.exact(self.faults(), 100, 1)  # root is not hindered by it
            return {
                "ok": result.returncode == 0
                and len(lines) == 3
                and all("ok=False" in line and "CAP_BPF" in line for line in lines)
                and root["ok"],
                "said": lines,
                "stderr": result.stderr[-500:],
            }
        finally:
            paranoid.write_text(before)

    def with_two_capabilities_only(self) -> Result:
        """CAP_BPF and CAP_PERFMON are enough, but for Debian's paranoid levels 3 and 4."""
        paranoid = Path("/proc/sys/kernel/perf_event_paranoid")
        before = paranoid.read_text()
        command = [*with_capabilities("+bpf,+perfmon"), sys.executable, __file__]
        command += [self.program, "--way", self.ways[0]]
        told = {}
        try:
            for level in ("2", "4"):
                paranoid.write_text(level)
                result = subprocess.run(
                    [*command, "faults_are_exact"], capture_output=True, text=True, check=False
                )
                told[level] = json.loads(result.stdout)
        finally:
            paranoid.write_text(before)
        refused = told["4"].get("error", "")
        return {
            "ok": told["2"]["ok"] and (told["4"]["ok"] or "CAP_SYS_ADMIN" in refused),
            "at_2": told["2"],
            "at_4": told["4"]["ok"] or refused,
        }


def with_capabilities(names: str) -> list[str]:
    """The start of a command that runs with no others (still user 0, who owns the files)."""
    wanted = ",".join(filter(None, ["-all", names]))
    return ["setpriv", "--inh-caps", "-all", "--bounding-set", wanted]


def at_one_moment(source: FaultSource) -> tuple[dict[str, int], dict[str, int]]:
    """(the source's counters, /proc/vmstat) with no hint fault between the two."""
    while True:
        before, stat, after = source.counters, read_vmstat(), source.counters
        if all(before[name] == after[name] for name in ("hints", "hints_foreign")):
            return after, stat


def faults_of(pid: int) -> int:
    """Page faults of a process so far (/proc/PID/stat, minflt and majflt)."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[7]) + int(fields[9])


def memory_nodes() -> list[int]:
    """Nodes with memory."""
    return cpus.parse_list(Path("/sys/devices/system/node/has_memory").read_text())


def demoted(stat: dict[str, int]) -> int:
    """Pages demoted, by any cause."""
    return sum(value for name, value in stat.items() if name.startswith("pgdemote_"))


def settled(watch: MigrationWatch) -> None:
    """Poll until nothing migrates by itself."""
    for _ in range(50):
        before = read_vmstat()["pgmigrate_success"]
        watch.poll()
        time.sleep(0.2)
        if read_vmstat()["pgmigrate_success"] == before:
            return


def tick_at(end_ns: int) -> TickRecord:
    """A tick that ended then; nothing else of it counts here."""
    empty = TierMap((), {})
    plan = MovePlan.empty()
    return TickRecord(0, end_ns, end_ns, "", (), 0, 0, 0, empty, {}, None, plan, None, {})


def move(touch: Touch, node: int) -> int:
    """Ask the kernel to move all pages of `touch` to a node; returns the number there."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = (ctypes.c_void_p * touch.pages)(*((touch.vpn + i) << 12 for i in range(touch.pages)))
    nodes = (ctypes.c_int * touch.pages)(*([node] * touch.pages))
    status = (ctypes.c_int * touch.pages)()
    result = libc.syscall(
        SYS_MOVE_PAGES, touch.pid, touch.pages, pages, nodes, status, MPOL_MF_MOVE
    )
    assert result >= 0, os.strerror(ctypes.get_errno())
    return sum(value == node for value in status)


def names() -> list[str]:
    """All checks."""
    helpers = {"settings", "faults", "watching", "exact", "migrations"}
    return [n for n in vars(Checks) if not n.startswith("_") and n not in helpers]


def main() -> int:
    """Run the checks that were asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("touch")
    parser.add_argument("--way", default="bcc")
    parser.add_argument("checks", nargs="*")
    args = parser.parse_intermixed_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for folder, kind in (("/sys/kernel/tracing", "tracefs"), ("/sys/fs/bpf", "bpf")):
        if not any(Path(folder).iterdir()):
            subprocess.run(["mount", "-t", kind, kind, folder], check=False)
    # An emulated guest on a busy host needs minutes to compile; a service gives up sooner.
    loader.HELPER_LIMIT_S = 1200.0  # type: ignore[misc]
    checks = Checks(args.touch, args.way)
    failed = 0
    for name in args.checks or names():
        check: Callable[[], Result] = getattr(checks, name)
        begin = time.monotonic()
        try:
            result = check()
        except Exception as error:
            result = {"ok": False, "error": repr(error), "where": traceback.format_exc()[-600:]}
        result["seconds"] = round(time.monotonic() - begin, 1)
        print(json.dumps({"check": name, **result}), flush=True)
        failed += not result["ok"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
