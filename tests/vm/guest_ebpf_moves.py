# SPDX-License-Identifier: Apache-2.0
"""Checks of what the kernel moves and hints: counts against /proc/vmstat."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import time
from pathlib import Path

import numpy as np
from guest_ebpf_ground import TARGET, VPN_MASK, Ground, Result, Touch, memory_nodes, move, per_page

from tierd.core.migration import MigrationPlan
from tierd.core.tiermap import TierMap
from tierd.engine.migration_counter import MigrationCounter
from tierd.observe.tick_record import TickRecord
from tierd.sources.faults import FaultSource
from tierd.sources.migrations import MigrationWatch
from tierd.topology.node_meminfo import read_vmstat


class Moves(Ground):
    """Every page that moved is seen, by its reason."""

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
        source = self.kept_faults()
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
                "bounced": int((report.moves > 1).sum()),
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
            now, moved, ping_pong = 0, [], []
            for node in (nodes[-1], nodes[0], nodes[-1]):
                moved.append(move(touch, node))
                time.sleep(0.2)
                now += 2 * 10**9
                counter.on_tick(tick_at(now))
                ping_pong.append(counter.totals.ping_pong)
            after = read_vmstat()
            kernel = after["pgmigrate_success"] - stat["pgmigrate_success"]
            told = counter.totals
            everything = told.by_kernel + told.by_tierd + told.by_others + told.within_node
            return {
                "ok": everything == kernel
                and told.by_tierd == sum(moved)
                and told.unseen == 0
                and (told.unclear > 0 or ping_pong == [0, 1000, 2000]),
                "moved": moved,
                "bounced": ping_pong,
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


def at_one_moment(source: FaultSource) -> tuple[dict[str, int], dict[str, int]]:
    """(the source's counters, /proc/vmstat) with no hint fault between the two."""
    while True:
        before, stat, after = source.counters, read_vmstat(), source.counters
        if all(before[name] == after[name] for name in ("hints", "hints_foreign")):
            return after, stat


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
    plan = MigrationPlan.empty()
    return TickRecord(0, end_ns, end_ns, "", (), 0, 0, 0, empty, {}, None, plan, None, {})
