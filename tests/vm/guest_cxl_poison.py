# SPDX-License-Identifier: Apache-2.0
"""Poison in an emulated CXL device whose memory is a node; run as root inside a lab guest.

usage: guest_cxl_poison.py --tierd PATH

Prints {"event": "ready", "dpa": ...}, waits for the file `GO`, which says that QEMU has poisoned
that address of the device, and prints what came of it. QEMU's device only lists poison: a read of
the address gives what was there. So the page is taken away as a RAS daemon would, at the address
that the service reported, and the mover is asked for it then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from guest_holder import Holder
from guest_memory_errors import SOCKET, Failing, ask, nodes, wait
from moverkit import TARGET, Machine, fates, keys, plan

GO = Path("/run/poisoned")
DEVICES = Path("/sys/bus/cxl/devices")
MODULES = ("cxl_acpi", "cxl_pci", "cxl_mem", "dax_cxl", "kmem")
NODE, NEAR = 2, 0
SIZE = 0x2000_0000
PAGES, POISONED = 16, 5
"""An access to the device's memory takes the emulator some 50 us."""
CONFIG = """
[targets]
match = {{ pid = {pid} }}
[sources]
order = ["damon"]
[control]
timeout = "60s"
[tier_health]
enabled = true
interval = "1s"
cpu_limit = "100%"
"""


def write(path: Path, text: object) -> None:
    """Write a file of sysfs."""
    path.write_text(f"{text}\n")


def bring_up() -> int:
    """Make the device's memory node `NODE`; the host's address of its first byte.

    Documentation/driver-api/cxl/linux/cxl-driver.rst; what `cxl create-region -t ram` does.
    """
    subprocess.run(["modprobe", "-a", *MODULES], check=True)
    end = time.monotonic() + 60
    while not (DEVICES / "mem0/driver").exists() and time.monotonic() < end:
        time.sleep(0.2)
    root, endpoint = DEVICES / "decoder0.0", DEVICES / "decoder2.0"
    write(endpoint / "mode", "ram")
    write(endpoint / "dpa_size", SIZE)
    name = (root / "create_ram_region").read_text().strip()
    write(root / "create_ram_region", name)
    region = DEVICES / name
    for key, value in (
        ("interleave_granularity", 256),
        ("interleave_ways", 1),
        ("size", SIZE),
        ("target0", endpoint.name),
        ("commit", 1),
    ):
        write(region / key, value)
    write(Path("/sys/bus/cxl/drivers/cxl_region/bind"), name)
    node = Path(f"/sys/devices/system/node/node{NODE}")
    while not list(node.glob("memory[0-9]*")) and time.monotonic() < end:
        time.sleep(0.2)
    for state in node.glob("memory[0-9]*/state"):
        if state.read_text().strip() == "offline":
            write(state, "online_movable")
    return int((region / "resource").read_text(), 16)


def errors() -> dict[str, dict[str, Any]]:
    """What the service tells of, by kind."""
    return {each["kind"]: each for each in ask("status")["memory_errors"]["errors"]}


def main() -> int:
    """Print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tierd", required=True)
    args = parser.parse_args()
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    first = bring_up()
    config = Path(tempfile.mkdtemp()) / "tierd.toml"
    command = [args.tierd, "run", "--config", str(config)]
    with contextlib.ExitStack() as stack:
        holder = stack.enter_context(Holder(PAGES, memory=Failing))
        # Moved there: with a policy the interpreter's own memory would be there as well.
        page, mover, pids = keys(holder.vpn, PAGES), Machine.mover(), {TARGET: holder.pid}
        found: dict[str, Any] = {"there": fates(mover.execute(plan(page, NODE), pids))}
        config.write_text(CONFIG.format(pid=holder.pid))
        service = stack.enter_context(subprocess.Popen(command, stderr=sys.stderr))
        stack.callback(service.kill)
        address = int(holder.ask("address", POISONED)["address"], 16)
        wait(service, SOCKET.exists)
        wait(service, lambda: ask("status")["memory_errors"]["events"])
        print(json.dumps({"event": "ready", "dpa": address - first}), flush=True)
        wait(service, GO.exists)
        write(DEVICES / "mem0/trigger_poison_list", 1)
        found["address"] = f"{address:#x}"
        kinds = {"poison", "media_uncorrected"}
        found["reported"] = wait(service, lambda: kinds <= errors().keys())
        found["errors"] = errors()
        offline = Path("/sys/devices/system/memory/hard_offline_page")
        write(offline, found["errors"]["poison"]["address"])
        found["failure_reported"] = wait(service, lambda: "memory_failure" in errors())
        found["failure"] = errors()["memory_failure"]
        found["fates"] = fates(mover.execute(plan(page, NEAR, source=NODE), pids))
        found["poisoned"] = int(nodes(holder)[POISONED])
        holder.ask("leave", POISONED)
        found["verified"] = holder.ask("verify")
        found["lives"] = service.poll() is None
        service.terminate()
        found["status"] = service.wait()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
