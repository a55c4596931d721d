# SPDX-License-Identifier: Apache-2.0
"""Memory that fails under the service: it lives, tells of it, and leaves the page alone."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from qmp import execute

from tierd_lab import Machine

ROOT = Path(__file__).resolve().parents[2]
TLBTICK = ROOT / "build/workloads/tlbtick"
TIERD = Path(sys.executable).with_name("tierd")


def told_by(guest: Any, script: str, *options: str, timeout: float) -> Any:
    """The JSON object that a script prints in the guest; it must end well."""
    command = [sys.executable, str(ROOT / "tests/vm" / script), *options]
    result = guest.run(command, timeout=timeout)
    print(result.stderr[-6000:])
    assert result.status == 0, result.stdout[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


def test_pages_that_fail_are_told_of_and_not_moved(vm: Any) -> None:
    """One fails and one is replaced in time (madvise), among pages that the service promotes."""
    subprocess.run(["make", "-s", "-C", ROOT / "tests/workloads"], check=True)
    options = ["--tlbtick", str(TLBTICK), "--tierd", str(TIERD)]
    told = told_by(vm("dram-cxl"), "guest_memory_errors.py", *options, timeout=900)
    print(json.dumps(told, indent=1))

    by_hand = told["mover"]
    assert [each["error"] for each in by_hand["failed"]] == [0, 0]
    assert by_hand["fates"] == [{"MOVED": 511, "GONE": 1}, {"ALREADY_THERE": 511, "GONE": 1}]
    assert by_hand["errors"] == [{str(errno.ENOENT): 1}] * 2
    assert by_hand["retries"] == 0
    assert by_hand["kernel_says"] == -errno.ENOENT
    assert by_hand["verified"] == {"wrong": 0, "pages": 511}

    service = told["service"]
    failed, replaced = service["failed"]
    assert (failed["error"], replaced["error"]) == (0, 0)
    assert service["reported"] and service["lives"] and service["status"] == 0
    errors = {each["kind"]: each for each in service["memory_errors"]["errors"]}
    assert errors.keys() == {"memory_failure", "soft_offline"}
    assert errors["memory_failure"]["count"] == errors["soft_offline"]["count"] == 1
    assert errors["memory_failure"]["node"] == 1
    assert errors["memory_failure"]["address"] == failed["address"]
    assert "ras/memory_failure_event" in service["memory_errors"]["events"]
    assert [line.count("event=memory_error ") for line in service["log"]] == [1, 1]
    # The others are moved, and hold what they held.
    assert service["near_before"] == 0
    assert service["moved"] and service["replaced"] == 0
    assert service["poisoned"] == -errno.ENOENT
    assert service["verified"] == {"wrong": 0, "pages": 16383}
    # It is asked for once at most before it is known that nothing is there.
    assert service["totals"]["migration_results"].get("gone", 0) <= 1
    assert service["alarming"] == []
    assert not service["instance_left"]


DEVICE = "/machine/peripheral/cxl-mem0"


def machine(monitor: Path) -> Machine:
    """A machine with a CXL memory device, 512 MiB, and QEMU's monitor at `monitor`.

    Linux does not commit a region on a CPU that says it is virtual. One CPU: with two, QEMU 10.0.2
    was met to end with an assertion (`msix_table_mmio_write`) when it maps the device's memory.
    """
    plain = Machine.load("dram-cxl")
    nodes = (replace(plain.nodes[0], cpus=(0,)), *plain.nodes[1:])
    options = (
        *("-machine", "cxl=on", "-qmp", f"unix:{monitor},server=on,wait=off"),
        *("-object", "memory-backend-ram,id=cxl-memory,size=512M"),
        *("-device", "pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1"),
        *("-device", "cxl-rp,port=0,bus=cxl.1,id=cxl-port,chassis=0,slot=2"),
        *("-device", "cxl-type3,bus=cxl-port,volatile-memdev=cxl-memory,id=cxl-mem0"),
        *("-machine", "cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G"),
    )
    return replace(plain, nodes=nodes, cpu=f"{plain.cpu},-hypervisor", qemu_args=options)


def test_poison_in_a_cxl_device_is_told_of_with_its_node(own_vm: Any, tmp_path: Path) -> None:
    """By its list and an event record (interrupt); then the page is taken away, and not moved."""
    monitor, ready, dpa = tmp_path / "qmp", threading.Event(), []

    def take(line: str) -> None:
        if '"ready"' in line:
            dpa.append(json.loads(line)["dpa"])
            ready.set()

    command = [sys.executable, str(ROOT / "tests/vm/guest_cxl_poison.py"), "--tierd", str(TIERD)]
    guest = own_vm(machine(monitor))
    script = guest.start(command, timeout_s=1800, on_line=take)
    while not ready.wait(1.0) and script.running:
        guest.check_alive()
    if dpa:
        place: dict[str, Any] = {"path": DEVICE, "dpa": dpa[0]}
        execute(monitor, "cxl-inject-poison", path=DEVICE, start=dpa[0], length=64)
        record = {"log": "failure", "flags": 1, "descriptor": 1, "type": 0}
        execute(monitor, "cxl-inject-general-media-event", **place, **record, transaction_type=1)
        guest.run(["touch", "/run/poisoned"]).check()
    result = script.wait()
    print(result.stderr[-6000:])
    assert result.status == 0, result.stdout[-3000:]
    told = json.loads(result.stdout.splitlines()[-1])
    print(json.dumps(told, indent=1))
    assert told["there"] == {"MOVED": 16}
    assert told["reported"] and told["failure_reported"]
    for kind in ("poison", "media_uncorrected"):
        error = told["errors"][kind]
        assert (error["node"], error["device"], error["count"]) == (2, "mem0", 1)
        assert (error["address"], error["device_address"]) == (told["address"], f"{dpa[0]:#x}")
    assert (told["failure"]["node"], told["failure"]["address"]) == (2, told["address"])
    assert told["fates"] == {"MOVED": 15, "GONE": 1}
    assert told["poisoned"] == -errno.ENOENT
    assert told["verified"] == {"wrong": 0, "pages": 15}
    assert told["lives"] and told["status"] == 0
