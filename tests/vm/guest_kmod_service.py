# SPDX-License-Identifier: Apache-2.0
"""The service in a lab guest with chosen sources, as a child that tells what it does.

The child prints a line for each thing that happens: `ready SHARE` (the scanner's budget),
`selected NAME`, `unavailable NAME`, `no_source`, twice a second `ticks N SAMPLES MOVER_NS`, and its
totals as JSON when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tierd.core import bounds
from tierd.observe.totals import Totals

DEMO_CONFIG = Path(__file__).resolve().parents[1] / "demo/tierd.toml"
CGROUP = Path("/sys/fs/cgroup/tiered")
"""What the demo's configuration matches."""
SAY_S = 0.5
EVENTS = {"source_selected": "selected", "source_unavailable": "unavailable"}


class Daemon:
    """The parent's view of the child."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid
        self.scan_share = 0.0
        self.selected: list[str] = []
        self.no_source = 0
        self.ticks = 0
        self.samples = 0
        self.move_cpu_ns = 0
        self.totals: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._ready = threading.Event()
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, *rest = line.split()
            if word == "ready":
                self.scan_share = float(rest[0])
            elif word == "selected":
                self.selected.append(rest[0])
            elif word == "no_source":
                self.no_source += 1
            elif word == "ticks":
                self.ticks, self.samples, self.move_cpu_ns = map(int, rest)
            elif word.startswith('{"totals"'):
                self.totals = json.loads(line)["totals"]
            self._ready.set()

    def wait_ready(self, seconds: float) -> None:
        """Until it says that it runs.

        Raises:
            RuntimeError: it did not.
        """
        self._ready.wait(seconds)
        if not self.scan_share:
            raise RuntimeError(f"the service did not start: {self.process.poll()}")

    def stop(self, seconds: float = 120) -> int:
        """SIGTERM; its exit status. What it told until then has been taken in."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=seconds)
        self._reader.join(10)
        return status


@contextlib.contextmanager
def running(
    names: Sequence[str],
    *,
    config: Path | str = DEMO_CONFIG,
    cpu: float | None = None,
    retry_s: float | None = None,
) -> Iterator[Daemon]:
    """The service with these sources for the length of a block; killed if it still runs.

    An error in the block must not leave it waiting for a service that nobody stops.
    """
    command = [sys.executable, __file__, "--config", str(config)]
    command += ["--cpu", str(cpu)] if cpu is not None else []
    command += ["--retry", str(retry_s)] if retry_s is not None else []
    process = subprocess.Popen(
        [*command, "--names", *names], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        daemon = Daemon(process)
        daemon.wait_ready(600)
        yield daemon
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


class Teller(logging.Handler):
    """Passes on what happens to sources."""

    def emit(self, record: logging.LogRecord) -> None:
        words = dict(w.split("=", 1) for w in record.getMessage().split() if "=" in w)
        event = words.get("event", "")
        if event in EVENTS:
            say(EVENTS[event], words["source"])
        elif event == "no_source":
            say(event)


def say(*words: object) -> None:
    """A line, whole, whichever thread says it."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def tell_ticks(totals: Totals, ended: threading.Event) -> None:
    """Say how far it is, until it has ended."""
    while not ended.wait(SAY_S):
        say("ticks", totals.ticks, totals.samples, totals.move_cpu_ns)


def main() -> int:
    """The child: run the service."""
    from tierd.config.whole import loads
    from tierd.engine import build as rooms

    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--cpu", type=float)
    parser.add_argument("--retry", type=float)
    parser.add_argument("--names", nargs="+", required=True)
    args = parser.parse_args()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if args.retry is not None:
        bounds.SOURCE_RETRY_NS = round(args.retry * 1e9)
    settings = loads(Path(args.config).read_text())
    scan = settings.sources.scan
    scan = replace(scan, cpu_limit=scan.cpu_limit if args.cpu is None else args.cpu)
    idlepage = replace(settings.sources.idlepage, cpu_limit=scan.cpu_limit)
    sources = replace(settings.sources, order=tuple(args.names), scan=scan, idlepage=idlepage)
    made, _ = rooms.build(replace(settings, sources=sources))
    logging.getLogger("tierd").addHandler(Teller())
    logging.getLogger("tierd").setLevel(logging.INFO)
    say("ready", scan.cpu_limit)
    ended = threading.Event()
    teller = threading.Thread(target=tell_ticks, args=[made.totals, ended], daemon=True)
    teller.start()
    code = made.run()
    # A thread that writes while the interpreter ends is a fatal error of Python's.
    ended.set()
    teller.join()
    say(json.dumps({"totals": made.totals.as_json()}))
    return code


if __name__ == "__main__":
    sys.exit(main())
