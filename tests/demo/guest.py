# SPDX-License-Identifier: Apache-2.0
"""The part of the demo that runs inside the virtual machine.

Runs the workload without tierd and with it, once for each source that is asked for, and
prints one JSON object a line: the workload's own reports (with `phase`), tierd's totals,
and notes.

usage: guest.py --hotset PATH --tlbtick PATH --tierd PATH --config FILE [options]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tierd.config.whole import loads
from tierd.topology.node_meminfo import read_usage

TLB_PERIOD_US = 4000
FAST_NODE, SLOW_NODE = 0, 1
STEADY_REPORTS = 10
"""So many in a row, for --until."""
SUPPORT = Path(__file__).resolve().parents[1] / "support"
CGROUP = Path("/sys/fs/cgroup/tiered")
"""What the configuration matches; the workload joins it when its pages are in place."""


_TELLING = threading.Lock()


def tell(**fields: Any) -> None:
    """Print one event, whole: the workload and the service are told of by two threads."""
    with _TELLING:
        print(json.dumps(fields), flush=True)


def set_kernel(path: str, value: str) -> None:
    """Set a kernel knob if this kernel has it, and say what it was."""
    file = Path(path)
    if file.exists():
        before = file.read_text().strip()
        file.write_text(value)
        tell(event="kernel_setting", file=path, before=before, now=value)


def keep_less_free() -> None:
    """Let the kernel keep free what it does for small pages only.

    For huge pages it keeps 66 MiB and more free however little memory there is: 4 % of a node
    of 1 GiB, where a host's node keeps a few tenths of a percent. The formula is that of
    Documentation/admin-guide/sysctl/vm.rst without huge pages.
    """
    total = re.search(r"^MemTotal:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert total is not None
    set_kernel("/proc/sys/vm/min_free_kbytes", str(math.isqrt(16 * int(total[1]))))


def drop_caches() -> None:
    """Each run begins with the same free memory, whatever files were read before it."""
    Path("/proc/sys/vm/drop_caches").write_text("3")


def workload(args: argparse.Namespace, seconds: float, phase: str) -> subprocess.Popen[str]:
    """Start the workload with its hot set on the slow node."""
    drop_caches()
    tell(event="populating", of=phase, size=args.size)
    command = [args.hotset, "--seconds", str(seconds), "--size", args.size]
    command += ["--interval", str(args.report_every)]
    command += ["--fast-node", str(FAST_NODE), "--slow-node", str(SLOW_NODE)]
    command += ["--hot-share", str(args.hot_share), "--leave-free", args.leave_free]
    command += ["--scattered"] if args.layout == "scattered" else []
    command += ["--move-after", str(args.move_after)] if args.move_after else []
    command += ["--map"] if args.map and phase == "with" else []
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def events(process: subprocess.Popen[str], phase: str) -> Iterator[dict[str, Any]]:
    """The workload's reports, passed on as they come."""
    assert process.stdout is not None
    for line in process.stdout:
        report = json.loads(line)
        tell(phase=phase, **report)
        yield report


def configuration(base: str, source: str) -> str:
    """The file that makes tierd use one source only; `base` for an empty name."""
    if not source:
        return base
    path = Path(f"/tmp/tierd-{source}.toml")
    path.write_text(f'{Path(base).read_text()}\n[sources]\norder = ["{source}"]\n')
    return str(path)


def watch_traffic(wanted: bool) -> None:
    """Watch memory traffic for the cards of this machine, or not.

    It costs host time only, but much of it: nobody watches while memory is taken and summed up.
    """
    sys.path.insert(0, str(SUPPORT))
    from card_window import Window, WindowError

    try:
        Window(timeout_s=120).lab("START" if wanted else "STOP")
    except WindowError as error:
        tell(event="no_cards", why=str(error))


def start_tierd(args: argparse.Namespace, phase: str, config: str) -> subprocess.Popen[str]:
    """Start the service and wait until it says so; its JSON lines are passed on."""
    process = subprocess.Popen(
        [args.tierd, "run", "--config", config, "--json", "--log-level", args.log_level],
        stdout=subprocess.PIPE,
        text=True,
    )

    assert process.stdout is not None
    tell(event="tierd_ready", of=phase, said=json.loads(process.stdout.readline() or "null"))

    def pass_on() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            tell(phase=phase, tierd=json.loads(line))

    threading.Thread(target=pass_on, daemon=True).start()
    return process


def tell_room(phase: str, config: str) -> None:
    """Bytes that may come into the fast node before something must leave it."""
    usage = read_usage([FAST_NODE])[FAST_NODE]
    policy = loads(Path(config).read_text()).policy
    low = usage.low_bytes(policy.low_watermark)
    tell(event="room", of=phase, free_bytes=usage.free_bytes, kept_bytes=low)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Scanner:
    """The kernel module's own account: CPU time of its thread, records that found no room."""

    def __init__(self) -> None:
        from tierd.sources.kmod.netlink import Control

        self._control = Control.open()
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._begin = (time.monotonic(), self._control.scan_get().stats)

    def tell(self, phase: str) -> None:
        """What the scanner did since it began to count."""
        state = self._control.scan_get()
        start, before = self._begin
        seconds = time.monotonic() - start
        done = {name: state.stats[name] - before[name] for name in state.stats}
        tell(
            event="scanner",
            of=phase,
            cpu_share=round(done["cpu_ns"] / 1e9 / seconds, 4),
            budget=state.budget_ppm / 1e6,
            rounds=done["rounds"],
            records=done["reported"],
            records_lost=done["dropped"],
        )


def undo(tierd: str, phase: str) -> None:
    """Have the service put back what it moved."""
    done = subprocess.run([tierd, "undo", "--json"], capture_output=True, text=True, check=False)
    told = json.loads(done.stdout or "null")
    tell(event="undo", of=phase, status=done.returncode, told=told, errors=done.stderr[-1000:])


def start_ticks(args: argparse.Namespace, stack: contextlib.ExitStack) -> None:
    """Empty the emulator's TLB from now on, until `stack` is closed.

    What runs beside it takes three times as long: so not while memory is filled or tierd starts.
    """
    tick = stack.enter_context(subprocess.Popen([args.tlbtick, str(TLB_PERIOD_US)]))
    stack.callback(tick.kill)


def run_with_tierd(args: argparse.Namespace, source: str) -> bool:
    """The workload with tierd; True if the checksum and tierd's exit are right."""
    phase = source or "with"
    cards = source.startswith("neoprof")
    if source:
        watch_traffic(False)
    # Before the workload has its memory: it is the free memory of the start that counts.
    scanner = Scanner() if args.module else None
    tierd = start_tierd(args, phase, configuration(args.config, source))
    before, running, steady = 0.0, True, 0
    with contextlib.ExitStack() as ticks, workload(args, args.with_seconds, phase) as process:
        for report in events(process, phase):
            if report["event"] == "start":
                before = cpu_seconds(tierd.pid)
                drop_caches()
                if cards:
                    watch_traffic(True)
                tell_room(phase, args.config)
                if scanner:
                    scanner.begin()
                start_ticks(args, ticks)
                tell(event="handed_over", of=phase, clock=time.monotonic())
                (CGROUP / "cgroup.procs").write_text(str(process.pid))
            if args.until and report["event"] == "sample":
                steady = steady + 1 if report["fast_share"] >= args.until else 0
            # After the last sample the workload sums up its memory: all of it looks hot then.
            over = report["event"] == "sample" and (
                report["t"] >= args.with_seconds or steady == STEADY_REPORTS
            )
            if running and (over or report["event"] == "end"):
                running = False
                ticks.close()
                if args.undo:
                    undo(args.tierd, phase)
                tell(event="tierd_cpu", of=phase, seconds=cpu_seconds(tierd.pid) - before)
                if scanner:
                    scanner.tell(phase)
                tierd.send_signal(signal.SIGTERM)
                if cards:
                    watch_traffic(False)
            if steady == STEADY_REPORTS:
                process.terminate()
    code = tierd.wait(timeout=600)
    if args.undo:
        # The pause that an undo begins with outlives the service.
        subprocess.run([args.tierd, "resume"], stdout=subprocess.DEVNULL, check=True)
    tell(event="tierd_exit", of=phase, code=code)
    return process.returncode == 0 and code == 0


def main() -> int:
    """Run all phases; 0 if the workload's checksums and tierd's exit are right."""
    parser = argparse.ArgumentParser()
    for name in ("hotset", "tlbtick", "tierd", "config"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--size", default="1200M")
    parser.add_argument("--leave-free", default="100M")
    parser.add_argument("--hot-share", type=float, default=0.1)
    parser.add_argument("--layout", choices=("contiguous", "scattered"), default="contiguous")
    parser.add_argument("--without-seconds", type=float, default=15)
    parser.add_argument("--with-seconds", type=float, default=60)
    parser.add_argument("--until", type=float, help="end once so many reports had this share")
    parser.add_argument("--report-every", type=float, default=1, help="seconds")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--move-after", type=float, default=0, help="another hot set then")
    parser.add_argument(
        "--source",
        action="append",
        help="run with this source only; several: one run each",
    )
    parser.add_argument("--undo", action="store_true", help="at the end, put pages back")
    parser.add_argument("--map", action="store_true", help="where each page is, before and after")
    parser.add_argument("--module", help="kernel module to load before tierd starts")
    args = parser.parse_args()

    set_kernel("/proc/sys/kernel/numa_balancing", "0")
    keep_less_free()
    ok = True
    tell(event="tlbtick", period_us=TLB_PERIOD_US)
    if args.without_seconds > 0:
        with (
            contextlib.ExitStack() as ticks,
            workload(args, args.without_seconds, "without") as process,
        ):
            for report in events(process, "without"):
                if report["event"] == "start":
                    start_ticks(args, ticks)
        ok = process.returncode == 0
    if args.module:
        # The driver of cards, and of those that the lab simulates, too.
        for name in ("tierd", "tierd_neoprof", "tierd_neoprof_window"):
            subprocess.run(["insmod", Path(args.module).with_name(f"{name}.ko")], check=True)
    CGROUP.mkdir(exist_ok=True)
    for source in args.source or [""]:
        ok = run_with_tierd(args, source) and ok
    time.sleep(0.2)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
