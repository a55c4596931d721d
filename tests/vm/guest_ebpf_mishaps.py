# SPDX-License-Identifier: Apache-2.0
"""Checks of bad luck: each ends in a working fallback or in one clear message."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

from guest_ebpf_ground import Ground, Result, Touch, per_page

from tierd.sources.ebpf import files, host

RUNNER = Path(__file__).with_name("guest_ebpf.py")


class Mishaps(Ground):
    """Something is missing, goes away, or may not be used."""

    def cpu_hotplug(self) -> Result:
        """A CPU that goes and comes back is sampled again, seen or not while it was away."""
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
                offline = host.online_cpus()
            finally:
                switch.write_text("1")
            time.sleep(0.2)
            source.poll()  # finds the CPU again
            touch.say("cpu 1")
            touch.say("go")
            total += int(per_page(source.poll(), touch).sum())
            touch.say("cpu 0")
            switch.write_text("0")
            switch.write_text("1")  # no poll between the two
            time.sleep(0.2)
            source.poll()
            touch.say("cpu 1")
            touch.say("go")
            total += int(per_page(source.poll(), touch).sum())
            assert source._sampler is not None
            return told | {
                "ok": offline == [0]
                and total == 3 * touch.faults()
                and source.totals.lost == 0
                and source._sampler.cpu_changes == 3,
                "counted": total,
                "faults": 3 * touch.faults(),
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
        try:
            return self.fallback("bcc")
        finally:
            files.find_bcc_python = found

    def no_headers(self) -> Result:
        """Without headers bcc is passed over, with the reason, for the compiled object."""
        found, files.find_headers = files.find_headers, lambda *_: None
        try:
            return self.fallback("headers")
        finally:
            files.find_headers = found

    def fallback(self, missing: str) -> Result:
        """What becomes of bcc alone, and of bcc and the object."""
        ways, self.ways = self.ways, ("bcc",)
        try:
            alone = self.faults().available()
            self.ways = ("bcc", "prebuilt")
            told: Result = {"reason": alone.reason, "hint": alone.hint}
            if files.find_object("faults") is not None:
                told |= self.exact(self.faults(), 100, 1)
                used = told.get("way") == "prebuilt"
            else:
                used = told["ok"] = not self.faults().available().ok
            return told | {"ok": told["ok"] and used and not alone.ok and missing in alone.reason}
        finally:
            self.ways = ways

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
        command = [*with_capabilities("+bpf,+perfmon"), sys.executable, str(RUNNER)]
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
