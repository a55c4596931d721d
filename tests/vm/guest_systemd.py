# SPDX-License-Identifier: Apache-2.0
"""Runs in a guest with systemd as init: what an operator does with the installed service.

Prints one JSON object a line: `event` and the facts; the test judges them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

STUCK_AT = "/opt/stuck.py"  # the unit does not see /root
BLOCK = Path("/run/block-the-loop")
CONF = Path("/etc/tierd/conf.d")
DROP_IN = Path("/etc/systemd/system/tierd.service.d/test.conf")
PATIENCE_S = 240.0
STUCK = f"""#!/usr/bin/python3 -I
import os, sys, time
sys.path[:0] = ["/usr/lib/tierd", "/usr/lib/tierd/bundled"]
from tierd.cli import main
from tierd.observe.tick_record import TickLog
real = TickLog.on_tick
def on_tick(self, tick):
    while os.path.exists("{BLOCK}"):
        time.sleep(0.1)
    real(self, tick)
TickLog.on_tick = on_tick
sys.exit(main())
"""


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, "at": round(time.monotonic(), 1), **facts}), flush=True)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def show(*properties: str) -> dict[str, str]:
    told = run("systemctl", "show", "tierd", *(f"-p{name}" for name in properties)).stdout
    return dict(line.split("=", 1) for line in told.splitlines())


def journal() -> str:
    return run("journalctl", "-u", "tierd", "-o", "cat", "--no-pager").stdout


def wait(until: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if until():
            return True
        time.sleep(2)  # each look costs the guest's only CPU a good part of a second
    return until()


def state() -> str:
    return show("ActiveState")["ActiveState"]


def settle(text: str = "") -> None:
    """The configuration: what is asked, with a workload of its own and quick looks."""
    CONF.mkdir(exist_ok=True)
    (CONF / "test.toml").write_text(
        '[targets]\nmatch = { exe = "hotset" }\n[loop]\ninterval = "500ms"\ncpu_limit = "100%"\n'
        '[sources]\norder = ["damon"]\n[policy]\nmigration_cooldown = "2s"\n'
        '[migration]\ncpu_limit = "50%"\n' + text
    )


def moved() -> int:
    """Bytes that `tierd run` reports in its ending lines, all runs together."""
    return sum(
        int(part.split("=", 1)[1])
        for line in journal().splitlines()
        if "event=ended" in line
        for part in line.split()
        if part.startswith("promoted_pages=")
    )


def installed() -> None:
    verify = run("systemd-analyze", "verify", "--man=no", "tierd.service")
    security = run("systemd-analyze", "security", "--no-pager", "tierd.service").stdout
    tell(
        "installed",
        systemd=run("systemctl", "--version").stdout.splitlines()[0],
        state=state(),
        enabled=run("systemctl", "is-enabled", "tierd").stdout.strip(),
        verify_status=verify.returncode,
        verify=verify.stderr.splitlines(),
        exposure=next(line for line in security.splitlines() if "Overall" in line).strip(),
        config=run("tierd", "config", "check").stdout.strip(),
        diff=run("tierd", "config", "diff").stdout,
        doctor=run("tierd", "doctor").returncode,
    )


def ready() -> None:
    """The first pass is held up: starting goes on until it is let go."""
    settle()
    BLOCK.touch()
    run("systemctl", "start", "--no-block", "tierd")
    in_loop = wait(lambda: "event=started" in journal())
    time.sleep(3)
    before = state()
    BLOCK.unlink()
    after = wait(lambda: state() == "active")
    tell(
        "ready",
        in_loop=in_loop,
        before=before,
        after=after,
        capabilities=capabilities(),
        status_text=show("StatusText")["StatusText"],
        log=journal()[-2000:],
    )


def capabilities() -> list[int]:
    """The masks of permitted capabilities of the service's threads, its first one first."""
    pid = int(show("MainPID")["MainPID"])
    tasks = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name) != pid)
    texts = [(task / "status").read_text() for task in tasks]
    lines = [line for text in texts for line in text.splitlines() if line.startswith("CapPrm:")]
    return [int(line.split()[1], 16) for line in lines]


def metric(name: str) -> float | None:
    """A figure of the service, without labels."""
    with urllib.request.urlopen("http://127.0.0.1:9743/metrics", timeout=120) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    return None


def reload() -> None:
    pid = show("MainPID")["MainPID"]
    settle('rate_limit = "77MB/s"\n')
    status = run("systemctl", "reload", "tierd").returncode
    good = wait(lambda: "changed=migration.rate_limit" in journal())
    (CONF / "zz-broken.toml").write_text("[loop]\ninterva = 5\n")
    run("systemctl", "reload", "tierd")
    refused = wait(lambda: "event=reload_failed" in journal())
    wait(lambda: "reload failed" in show("StatusText")["StatusText"])
    failed = show("StatusText", "ActiveState")
    figure = metric("tierd_config_last_reload_successful")
    time.sleep(2)
    still = show("MainPID", "ActiveState")
    (CONF / "zz-broken.toml").unlink()
    run("systemctl", "reload", "tierd")
    cleared = wait(lambda: "reload failed" not in show("StatusText")["StatusText"])
    tell(
        "reload",
        status=status,
        good=good,
        refused=refused,
        metric=figure,
        said=[line for line in journal().splitlines() if "event=reload_failed" in line],
        status_text=failed["StatusText"],
        same_process=pid == still["MainPID"],
        state=still["ActiveState"],
        cleared=cleared,
    )


def watchdog() -> None:
    """The loop is stuck, in one observer; other threads and signals would go on."""
    before = show("MainPID", "NRestarts")
    BLOCK.touch()
    restarted = wait(lambda: show("NRestarts")["NRestarts"] != before["NRestarts"])
    BLOCK.unlink()
    active = wait(lambda: state() == "active" and show("MainPID")["MainPID"] != before["MainPID"])
    said = run("journalctl", "--no-pager", "-o", "cat", "-u", "tierd").stdout
    tell(
        "watchdog",
        restarted=restarted,
        active=active,
        said=[line for line in said.splitlines() if "atchdog" in line][:3],
        where=[line.strip() for line in said.splitlines() if "in on_tick" in line][:2],
    )


def stop_and_resume() -> None:
    status = run("systemctl", "stop", "tierd").returncode
    stopped = show("Result", "ExecMainStatus", "ActiveState")
    first = moved()
    started = run("systemctl", "start", "tierd").returncode
    again = state()
    wait(lambda: "no source" not in show("StatusText")["StatusText"])
    time.sleep(2)
    text = show("StatusText")["StatusText"]
    run("systemctl", "stop", "tierd")
    tell(
        "stop",
        status=status,
        stopped=stopped,
        promoted=first,
        started=started,
        again=again,
        text=text,
        ended=journal().count("event=ended"),
    )


def wrong_configuration() -> None:
    (CONF / "zz-broken.toml").write_text("[loop]\ninterva = 5\n")
    before = int(show("NRestarts")["NRestarts"])
    status = run("systemctl", "start", "tierd").returncode
    time.sleep(4)  # more than RestartSec of the drop-in
    facts = show("ActiveState", "ExecMainStatus", "NRestarts")
    (CONF / "zz-broken.toml").unlink()
    run("systemctl", "reset-failed", "tierd")
    tell("wrong_config", status=status, facts=facts, restarts_before=before)


def one_tier() -> None:
    """All nodes in one tier: the service is ready and waits for memory to come."""
    (CONF / "zz-flat.toml").write_text('[[topology.tiers]]\nname = "all"\nnodes = [0, 1]\n')
    status = run("systemctl", "start", "tierd").returncode
    facts = show("ActiveState", "StatusText")
    stopped = run("systemctl", "stop", "tierd").returncode
    (CONF / "zz-flat.toml").unlink()
    said = [line for line in journal().splitlines() if "event=waiting" in line]
    tell("one_tier", status=status, facts=facts, stopped=stopped, said=said[-1:])


def removed() -> None:
    DROP_IN.unlink()
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "tierd")
    purged = run("dpkg", "--purge", "tierd")
    left = [
        str(path)
        for path in (
            "/usr/bin/tierd",
            "/usr/lib/tierd",
            "/usr/lib/systemd/system/tierd.service",
            "/etc/systemd/system/multi-user.target.wants/tierd.service",
            "/var/lib/tierd",
            "/run/tierd",
            "/etc/tierd/tierd.toml",
        )
        if os.path.lexists(path)
    ]
    tell("removed", status=purged.returncode, said=purged.stderr[-1000:], left=left)


def main() -> int:
    tell("booted", nodes=sorted(p.name for p in Path("/sys/devices/system/node").glob("node*")))
    Path(STUCK_AT).write_text(STUCK)
    DROP_IN.parent.mkdir(parents=True, exist_ok=True)
    installed()
    DROP_IN.write_text(
        f"[Service]\nExecStart=\nExecStart=/usr/bin/python3 -I {STUCK_AT} run --wait\n"
        f"WatchdogSec={sys.argv[1] if len(sys.argv) > 1 else '40s'}\n"
        "TimeoutStartSec=10min\nRestartSec=1s\n"
    )
    run("systemctl", "daemon-reload")
    size = ["--size", "120M", "--hot-share", "0.1", "--rate", "20000"]
    size += ["--seconds", "3600", "--interval", "5"]
    workload = subprocess.Popen(
        ["/root/hotset", *size, "--fast-node", "0", "--slow-node", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    for step in (ready, reload, watchdog, stop_and_resume, wrong_configuration, one_tier):
        step()
    workload.terminate()
    said = workload.communicate(timeout=300)[0]
    tell("workload", end=[json.loads(line) for line in said.splitlines() if '"end"' in line][-1:])
    removed()
    tell("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
