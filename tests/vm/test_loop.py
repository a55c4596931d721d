# SPDX-License-Identifier: Apache-2.0
"""The whole loop in the lab: a real kernel, real pages, real moves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tierd.core.errors import ExitCode

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/workloads"
TIERD = Path(sys.executable).with_name("tierd")
TOOLS = ["--hotset", str(BUILD / "hotset"), "--tlbtick", str(BUILD / "tlbtick")]


@pytest.fixture(scope="module", autouse=True)
def workloads() -> None:
    """The workloads, built."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "tests/workloads")], check=True)


def lines(guest: Any, script: str, *args: str, timeout: float) -> list[dict[str, Any]]:
    """The JSON lines that a script of the tests prints in the guest; it must end well."""
    command = [sys.executable, str(ROOT / "tests" / script), *args]
    result = guest.run(command, timeout=timeout)
    assert result.status == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def run_demo(guest: Any, *options: str) -> list[dict[str, Any]]:
    """What the demo's guest side tells, with tierd only."""
    settings = ["--tierd", str(TIERD), "--config", str(ROOT / "tests/demo/tierd.toml")]
    command = [*TOOLS, *settings, "--without-seconds", "0", *options]
    return lines(guest, "demo/guest.py", *command, timeout=580)


def ended(told: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The workload's end and tierd's totals."""
    end = next(x for x in told if x.get("event") == "end")
    totals = [x["tierd"] for x in told if "tierd" in x][-1]
    assert end["checksum_ok"] is True
    assert set(totals["migration_results"]) <= {
        "moved",
        "already_there",
        "busy",
        "gone",  # the workload ends while pages move
        "no_room",
        "not_tried",
    }
    assert totals["lost_samples"] == 0
    return end, totals


def test_hot_pages_end_in_dram_and_stay_until_all_are_put_back(vm: Any) -> None:
    """The demo's run with DAMON: share served by DRAM, moves, contents; then `tierd undo`."""
    options = ["--with-seconds", "240", "--until", "0.95", "--map", "--undo"]
    told = run_demo(vm("dram-cxl"), *options)
    end, totals = ended(told)
    (undo,) = [each for each in told if each.get("event") == "undo"]
    assert undo["status"] == 0, undo["errors"]
    back, others = undo["told"]["put_back"], undo["told"]["left_alone"]
    reached = [each["fast_share"] for each in told[: told.index(undo)] if "fast_share" in each]
    assert reached[-1] >= 0.95
    assert totals["promoted_pages"] + totals["demoted_pages"] - back < 2 * end["hot_pages"]
    # Each page is on its node of before, by the kernel's word, but for those that the kernel itself
    # moved meanwhile (kswapd, kcompactd).
    assert back > 0.9 * end["hot_pages"]
    assert set(others) <= {"moved_by_others"}
    before, after = (each["map"] for each in told if "map" in each)
    differ = sum(one != other for one, other in zip(before, after, strict=True))
    assert differ <= others.get("moved_by_others", 0)


def test_a_hot_area_of_a_two_hundredth_is_not_lost(vm: Any) -> None:
    """6 MiB of 1200: DAMON's regions must not average it away."""
    options = ["--with-seconds", "240", "--until", "0.95", "--hot-share", "0.005"]
    end, totals = ended(run_demo(vm("dram-cxl"), *options))
    assert end["hot_on_node"]["0"] > 0.98
    assert totals["promoted_pages"] < 1.5 * end["hot_pages"]


@pytest.mark.parametrize(
    ("moves", "size"),
    [(50_000, "100M"), pytest.param(1_000_000, "400M", marks=pytest.mark.soak)],
    ids=["some", "a million"],
)
def test_moves_under_a_writing_workload_lose_nothing(vm: Any, moves: int, size: str) -> None:
    options = ["--hotset", str(BUILD / "hotset"), "--moves", str(moves), "--size", size]
    (result,) = lines(vm("dram-cxl"), "vm/guest_churn.py", *options, timeout=1500)
    assert result["checksum_ok"] is True
    assert sum(result["moved"].values()) >= moves
    assert min(result["moved"].values()) >= 0.3 * moves
    # The kernel may move some as well (kswapd, kcompactd): they are there, or on their way.
    rest = {k: n for k, n in result["fates"].items() if k not in ("moved", "busy", "no_room")}
    assert set(rest) <= {"already_there", "gone", "joined"}, rest
    assert sum(rest.values()) <= 0.01 * result["fates"]["moved"], rest


@pytest.mark.parametrize(
    "pages", [20_000, pytest.param(400_000, marks=pytest.mark.soak)], ids=["some", "many"]
)
def test_the_mover_against_contents_fates_and_mishaps(vm: Any, pages: int) -> None:
    checks = lines(vm("dram-cxl"), "vm/guest_mover.py", "--pages", str(pages), timeout=1200)
    assert len(checks) >= 10
    assert [check for check in checks if not check["ok"]] == []


@pytest.fixture(scope="module")
def mishaps(vm: Any) -> dict[str, dict[str, Any]]:
    """The facts of each mishap, all from one run in the guest."""
    told = lines(vm("dram-cxl"), "vm/guest_mishaps.py", *TOOLS, "--tierd", str(TIERD), timeout=580)
    print({entry["mishap"]: entry["seconds"] for entry in told})
    return {entry["mishap"]: entry for entry in told}


def test_a_killed_target_does_not_stop_the_service(mishaps: Any) -> None:
    facts = mishaps["target_killed"]
    assert facts["moved_before"]
    assert facts["moved_after"]
    assert facts["alarming"] == []
    assert "failed" not in facts["totals"]["migration_results"]


def test_sigterm_after_the_first_moves_ends_with_zero(mishaps: Any) -> None:
    facts = mishaps["target_killed"]
    assert facts["moved_after"]
    assert facts["exit"] == 0
    assert facts["totals"]["event"] == "ended"
    assert facts["checksum_ok"] is True


def test_after_sigkill_the_next_start_cleans_up_and_goes_on(mishaps: Any) -> None:
    facts = mishaps["service_killed"]
    assert facts["moved_before"]
    assert facts["left_behind_by_the_kill"] == {"kdamonds": "1", "instance": True}
    assert facts["ticked_after"]
    assert facts["sampled_after"]
    assert (facts["exit"], facts["alarming"]) == (0, [])
    assert facts["checksum_ok"] is True
    assert facts["left_at_the_end"] == {"kdamonds": "0", "instance": False}


def test_another_damon_user_is_left_alone(mishaps: Any) -> None:
    facts = mishaps["another_damon_user"]
    assert facts["exit"] == ExitCode.UNAVAILABLE
    assert "another user runs DAMON" in facts["stderr"]
    assert "Traceback" not in facts["stderr"]
    assert facts["their_state"] == "on"


def test_dry_run_plans_and_moves_nothing(mishaps: Any) -> None:
    facts = mishaps["dry_run"]
    assert facts["exit"] == 0
    assert facts["totals"]["planned_promotions"] > 0
    assert facts["totals"]["moved_bytes"] == 0
    assert facts["hot_on_node"] == {"1": 1.0}
    assert facts["checksum_ok"] is True


def test_the_kernel_has_nothing_to_complain_of(vm: Any, mishaps: Any) -> None:
    assert mishaps
    assert vm("dram-cxl").kernel_complaints() == []


def test_one_tier_is_nothing_to_do_and_says_why(vm: Any) -> None:
    result = vm("flat").run([str(TIERD), "run", "--json"], timeout=120)
    assert result.status == ExitCode.NOTHING_TO_DO
    told = json.loads(result.stdout.splitlines()[-1])
    assert told["event"] == "nothing_to_do"
    assert "one tier" in told["reason"]
    assert "--wait" in told["reason"]


WAITS = """
import json, os, signal, socket, subprocess, sys
told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
told.bind("/tmp/wait.sock")
told.settimeout(100)
os.environ |= {"NOTIFY_SOCKET": "/tmp/wait.sock", "WATCHDOG_USEC": "4000000"}
with subprocess.Popen([sys.argv[1], "run", "--wait"], stderr=subprocess.PIPE, text=True) as run:
    try:
        while "READY=1" not in (said := told.recv(4096).decode()):
            pass
        for _ in range(3):
            while told.recv(4096) != b"WATCHDOG=1":
                pass
        waited = run.poll() is None
        run.send_signal(signal.SIGTERM)
        errors = run.communicate(timeout=100)[1]
    finally:
        run.kill()
print(json.dumps({"said": said, "waited": waited, "exit": run.returncode, "errors": errors}))
"""


def test_one_tier_with_wait_keeps_waiting(vm: Any) -> None:
    result = vm("flat").run([sys.executable, "-c", WAITS, str(TIERD)], timeout=400)
    assert result.status == 0, result.stderr
    told = json.loads(result.stdout)
    assert "one tier only" in told["said"]
    assert told["waited"] is True
    assert told["exit"] == ExitCode.OK
    assert "event=stopping" in told["errors"]


def test_a_node_that_is_not_there_is_a_config_error_with_its_key(vm: Any) -> None:
    script = f"printf '[topology.nodes.7]\\nlatency = \"430ns\"\\n' >/tmp/n.toml; {TIERD} run "
    result = vm("flat").run(["sh", "-c", script + "--config /tmp/n.toml"], timeout=120)
    assert result.status == ExitCode.CONFIG
    assert "topology.nodes.7" in result.stderr
    assert "Traceback" not in result.stderr
