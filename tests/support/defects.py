# SPDX-License-Identifier: Apache-2.0
"""Puts defects in, one at a time, and demands that the test named with each fails.

usage: defects.py [--all] [NUMBER...]

It works in a copy of the tree. Without numbers it tries those that need no machine of their own;
with --all the others as well. docs/develop/tests.md has what they are.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = (".git", ".venv", "machine", "__pycache__", ".mypy_cache", ".ruff_cache")
LIMIT_S = 1800
FAILED = 1
"""pytest's exit status if a test failed; another one is none of the tests' saying."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One place of the tree that is wrong.

    Attributes:
        what: goes wrong then.
        file: it is in. right, wrong: text there, and what stands in its place.
        tests: of which one must fail. slow: they boot a machine or build the RTL.
    """

    what: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]
    slow: bool = False


def _unit(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{name}.py" for name in names)


def _module(script: str, name: str) -> tuple[str, ...]:
    return (f"tests/vm/test_kmod.py::test_module[6.12-guest_kmod_{script}.py-{name}]",)


DEFECTS = (
    Defect("bytes of pages that did not move count as moved", "daemon/native/job.c",
           "job->moved_bytes += pages * PAGE_BYTES;", "job->moved_bytes += batch->n * PAGE_BYTES;",
           _unit("migration/test_mover_policy")),
    Defect("the mover keeps to no rate", "daemon/native/job.c",
           "\tbucket_take(&mover->bytes, (double)(pages * PAGE_BYTES), sys_monotonic_ns());\n", "",
           _unit("migration/test_mover_policy")),
    Defect("pages are promoted over demotions that failed", "daemon/native/promote_move.c",
           "\tif (promoter->down.n > 0)\n\t\tdrop_unplaced(promoter);\n",
           "\t(void)drop_unplaced;\n",
           _unit("migration/test_promoter_room", "migration/test_promoter")),
    Defect("candidates of an interval that was cut short are lost", "daemon/native/promote_move.c",
           "\t\t\t\tput_back(promoter, moves->of[i]);\n", "\t\t\t\t(void)put_back;\n",
           _unit("migration/test_promoter_room", "migration/test_promoter_waiting")),
    Defect("the fast path's quota is not spent", "daemon/native/promote_move.c",
           "\tbucket_take(&promoter->quota, (double)bytes, tap_now(promoter));\n", "",
           _unit("migration/test_promoter_room")),
    Defect("an undo puts back pages of a number that is another process's by now",
           "daemon/tierd/engine/undo.py",
           "            self._again = [_of_others(rows, target) for rows in self._again]\n", "",
           _unit("engine/test_undo")),
    Defect("what a cancelled undo has not put back is forgotten", "daemon/tierd/engine/undo.py",
           "        self._origins.restore(np.concatenate([left, *self._refused]))\n", "",
           _unit("engine/test_undo")),
    Defect("origins of an ended process are those of the next one with its number",
           "daemon/tierd/migration/origins.py",
           "rows[np.arange(len(rows)) >= ended[rows[\"page\"] >> np.uint64(VPN_BITS)]]", "rows",
           _unit("migration/test_origins")),
    Defect("each control connection takes its slot with it", "daemon/tierd/control/server.py",
           "        connection.close()\n        self._slots.release()\n",
           "        connection.close()\n", _unit("control/test_control_server")),
    Defect("who may read may change", "daemon/tierd/control/commands.py",
           "if command.changes and not peer.may_change:", "if False:",
           _unit("control/test_control_protocol")),
    Defect("systemd hears of the loop too seldom", "daemon/tierd/engine/systemd.py",
           "self._next_beat_ns = now + self._beat_every_ns\n",
           "self._next_beat_ns = now + 3 * self._beat_every_ns\n", _unit("engine/test_systemd")),
    Defect("a reason of several lines forges a message to systemd",
           "daemon/tierd/engine/systemd.py",
           "\"\".join(c if c.isprintable() else \" \" for c in text)[:500]", "text[:500]",
           _unit("engine/test_systemd")),
    Defect("half a frame stays in a recording on a full disk",
           "daemon/tierd/observe/recording/writer.py",
           "                os.ftruncate(self._fd, start)\n", "                pass\n",
           _unit("recording/test_recording_files")),
    Defect("a configuration that changed is not recorded",
           "daemon/tierd/observe/recording/writer.py",
           "            if kind not in self._known or value != self._known[kind]\n",
           "            if kind not in self._known\n",
           _unit("recording/test_recording_files", "recording/test_replay")),
    Defect("samples of the epoch before are counted again", "daemon/tierd/sources/ebpf/table.py",
           "found = slots[slots[\"epoch\"] == epoch]", "found = slots",
           _unit("ebpf/test_ebpf_table")),
    Defect("samples that gave way are not told of as lost", "daemon/tierd/sources/ebpf/table.py",
           "lost = max(0, counted - self._drained[half] - total)", "lost = 0",
           _unit("ebpf/test_ebpf_table")),
    Defect("a process that has another's number is taken for it",
           "daemon/tierd/workloads/registry.py",
           "if start_time(process.pid, self._root) != process.stat.start_time:", "if False:",
           _unit("workloads/test_targets_registry")),
    Defect("descriptors of ended processes leak", "daemon/tierd/workloads/registry.py",
           "        os.close(target.pidfd)\n        self.numbers.retire",
           "        self.numbers.retire", _unit("workloads/test_targets_registry")),
    Defect("records behind the ring's end are lost", "daemon/tierd/sources/kmod/ring.py",
           "self._records[: count - first]]", "self._records[:0]]", _unit("kmod/test_ring")),
    Defect("pages of a folio that a step cuts are taken for idle", "daemon/native/idle_bitmap.c",
           "if (step->folio == head &&", "if (step->folio != step->folio &&",
           _unit("sources/test_idlepage_pages")),
    Defect("an access to a shared page counts for one process alone", "daemon/native/idle_shared.c",
           "(int32_t)(found - since) > 0)", "(int32_t)(found - since) > INT32_MAX - 1)",
           _unit("sources/test_idlepage_pages")),
    Defect("the scanner by idle page tracking has no CPU budget",
           "daemon/tierd/core/cpu_budget.py", " - (cpu_ns - self._cpu_ns)", "",
           _unit("sources/test_idlepage_scanner")),
    Defect("a group's floor does not hold", "daemon/tierd/policy/limits.py",
           "self._on(nodes) - self._limit(self._groups.floor, nodes), self._left)",
           "self._on(nodes), self._left)", _unit("policy/test_group_limits")),
    Defect("after failures the rate stays low", "daemon/tierd/policy/limits.py",
           "account.share = min(1.0, account.share * 2)",
           "account.share = min(1.0, account.share)",
           _unit("policy/test_rate_limiter")),
    Defect("two reports in a clock overrun the card's hot list", "fpga/rtl/np_ring.sv",
           "assign room_o[1] = free > PtrW'(1);", "assign room_o[1] = free != '0;",
           _unit("fpga/test_neoprof_benches"), slow=True),
    Defect("the scanner keeps the memory of processes that end", "kmod/scan.c",
           "\tmmput_async(walk.mm);\n", "\t;\n", _module("torture", "exits"), slow=True),
    Defect("a sampling interval beyond the period is taken", "kmod/budget.c",
           "settings->sampling_interval_us > settings->period_us",
           "settings->sampling_interval_us > U32_MAX", _module("sampling", "refused"), slow=True),
    Defect("who closes the device is counted as a reader for ever", "kmod/ring.c",
           "\ttierd_ring_opened--;\n", "", _module("torture", "readers"), slow=True),
)  # fmt: skip


def put(tree: Path, file: Path, text: str) -> None:
    """Write a file; what is of the native code is built anew."""
    file.write_text(text)
    if "daemon/native" in str(file):
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(build, cwd=tree, capture_output=True, check=True)


def caught(tree: Path, defect: Defect) -> str:
    """The test that fails with the defect; "" if all pass.

    Raises:
        RuntimeError: pytest ended in another way.
    """
    file = tree / defect.file
    text = file.read_text()
    assert text.count(defect.right) == 1, f"{defect.file} has changed: {defect.right!r}"
    put(tree, file, text.replace(defect.right, defect.wrong))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *defect.tests]
    try:
        done = subprocess.run(
            command, cwd=tree, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return "the tests do not end"
    finally:
        put(tree, file, text)
    if done.returncode not in (0, FAILED):
        raise RuntimeError(f"{defect.what}: pytest ended with {done.returncode}: {done.stdout}")
    told = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    return told[1] if told else ""


def main() -> int:
    """Try defects; 0 if each was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER")
    args = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="tierd-defects-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        for number, defect in enumerate(DEFECTS, 1):
            if number in args.numbers or (not args.numbers and (args.all or not defect.slow)):
                test = caught(tree, defect)
                missed += not test
                print(f"{number:2d} {defect.what}: {test or 'NOT FOUND'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
