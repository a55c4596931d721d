# SPDX-License-Identifier: Apache-2.0
"""The topology of lab machines, and real memory that goes and comes."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TIERD = [sys.executable, "-c", "import sys; from tierd.cli import main; sys.exit(main())"]
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
"""The guest sees this machine's files, so that it runs the same code."""

OFFLINE_ONLINE = """
import glob, os, select
from tierd.topology import HotplugWatcher, read
watch = HotplugWatcher()
assert watch.mode == "uevent", watch.reason
def waited():
    select.select([watch.fileno()], [], [], 10.0)
    return watch.changed()
before = read().nodes[1].size_bytes
assert not watch.changed()
blocks = sorted(glob.glob("/sys/devices/system/node/node1/memory*/state"), reverse=True)
for state in blocks:
    try:
        with open(state, "w") as file:
            file.write("offline")
        break
    except OSError as error:
        print(state, error)
else:
    raise SystemExit("no block of node 1 goes offline")
assert waited(), "offline was not seen"
less = read().nodes[1].size_bytes
assert less < before, (less, before)
with open(state, "w") as file:
    file.write("online")
assert waited(), "online was not seen"
assert read().nodes[1].size_bytes == before
print("seen")
"""


def shown(machine: Any) -> Any:
    result = machine.run([*TIERD, "topology", "--json"], env=ENV, timeout=120)
    assert result.status == 0, result.stderr
    return json.loads(result.stdout)


def test_dram_cxl(vm: Any) -> None:
    tiers = shown(vm("dram-cxl"))
    assert [(t["name"], t["nodes"]) for t in tiers["tiers"]] == [("dram", [0]), ("cxl", [1])]
    assert {t["latency_ns"]["provenance"] for t in tiers["tiers"]} == {"hmat"}
    assert tiers["tiers"][1]["promotes_to"] == "dram"


def test_hbm_is_beside_dram_and_the_kernel_ranks_it_above(vm: Any) -> None:
    tiers = shown(vm("hbm-dram-cxl"))
    assert [t["name"] for t in tiers["tiers"]] == ["dram", "hbm", "cxl"]
    assert any("ranks hbm" in line for line in tiers["differences"])


def test_two_sockets_are_two_tiers(vm: Any) -> None:
    tiers = shown(vm("two-socket-cxl"))
    assert [t["name"] for t in tiers["tiers"]] == ["dram", "cxl"]


def test_flat_is_one_tier(vm: Any) -> None:
    assert [t["name"] for t in shown(vm("flat"))["tiers"]] == ["dram"]


def test_memory_that_goes_and_comes_is_seen(vm: Any) -> None:
    result = vm("dram-cxl").run([sys.executable, "-c", OFFLINE_ONLINE], env=ENV, timeout=180)
    assert result.status == 0, result.stdout + result.stderr
    assert result.stdout.strip().endswith("seen")


def doctor(machine: Any) -> tuple[int, dict[str, dict[str, str]]]:
    result = machine.run([*TIERD, "doctor", "--json"], env=ENV, timeout=120)
    shown = json.loads(result.stdout)
    assert shown["exit_code"] == result.status
    return result.status, {finding["id"]: finding for finding in shown["findings"]}


def test_the_doctor_moves_a_real_page_and_finds_damon(vm: Any) -> None:
    code, findings = doctor(vm("dram-cxl"))
    assert code == 0
    assert findings["move_pages"]["reason"] == "moved a page from node 0 to node 1 and back"
    assert findings["damon.vaddr"]["status"] == "yes"
    assert [f for f in findings.values() if "could not tell" in f["reason"]] == []


def test_the_doctor_says_that_one_tier_is_nothing_to_do(vm: Any) -> None:
    code, findings = doctor(vm("flat"))
    assert (code, findings["tiers"]["status"]) == (4, "no")
