# SPDX-License-Identifier: Apache-2.0
"""The methods that the benchmark compares; each is one entry of `METHODS`.

A method's life: `prepare` before the workload starts, `settle` when its memory is in place and
it waits, `begin` just before it goes on, `during` beside it, `end` after it, with the machine left
as before. `begin` and `during` run while memory traffic is watched, which makes the machine slow:
what takes long is in the others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import memory
import numpy as np

ROOT = Path(__file__).resolve().parents[4]
BUILT = ROOT / "build/workloads"
TOOLS = Path(sys.executable).parent
CGROUP = Path("/sys/fs/cgroup/tiered")
NUMA_BALANCING = Path("/proc/sys/kernel/numa_balancing")
DEMOTION = Path("/sys/kernel/mm/numa/demotion_enabled")
CONFIG = Path("/tmp/tierd-bench.toml")
ERRORS = Path("/tmp/daemon.err")
"""What the daemon of a method wrote."""
PROGRESS = Path("/run/progress")
"""Where a workload without end counts its work."""
KDAMONDS = Path("/sys/kernel/mm/damon/admin/kdamonds")
WARM_S = 3.0
"""For so long a service has watched another process when the workload comes."""
PASS_S = 0.5
"""Time between two passes of a service (`loop.interval`)."""
SCHED = Path("/sys/kernel/debug/sched/numa_balancing")


CARD_MODULES = ("tierd_neoprof", "tierd_neoprof_window")
"""The driver of cards, and of those that the lab simulates."""


def load_modules(*names: str) -> None:
    """insmod, without debug information."""
    for name in names:
        module = Path(f"/tmp/{name}.ko")
        built = ROOT / "build/kmod" / os.uname().release / f"{name}.ko"
        subprocess.run(["strip", "--strip-debug", "-o", module, built], check=True)
        subprocess.run(["insmod", module], check=True)


def unload_modules() -> None:
    """rmmod of what is there."""
    names = (*reversed(CARD_MODULES), "tierd")
    there = [name for name in names if Path("/sys/module", name).exists()]
    subprocess.run(["rmmod", *there], check=True)


def start_marked(command: Sequence[str | Path]) -> subprocess.Popen[str]:
    """Start a program whose instructions count as the daemon's; it says a line when it runs."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=ERRORS.open("w"),
        text=True,
        preexec_fn=memory.default_policy,  # noqa: PLW1509
        env={**os.environ, "LD_PRELOAD": str(BUILT / "daemonmark.so")},
    )
    assert process.stdout is not None
    if not process.stdout.readline():
        raise RuntimeError(f"the daemon ended with {process.wait()}: {ERRORS.read_text()[-1500:]}")
    return process


def stop_marked(process: subprocess.Popen[str]) -> str:
    """End it; its last line."""
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=600)
    if process.returncode or not said:
        raise RuntimeError(
            f"the daemon ended with {process.returncode}: {ERRORS.read_text()[-1500:]}"
        )
    return said.splitlines()[-1]


def threads_of(process: subprocess.Popen[str]) -> dict[str, float]:
    """Seconds on a CPU of each of a process' threads, by number and name."""
    spent = {}
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        name = (thread / "comm").read_text().strip()
        spent[f"{thread.name} {name}"] = int((thread / "schedstat").read_text().split()[0]) / 1e9
    return spent


@dataclass(frozen=True)
class Given:
    """What a cell hands to its method.

    Attributes:
        counts: file with an earlier run's virtual page numbers and requests, for the oracle.
        settings: TOML over tierd's settings, or nothing.
        internal: tuning constants of tierd, NAME=VALUE.
        lies: the service's source exchanges hot and cold pages.
        trial: options of `tierd trial`.
    """

    counts: Path
    settings: str = ""
    internal: Sequence[str] = ()
    lies: bool = False
    trial: Sequence[str] = ()


class Method:
    """First touch: nothing moves.

    Attributes:
        wrapper: words in front of the workload's command.
        arguments: words after it.
        limited: whether the fast node is filled up by ballast, and the workload's pages are put
            where first touch would have them.
    """

    wrapper: Sequence[str] = ()
    arguments: Sequence[str] = ()
    limited = True

    def prepare(self) -> None:
        """What has to run before the workload does."""

    def settle(self, pid: int) -> None:
        """The workload waits, its memory is in place."""

    def begin(self, pid: int) -> None:
        """The workload goes on in a moment."""

    def during(self, work: subprocess.Popen[bytes]) -> None:
        """The workload runs; return when its end may be waited for."""

    def daemons(self) -> list[int]:
        """Its marked processes."""
        return []

    def end(self) -> dict[str, Any]:
        """Stop; figures of its own: promoted, demoted, bounced if it knows them."""
        return {}


class Bound(Method):
    """All memory on one node."""

    limited = False

    def __init__(self, node: int) -> None:
        self.wrapper = ("numactl", f"--membind={node}")


class Oracle(Method):
    """The pages with the most requests in an earlier run of the cell, as many as fit.

    Args:
        counts: file with the earlier run's virtual page numbers, ascending, and their requests.
    """

    def __init__(self, counts: Path) -> None:
        self._counts = counts
        self._placed: dict[str, int] = {}

    def settle(self, pid: int) -> None:
        known, requests = np.fromfile(self._counts, "<u8").reshape(2, -1)
        vpns, _ = memory.page_table(pid)
        at = np.searchsorted(known, vpns)
        at[at == len(known)] = 0
        weight = np.where(known[at] == vpns, requests[at], 0)
        room = int((memory.nodes_of(pid, vpns) == memory.FAST).sum())
        fast = np.zeros(len(vpns), bool)
        fast[np.argsort(-weight.astype(np.int64), kind="stable")[:room]] = True
        self._placed = memory.place(pid, vpns, fast)

    def end(self) -> dict[str, Any]:
        return {"placed": self._placed, "promoted": 0, "demoted": 0}


class NumaBalancing(Method):
    """The kernel's memory tiering; `periods_ms`: least and most time between two scans."""

    def __init__(self, periods_ms: tuple[int, int] | None = None) -> None:
        self._periods = periods_ms
        self._before: dict[str, str] = {}

    def begin(self, pid: int) -> None:
        if self._periods:
            for name, value in zip(("min", "max"), self._periods, strict=True):
                file = SCHED / f"scan_period_{name}_ms"
                self._before[name] = file.read_text()
                file.write_text(str(value))
        self._counts = memory.moves()
        DEMOTION.write_text("1")
        NUMA_BALANCING.write_text("2")

    def end(self) -> dict[str, Any]:
        NUMA_BALANCING.write_text("0")
        DEMOTION.write_text("0")
        for name, value in self._before.items():
            (SCHED / f"scan_period_{name}_ms").write_text(value)
        now = memory.moves()
        return {
            "promoted": now["pgpromote_success"] - self._counts["pgpromote_success"],
            "demoted": now["pgdemote"] - self._counts["pgdemote"],
        }


class Tierd(Method):
    """The service with one source, on its defaults but for the cell's variant."""

    def __init__(self, source: str, given: Given) -> None:
        self._source, self._settings = source, given.settings
        self._lies, self._oracle = given.lies, Oracle(given.counts)
        lying = [sys.executable, Path(__file__).with_name("lying.py")]
        self._program: list[str | Path] = lying if given.lies else [TOOLS / "tierd"]
        self._trial = given.trial
        self._constants = [f"--set=internal.{each}" for each in given.internal]

    def prepare(self) -> None:
        CGROUP.mkdir(exist_ok=True)
        self.configure(CONFIG)
        if self._source in ("scan", "neoprof"):
            load_modules("tierd", *(CARD_MODULES if self._source == "neoprof" else ()))
        command = [*self._program, "run", "--config", CONFIG, "--json", "--log-level", "info"]
        self._daemon = start_marked([*command, *self._constants])
        # A service has been at work before: its rings are there, and its code is in memory.
        self._other = subprocess.Popen(["sleep", "infinity"])
        (CGROUP / "cgroup.procs").write_text(str(self._other.pid))
        while f"source={self._source} event=source_selected" not in ERRORS.read_text():
            if self._daemon.poll() is not None:
                raise RuntimeError(f"the daemon ended: {ERRORS.read_text()[-1500:]}")
            time.sleep(0.5)
        time.sleep(WARM_S)
        self._since = time.monotonic()

    def settle(self, pid: int) -> None:
        if self._lies:
            self._oracle.settle(pid)

    def configure(self, config: Path) -> None:
        """Write the service's configuration, with the variant's settings in conf.d beside it."""
        text = (Path(__file__).parent / "tierd.toml").read_text()
        config.write_text(f'{text}\n[sources]\norder = ["{self._source}"]\n')
        if self._settings:
            folder = config.parent / "conf.d"
            folder.mkdir(exist_ok=True)
            (folder / "50-variant.toml").write_text(self._settings)

    def begin(self, pid: int) -> None:
        self._threads = threads_of(self._daemon)
        (CGROUP / "cgroup.procs").write_text(str(pid))
        # A process that is moved tells nobody: it would be found within targets.refresh_interval.
        # A reload begins a pass, and others follow it: not where this workload happens to begin.
        time.sleep((PASS_S / 2 - (time.monotonic() - self._since)) % PASS_S)
        self._daemon.send_signal(signal.SIGHUP)

    def daemons(self) -> list[int]:
        return [self._daemon.pid]

    def end(self) -> dict[str, Any]:
        threads = threads_of(self._daemon)
        self._other.kill()
        self._other.wait()
        said = stop_marked(self._daemon)
        if Path("/sys/module/tierd").exists():
            unload_modules()
        log = ERRORS.read_text()
        totals = json.loads(said)
        if f"source={self._source}" not in log:
            raise RuntimeError(f"tierd did not use {self._source}: {log[-1500:]}")
        return {
            "promoted": totals["promoted_pages"],
            "demoted": totals["demoted_pages"],
            "bounced": totals["ping_pong_pages"],
            "lost_samples": totals["lost_samples"],
            "fates": totals["migration_results"],
            "native": totals.get("fast_path"),
            "account": totals.get("account"),
            "ticks": totals.get("ticks"),
            "part_seconds": totals.get("part_seconds"),
            "part_cpu_seconds": totals.get("part_cpu_seconds"),
            "threads_s": {
                name: round(spent - self._threads.get(name, 0.0), 4)
                for name, spent in threads.items()
            },
            "warnings": [line for line in log.splitlines() if "level=warning" in line][:5],
            "sampling_intervals": [
                line[line.index("us=") :]
                for line in log.splitlines()
                if "event=sampling_interval" in line
            ],
        }


class Trial(Tierd):
    """The service as in `Tierd`, and `tierd trial` beside a workload without end.

    How long its windows are, and how many, the cell's variant says.
    """

    arguments = ("--endless", str(PROGRESS), "--work", "1000000")
    """The work comes after the cell's, and so counts: updates looks for SIGTERM once in so many."""

    def during(self, work: subprocess.Popen[bytes]) -> None:
        measure = f"od -An -t u8 {PROGRESS}"
        command = [TOOLS / "tierd", "trial", "--json", "--measure", measure, "--counter"]
        done = subprocess.run([*command, *self._trial], capture_output=True, check=False)
        work.terminate()
        if not done.stdout:
            raise RuntimeError(f"tierd trial: {done.stderr.decode()[-1500:]}")
        self._told = {"status": done.returncode, **json.loads(done.stdout)}

    def end(self) -> dict[str, Any]:
        return {**super().end(), "trial": self._told}


class Baseline(Method):
    """One of baselines.py; the kernel makes room by demotion where the daemon does not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def prepare(self) -> None:
        if self._name == "pte-scan":
            load_modules("tierd")
        script = Path(__file__).with_name("baselines.py")
        self._daemon = start_marked([sys.executable, script, self._name])

    def begin(self, pid: int) -> None:
        self._counts = memory.moves()
        DEMOTION.write_text("1")
        assert self._daemon.stdin is not None
        assert self._daemon.stdout is not None
        self._daemon.stdin.write(f"{pid}\n")
        self._daemon.stdin.flush()
        if not self._daemon.stdout.readline():
            raise RuntimeError(f"the daemon ended: {ERRORS.read_text()[-1500:]}")

    def daemons(self) -> list[int]:
        return [self._daemon.pid]

    def end(self) -> dict[str, Any]:
        said = stop_marked(self._daemon)
        DEMOTION.write_text("0")
        if self._name == "pte-scan":
            unload_modules()
        figures: dict[str, Any] = json.loads(said)
        figures["demoted"] += memory.moves()["pgdemote"] - self._counts["pgdemote"]
        return figures


class Damon(Method):
    """The kernel's DAMON as its sample for tiering sets it, through `damo`.

    Two kdamonds: what is used on the slow node goes to the fast one, what is not used on the
    fast one goes to the slow one, 200 MiB a second each. Kernels from 6.16 on have goals for the
    use of a node, which hold the two back; before that nothing does.
    """

    def settle(self, pid: int) -> None:
        release = tuple(int(word) for word in os.uname().release.split(".")[:2])
        goals = release >= (6, 16)
        head = "--kdamond --damon_ctx --ops paddr --monitoring_intervals 5ms 100ms 60s"
        head += " --monitoring_nr_regions_range 10 1000 --damon_target --numa_node"
        quota = "--damos_quota_interval 1s --damos_quota_space 200MiB"
        quota += " --damos_quota_weights 0 100 100"
        up = f"{head} {memory.SLOW} --damos_scheme --damos_action migrate_hot {memory.FAST}"
        up += f" --damos_access_rate 5% max {quota} --damos_filter reject none young"
        down = f"{head} {memory.FAST} --damos_scheme --damos_action migrate_cold {memory.SLOW}"
        down += f" --damos_access_rate 0% 0% {quota} --damos_filter reject young"
        if goals:
            up += f" --damos_quota_goal node_mem_used_bp 99.7% {memory.FAST}"
            down += f" --damos_quota_goal node_mem_free_bp 0.5% {memory.FAST}"
        self._schemes = f"{up} {down}"
        self._damo("start", *self._schemes.split())
        self._turn("off")

    def begin(self, pid: int) -> None:
        self._turn("on")

    def _turn(self, state: str) -> None:
        for kdamond in sorted(KDAMONDS.iterdir()):
            if kdamond.is_dir():
                (kdamond / "state").write_text(state)

    def _damo(self, *words: str) -> None:
        done = subprocess.run([TOOLS / "damo", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"damo {words[0]}: {(done.stdout + done.stderr)[-1500:]}")

    def end(self) -> dict[str, Any]:
        moved: list[dict[str, int]] = []
        for number in range(2):
            kdamond = KDAMONDS / str(number)
            (kdamond / "state").write_text("update_schemes_stats")
            stats = kdamond / "contexts/0/schemes/0/stats"
            moved.append({file.name: int(file.read_text()) for file in stats.iterdir()})
        self._damo("stop")
        pages = [each["sz_applied"] // memory.PAGE for each in moved]
        return {"promoted": pages[0], "demoted": pages[1], "schemes": moved, "set": self._schemes}


METHODS: dict[str, Callable[[Given], Method]] = {
    "first-touch": lambda _: Method(),
    "all-fast": lambda _: Bound(memory.FAST),
    "all-slow": lambda _: Bound(memory.SLOW),
    "oracle": lambda given: Oracle(given.counts),
    "numa-balancing": lambda _: NumaBalancing(),
    "numa-balancing-1-3s": lambda _: NumaBalancing((1000, 3000)),
    "damon": lambda _: Damon(),
    "pte-scan": lambda _: Baseline("pte-scan"),
    "pebs-weak": lambda _: Baseline("pebs-weak"),
    "pebs-histogram": lambda _: Baseline("pebs-histogram"),
    "tierd-damon": lambda given: Tierd("damon", given),
    "tierd-idlepage": lambda given: Tierd("idlepage", given),
    "tierd-scan": lambda given: Tierd("scan", given),
    "tierd-neoprof": lambda given: Tierd("neoprof", given),
    "trial-scan": lambda given: Trial("scan", given),
}
