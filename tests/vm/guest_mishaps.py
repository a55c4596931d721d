# SPDX-License-Identifier: Apache-2.0
"""Bad luck while the service works: its target killed, itself killed, a second start.

usage: guest_mishaps.py --hotset PATH --tlbtick PATH --tierd PATH

Prints one JSON object a mishap, {"mishap": name, ...facts}. The service runs with the
settings of the demo's machine, written here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

CONFIG = Path("/tmp/mishaps.toml")
EMULATED = """
[loop]
cpu_limit = "60%"
[sources.damon]
cpu_limit = "30%"
[migration]
cpu_limit = "60%"
"""
"""An emulated CPU does about a tenth of a real one's work, and the default shares of that are too
little to see anything move."""
SETTINGS = f"""
[targets]
match = {{ exe = "hotset" }}
refresh_interval = "500ms"
{EMULATED}"""
KDAMONDS = Path("/sys/kernel/mm/damon/admin/kdamonds")
INSTANCE = Path("/sys/kernel/tracing/instances/tierd-damon")
DEADLINE_S = 120


class Tierd:
    """A running service and what it said.

    The emulator's TLB is emptied from when it samples, not while it starts: all that runs beside
    `tlbtick` takes three times as long.
    """

    def __init__(self, args: argparse.Namespace, *options: str) -> None:
        self._tlbtick = args.tlbtick
        self._ticks: subprocess.Popen[bytes] | None = None
        command = [args.tierd, "run", "--config", str(CONFIG), "--json", "--log-level", "debug"]
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self.totals: dict[str, Any] = {}
        self._threads = [
            threading.Thread(target=self._read_log, daemon=True),
            threading.Thread(target=self._read_totals, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with contextlib.ExitStack() as ticks:
            for line in self.process.stderr:
                if "event=source_selected" in line and self._ticks is None:
                    self._ticks = ticks.enter_context(subprocess.Popen([self._tlbtick, "4000"]))
                    ticks.callback(self._ticks.kill)
                self.log.append(line.rstrip())

    def _read_totals(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.totals = json.loads(line)

    def wait_for(self, text: str, count: int = 1) -> bool:
        """True once `text` stands in `count` lines of the log."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end and self.process.poll() is None:
            if sum(text in line for line in list(self.log)) >= count:
                return True
            time.sleep(0.05)
        return False

    def wait_for_tick(self, without: str, since: int = 0) -> bool:
        """True once a tick, from line `since` of the log on, does not say `without`."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end and self.process.poll() is None:
            if any("event=tick" in x and f"{without} " not in x for x in self.log[since:]):
                return True
            time.sleep(0.02)
        return False

    def wait_for_moves(self, since: int = 0) -> bool:
        """True once a tick has moved pages."""
        return self.wait_for_tick("moved_bytes=0", since)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait for its end; its exit status."""
        self.process.send_signal(number)
        return self.end(30)

    def end(self, timeout_s: float) -> int:
        """Wait for its end; its exit status."""
        code = self.process.wait(timeout=timeout_s)
        for thread in self._threads:
            thread.join(timeout=5)
        return code

    def alarming(self) -> list[str]:
        """Log lines that no mishap excuses; all from the first traceback on, for it tells why."""
        first = next((n for n, line in enumerate(self.log) if "Traceback" in line), len(self.log))
        return [x for x in self.log[:first] if "level=error" in x] + self.log[first:]


def start_workload(args: argparse.Namespace, seconds: int) -> subprocess.Popen[str]:
    command = [args.hotset, "--size", "120M", "--seconds", str(seconds), "--rate", "100000"]
    command += ["--fast-node", "0", "--slow-node", "1", "--interval", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def finish(workload: subprocess.Popen[str]) -> dict[str, Any]:
    """End the workload; its last report."""
    assert workload.stdout is not None
    workload.terminate()
    reports = [json.loads(line) for line in workload.stdout]
    workload.wait()
    return reports[-1]


def target_killed(args: argparse.Namespace) -> dict[str, Any]:
    """The target dies under the mover; the service goes on and takes the next one.

    SIGTERM comes after the first moves of that one: exit 0.
    """
    tierd = Tierd(args)
    first = start_workload(args, 600)
    moved = tierd.wait_for_moves()
    first.kill()
    first.wait()
    second = start_workload(args, 600)
    lines = len(tierd.log)
    again = tierd.wait_for_moves(since=lines)
    code = tierd.stop()
    report = finish(second)
    return {
        "moved_before": moved,
        "moved_after": again,
        "checksum_ok": report["checksum_ok"],
        "exit": code,
        "alarming": tierd.alarming(),
        "totals": tierd.totals,
    }


def service_killed(args: argparse.Namespace) -> dict[str, Any]:
    """SIGKILL while it moves; the next start cleans up and goes on."""
    workload = start_workload(args, 600)
    first = Tierd(args)
    moved = first.wait_for_moves()
    first.stop(signal.SIGKILL)
    left = {
        "kdamonds": (KDAMONDS / "nr_kdamonds").read_text().strip(),
        "instance": INSTANCE.exists(),
    }
    second = Tierd(args)
    ticked = second.wait_for("samples=", 3)
    second_sampled = second.wait_for_tick("samples=0")
    code = second.stop()
    report = finish(workload)
    return {
        "moved_before": moved,
        "left_behind_by_the_kill": left,
        "ticked_after": ticked,
        "sampled_after": second_sampled,
        "exit": code,
        "alarming": second.alarming(),
        "checksum_ok": report["checksum_ok"],
        "left_at_the_end": {
            "kdamonds": (KDAMONDS / "nr_kdamonds").read_text().strip(),
            "instance": INSTANCE.exists(),
        },
    }


def another_damon_user(args: argparse.Namespace) -> dict[str, Any]:
    """Somebody else runs DAMON: left alone, and told in one message."""
    workload = start_workload(args, 600)
    (KDAMONDS / "nr_kdamonds").write_text("1")
    kdamond = KDAMONDS / "0"
    (kdamond / "contexts/nr_contexts").write_text("1")
    context = kdamond / "contexts/0"
    (context / "operations").write_text("vaddr")
    (context / "targets/nr_targets").write_text("1")
    (context / "targets/0/pid_target").write_text(str(os.getpid()))
    (kdamond / "state").write_text("on")
    tierd = subprocess.run(
        [args.tierd, "run", "--config", str(CONFIG)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    state = (kdamond / "state").read_text().strip()
    (kdamond / "state").write_text("off")
    (KDAMONDS / "nr_kdamonds").write_text("0")
    finish(workload)
    return {"exit": tierd.returncode, "stderr": tierd.stderr, "their_state": state}


def dry_run(args: argparse.Namespace) -> dict[str, Any]:
    """--dry-run takes every step and leaves every page where it is."""
    workload = start_workload(args, 600)
    tierd = Tierd(args, "--dry-run", "--once")
    code = tierd.end(DEADLINE_S)
    report = finish(workload)
    return {
        "exit": code,
        "totals": tierd.totals,
        "hot_on_node": report["hot_on_node"],
        "checksum_ok": report["checksum_ok"],
    }


def main() -> int:
    """Run all mishaps."""
    parser = argparse.ArgumentParser()
    for name in ("hotset", "tlbtick", "tierd"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    CONFIG.write_text(SETTINGS)
    # Else the kernel may move the hot pages first, and there is nothing left to watch.
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    mishaps = (target_killed, service_killed, another_damon_user, dry_run)
    for mishap in mishaps:
        begun = time.monotonic()
        facts = {"mishap": mishap.__name__, **mishap(args)}
        facts["seconds"] = round(time.monotonic() - begun, 1)
        print(json.dumps(facts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
