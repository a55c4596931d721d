# SPDX-License-Identifier: Apache-2.0
"""The whole loop in a lab guest with a NeoProf card; prints one JSON line.

usage: guest_neomem.py [--order SOURCE...] [--seconds S] [--move-after S] [--unbind-at S]
                       [--others-leave SIZE] [--set KEY=VALUE...]

Scattered hot set, all of it first on the slow node. With --move-after the hot set moves
every so many seconds; --unbind-at takes the card away in the middle of the run. With
--others-leave somebody else has the fast node's memory but for so much: what was hot there
must leave before anything else can come in.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import guest_kmod as lab
import numpy as np

from tierd.core.migration import Direction, Fate
from tierd.core.pagekey import PAGE_SIZE, I64Array
from tierd.observe.decisions import DecisionLog
from tierd.observe.tick_record import TickRecord

FAST, SLOW = 0, 1
CGROUP = Path("/sys/fs/cgroup/tiered")
CARDS = Path("/sys/class/neoprof")


class SplitRecord(logging.Handler):
    """Passes on which source was selected, and what went wrong."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "event=source_selected" in text or record.levelno >= logging.WARNING:
            print("told", json.dumps(text), flush=True)


BOUNCE_NS = 5_000_000_000


def most_in_a_second(times_ns: I64Array) -> int:
    """The most of these moments that lie within one second, wherever it begins."""
    times = np.sort(times_ns)
    within = np.searchsorted(times, times + 1_000_000_000) - np.arange(len(times))
    return int(within.max(initial=0))


def moves_told(log: DecisionLog) -> dict[str, int]:
    """What the decisions say of moves, page by page, whatever the promoter's counters say.

    `native_` is what was promoted between ticks, which alone has a bar that was passed.
    """
    entries = log.every()
    moved = entries[entries["fate"] == Fate.MOVED]
    moved = moved[np.lexsort((moved["time_ns"], moved["page"]))]
    when = moved["time_ns"].astype(np.int64)
    up = moved["direction"] == Direction.PROMOTE
    again = (moved["page"][1:] == moved["page"][:-1]) & up[1:] & ~up[:-1]
    native = up & np.isfinite(moved["bar"])
    return {
        "forgotten": log.overwritten,
        "promoted": int(np.count_nonzero(up)),
        "demoted": int(np.count_nonzero(~up)),
        "promoted_again": int(np.count_nonzero(again)),
        "bounced": int(np.count_nonzero(again & (np.diff(when) < BOUNCE_NS))),
        "native_most_in_a_second": most_in_a_second(when[native]) * PAGE_SIZE,
        "most_in_a_second": most_in_a_second(when[up]) * PAGE_SIZE,
    }


class Watcher:
    """Sums up what ticks tell: bytes promoted in each, and thresholds."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, int, int]] = []

    def on_tick(self, tick: TickRecord) -> None:
        """Keep time, bytes moved natively, and by the tick."""
        native = tick.between.moved_bytes if tick.between is not None else 0
        own = tick.report.moved_bytes if tick.report is not None else 0
        self.rows.append((tick.end_ns / 1e9, native, own))


def overridden(config: Any, path: str, value: str) -> Any:
    """The configuration with one attribute changed, by its dotted path in Python's names."""
    name, _, rest = path.partition(".")
    assert is_dataclass(config) and name in {f.name for f in fields(config)}, path
    old = getattr(config, name)
    if rest:
        return replace(config, **{name: overridden(old, rest, value)})
    fresh: Any = value == "true" if isinstance(old, bool) else type(old)(value)
    return replace(config, **{name: fresh})


def service(args: argparse.Namespace) -> None:
    """Run the service; the child's side."""
    from tierd.config.whole import loads
    from tierd.engine import build as rooms
    from tierd.engine.process import stay_resident

    settings = loads(Path(args.config).read_text())
    for change in args.set:
        settings = overridden(settings, *change.split("=", 1))
    sources = replace(settings.sources, order=tuple(args.order))
    handler = SplitRecord()
    logging.getLogger("tierd").addHandler(handler)
    logging.getLogger("tierd").setLevel(logging.DEBUG if args.debug else logging.INFO)
    if args.debug:
        chatty = logging.StreamHandler(sys.stderr)
        logging.getLogger("tierd.engine").addHandler(chatty)
        logging.getLogger("tierd.sources").addHandler(chatty)
    watcher = Watcher()
    made, _ = rooms.build(replace(settings, sources=sources), observers=[watcher])
    stay_resident()
    print("ready", flush=True)
    code = made.run()
    print("rows", json.dumps(watcher.rows), flush=True)
    print("totals", json.dumps(made.totals.as_json()), flush=True)
    steering = made.components.fast_path
    thresholds = [] if steering is None else list(steering.thresholds_of.history)
    if steering is not None:
        print("log", json.dumps(moves_told(steering.log)), flush=True)
    print("thresholds", json.dumps(thresholds), flush=True)
    sys.exit(code)


def start_service(args: argparse.Namespace) -> subprocess.Popen[str]:
    """Start it and wait until it runs; it finds its target when that is in the cgroup."""
    command = [sys.executable, __file__, "--service", "--config", args.config]
    command += ["--debug"] if args.debug else []
    command += ["--order", *args.order]
    command += ["--set", *args.set] if args.set else []
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    said = daemon.stdout.readline().split()
    if said[:1] != ["ready"]:
        raise RuntimeError(f"the service ended with {daemon.wait()}: {said}")
    return daemon


def workload(args: argparse.Namespace) -> subprocess.Popen[str]:
    """The demo's workload, scattered."""
    command = [str(lab.WORKLOADS / "hotset"), "--seconds", str(args.seconds), "--interval", "0.5"]
    command += ["--size", args.size, "--scattered", "--rate", str(args.rate)]
    command += ["--move-after", str(args.move_after), "--leave-free", args.leave_free]
    command += ["--fast-node", str(FAST), "--slow-node", str(SLOW)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def crowd(leave: str) -> Any:
    """Memory of ours on the fast node, so much that `leave` is free there; keep what it is."""
    if not leave:
        return None
    from neoprof_lab import Pages

    from tierd.core.units import parse_size
    from tierd.topology.node_meminfo import read_usage

    return Pages((read_usage([FAST])[FAST].free_bytes - parse_size(leave)) // 4096, FAST)


def take_card_away() -> list[str]:
    """Remove every card's device from its bus; what was removed."""
    gone = []
    for link in CARDS.glob("neoprof*"):
        device = (link / "device").resolve()
        (device / "remove").write_text("1")
        gone.append(device.name)
    return gone


def watch(
    work: subprocess.Popen[str], daemon: subprocess.Popen[str], args: argparse.Namespace
) -> dict[str, Any]:
    """Hand the workload to the service when it runs, and collect the figures."""
    result: dict[str, Any] = {"samples": []}
    said: list[str] = []
    started = 0.0
    gone: list[str] = []
    assert daemon.stdout is not None
    listener = threading.Thread(target=said.extend, args=[daemon.stdout], daemon=True)
    listener.start()
    assert work.stdout is not None
    for line in work.stdout:
        report = json.loads(line)
        if report["event"] == "start":
            result["hot_pages"] = report["hot_pages"]
            (CGROUP / "cgroup.procs").write_text(str(work.pid))
            started = time.monotonic()
        seconds = time.monotonic() - started
        if report["event"] == "sample":
            result["samples"].append((round(seconds, 2), round(report["fast_share"], 4)))
            if args.verbose:
                print(result["samples"][-1], file=sys.stderr, flush=True)
            if args.unbind_at and not gone and seconds > args.unbind_at:
                gone = take_card_away()
        if report["event"] == "end":
            result["fast_share_after"] = report["fast_share"]
            result["checksum_ok"] = report["checksum_ok"]
        # After the last sample the workload sums up its memory: all of it looks hot then.
        over = report["event"] == "end" or report["t"] >= args.seconds
        if over and "daemon_cpu_share" not in result:
            usage = Path(f"/proc/{daemon.pid}/schedstat").read_text().split()
            result["daemon_cpu_share"] = round(int(usage[0]) / 1e9 / seconds, 3)
            daemon.send_signal(signal.SIGTERM)
    result["exit"] = daemon.wait(timeout=120)
    listener.join(timeout=10)
    result |= {"unbound": gone, "started": started}
    for line in said:
        kind, _, text = line.partition(" ")
        if kind in ("totals", "rows", "thresholds", "log"):
            result[kind] = json.loads(text)
        elif kind == "told":
            result.setdefault(kind, []).append(json.loads(text))
        else:
            result.setdefault("other", []).append(line)
    return result


def figures(result: dict[str, Any], args: argparse.Namespace) -> None:
    """What the run is judged by, from what was collected."""
    samples = result["samples"]
    moves = (
        [args.move_after * n for n in range(1, 100) if args.move_after * n < args.seconds]
        if args.move_after
        else []
    )
    # Seconds are of the workload's clock from its start; the service joins a moment later.
    for name, start, end in zip(
        ["first", *[f"move_{n}" for n in range(1, len(moves) + 1)]],
        [0.0, *moves],
        [*moves, float("inf")],
        strict=True,
    ):
        part = [(t - start, share) for t, share in samples if start <= t < end]
        result[name] = {
            f"to_{level}": next((round(t, 2) for t, share in part if share >= level), None)
            for level in (0.5, 0.9, 0.95)
        } | {"final": part[-1][1] if part else None}
    totals = result.get("totals", {})
    moved = totals.get("promoted_pages", 0) + totals.get("demoted_pages", 0)
    result["moves_per_hot_page"] = round(moved / result["hot_pages"] / (1 + len(moves)), 3)
    rows = result.pop("rows", [])
    seconds: dict[int, int] = {}
    for when, native, own in rows:
        seconds[int(when)] = seconds.get(int(when), 0) + native + own
    result["most_bytes_in_a_second"] = max(seconds.values(), default=0)


@contextlib.contextmanager
def modules(order: Sequence[str]) -> Iterator[None]:
    """The kernel modules that sources need."""
    with lab.module() if {"scan", "neoprof"} & set(order) else contextlib.nullcontext():
        if "neoprof" in order:
            lab.load_cards()
        yield


def main() -> int:
    """Run the loop; judge nothing but checksum, exit and the kernel's log."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--service", action="store_true")
    parser.add_argument("--order", nargs="+", default=["neoprof", "scan"])
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--move-after", type=float, default=0)
    parser.add_argument("--unbind-at", type=float, default=0)
    parser.add_argument("--rate", type=int, default=300_000)
    parser.add_argument("--size", default="1200M")
    parser.add_argument("--leave-free", default="100M", help="free memory of the fast node")
    parser.add_argument("--others-leave", default="", help="fast memory that others leave")
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--config", default=str(lab.ROOT / "tests/demo/tierd.toml"))
    args = parser.parse_args()
    if args.service:
        service(args)
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    CGROUP.mkdir(exist_ok=True)
    result: dict[str, Any] = {"order": args.order, "tlbtick_us": lab.TLB_PERIOD_US}
    with (
        modules(args.order),
        start_service(args) as daemon,
        lab.tlbtick(),
    ):
        others = crowd(args.others_leave)
        with workload(args) as work:
            result |= watch(work, daemon, args)
        del others
    figures(result, args)
    result["dmesg"] = lab.splats()[:5]
    print(json.dumps(result), flush=True)
    return 0 if result["checksum_ok"] and not result["dmesg"] and result["exit"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
