# SPDX-License-Identifier: Apache-2.0
"""A running service while everything around it changes; for minutes of guest time.

usage: guest_service_churn.py --hotset PATH --tierd PATH --minutes N [--module FILE]

Processes start, work and end; the configuration is reloaded, good and broken in turn; the
module is loaded and unloaded; memory of the slow node goes off and on line; the service is
paused and resumed. Prints one JSON object: resident memory and descriptors of the service over
time, what was done, and whether the workloads' checksums are right.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "daemon"))

from tierd.control.protocol import AnswerError, Client

SAMPLE_S = 2.0
PATIENCE_S = 300.0
LEAST_RELOADS = 4
LONGEST_S = 900.0
"""A guest that is starved has so much longer to do everything once."""
MEMORY = Path("/sys/devices/system/memory")
SLOW = Path("/sys/devices/system/node/node1")
MODULE = Path("/sys/module/tierd")
GOOD = """
[targets]
match = {{ exe = "hotset" }}
min_rss = "1MiB"
refresh_interval = "1s"
[loop]
interval = "{tick}ms"
[sources]
order = ["scan", "damon"]
[heat]
memory = "16MiB"
[policy]
migration_cooldown = "1s"
[migration]
cpu_limit = "50%"
rate_limit = "{rate}MB/s"
[control]
socket = "{folder}/control.sock"
state = "{folder}"
timeout = "1min"
[metrics]
port = 0
[[rule]]
name = "some"
match = {{ min_rss = "{rss}MiB" }}
fast_max = "60%"
"""
BROKEN = ("[loop]\ninterva = 1\n", "[[[", '[policy]\nlow_watermark = "50%"\n')


class Churn:
    """The service, and what is done to it."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder = args, folder
        self.random = random.Random(args.seed)
        self.config = folder / "tierd.toml"
        self.done: Counter[str] = Counter()
        self.samples: list[tuple[float, int, int]] = []
        self.checks: Counter[bool] = Counter()
        self.short: list[subprocess.Popen[str]] = []
        self.stderr = folder / "stderr"
        self.write_good()
        with self.stderr.open("w") as stderr:
            self.service = subprocess.Popen(
                [args.tierd, "run", "--config", self.config],
                stderr=stderr,
                stdout=subprocess.DEVNULL,
            )

    def write_good(self) -> None:
        """A valid configuration, another one each time."""
        pick = self.random
        self.config.write_text(
            GOOD.format(
                tick=pick.choice([100, 200, 400]),
                rate=pick.randint(20, 400),
                rss=pick.randint(2, 60),
                folder=self.folder,
            )
        )

    def sample(self, start: float) -> None:
        """Resident memory and descriptors of the service now."""
        status = Path(f"/proc/{self.service.pid}/status").read_text()
        rss = next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)
        descriptors = len(os.listdir(f"/proc/{self.service.pid}/fd"))
        self.samples.append((round(time.monotonic() - start, 1), rss, descriptors))

    def hotset(self, *options: str) -> subprocess.Popen[str]:
        """A workload that checks its memory at the end."""
        command = [self.args.hotset, "--fast-node", "0", "--slow-node", "1", *options]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def start_short(self) -> None:
        """A small workload; some end by themselves, some are killed."""
        self.reap()
        if len(self.short) < 6:
            seconds = self.random.choice(["1", "4", "12"])
            size = f"{self.random.choice([4, 24, 60])}M"
            self.short.append(self.hotset("--seconds", seconds, "--size", size, "--rate", "20000"))
            self.done["started"] += 1
        elif self.random.random() < 0.5:
            victim = self.short.pop(self.random.randrange(len(self.short)))
            victim.kill()
            victim.communicate()
            self.done["killed"] += 1

    def reap(self) -> None:
        """Check the workloads that have ended."""
        for process in [p for p in self.short if p.poll() is not None]:
            self.short.remove(process)
            self.judge(process)

    def judge(self, process: subprocess.Popen[str]) -> None:
        """Take in a workload's last report."""
        said = process.communicate(timeout=600)[0]
        ends = [json.loads(line) for line in said.splitlines() if '"end"' in line]
        self.checks[bool(ends) and ends[-1]["checksum_ok"] is True] += 1

    def reload(self) -> None:
        """Good or broken, in turn."""
        if self.done["reloads"] % 2:
            self.config.write_text(self.random.choice(BROKEN))
        else:
            self.write_good()
        self.service.send_signal(signal.SIGHUP)
        self.done["reloads"] += 1

    def module(self) -> None:
        """Load or unload the module."""
        if not self.args.module:
            return
        if MODULE.exists():
            with contextlib.suppress(OSError):
                (MODULE / "parameters/closing").write_text("1")
            time.sleep(2)
            gone = subprocess.run(["rmmod", "tierd"], capture_output=True, check=False)
            self.done["unloaded" if gone.returncode == 0 else "unload_refused"] += 1
        else:
            subprocess.run(["insmod", self.args.module], check=True)
            self.done["loaded"] += 1

    def hotplug(self) -> None:
        """A block of the slow node goes off line and comes back."""
        blocks = sorted(path.name for path in SLOW.glob("memory*"))
        state = MEMORY / self.random.choice(blocks) / "state"
        try:
            state.write_text("offline")
            self.done["offlined"] += 1
        except OSError:
            self.done["offline_refused"] += 1
        time.sleep(1)
        with contextlib.suppress(OSError):
            state.write_text("online_movable")

    def pause(self) -> None:
        """The kill switch, and back."""
        for command in ("pause", "resume"):
            while not self.ask(command):
                self.done["loop_was_late"] += 1
            time.sleep(1)
        self.done["paused"] += 1

    def ask(self, command: str) -> bool:
        """Whether the service did it; false where its loop did not answer in time."""
        try:
            with Client(self.folder / "control.sock", PATIENCE_S) as client:
                client.ask(command)
        except AnswerError as error:
            if error.kind != "stuck":
                raise
            return False
        return True

    def all_done(self) -> bool:
        """Whether each thing was done at least once, and undone."""
        did = self.done
        hotplug = did["offlined"] + did["offline_refused"]
        return bool(
            did["started"]
            and did["paused"]
            and did["reloads"] >= LEAST_RELOADS
            and hotplug
            and (did["unloaded"] or not self.args.module)
        )

    def wait_until_started(self) -> None:
        """Wait for the service's word, or its end."""
        while self.service.poll() is None and "event=started" not in self.stderr.read_text():
            time.sleep(0.5)

    def run(self) -> dict[str, object]:
        """All of it; the facts."""
        self.wait_until_started()
        long = self.hotset("--seconds", "100000", "--size", "200M", "--interval", "60")
        start = time.monotonic()
        steps: list[tuple[float, Callable[[], None]]] = [
            (1.0, self.start_short),
            (7.0, self.reload),
            (11.0, self.hotplug),
            (17.0, self.module),
            (13.0, self.pause),
        ]
        due = [start + 10 + every for every, _ in steps]
        stopped = threading.Event()
        sampler = threading.Thread(target=self._sample_until, args=(stopped, start))
        sampler.start()
        try:
            end = start + self.args.minutes * 60
            while self.service.poll() is None:
                now = time.monotonic()
                if now >= end and (self.all_done() or now >= end + LONGEST_S):
                    break
                time.sleep(0.2)
                for index, (every, step) in enumerate(steps):
                    if time.monotonic() >= due[index]:
                        due[index] = time.monotonic() + every
                        step()
        finally:
            stopped.set()
            sampler.join()
        alive = self.service.poll() is None
        self.service.send_signal(signal.SIGTERM)
        status = self.service.wait(timeout=300)
        for process in [*self.short, long]:
            process.terminate()
            self.judge(process)
        text = self.stderr.read_text(errors="replace")
        return {
            "alive": alive,
            "status": status,
            "samples": self.samples,
            "done": dict(self.done),
            "checksums": {str(ok).lower(): count for ok, count in self.checks.items()},
            "exceptions": text.count("Traceback"),
            "reloaded": text.count("event=reloaded"),
            "refused": text.count("event=reload_failed"),
            "sources": sorted({w for w in text.split() if w.startswith("source=")}),
            "tail": text[-2500:],
        }

    def _sample_until(self, stopped: threading.Event, start: float) -> None:
        while not stopped.wait(SAMPLE_S):
            with contextlib.suppress(OSError, StopIteration):
                self.sample(start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hotset", required=True)
    parser.add_argument("--tierd", required=True)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--module", default="")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/run") as folder:
        print(json.dumps(Churn(args, Path(folder)).run()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
