# SPDX-License-Identifier: Apache-2.0
"""The doctor on the running kernel: every probe answers, and nothing is changed."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tierd.core.errors import ExitCode
from tierd.doctor import Status, examine, moving
from tierd.doctor.findings import Host, all_probes, ask_all

NOBODY = 65534
WATCHED = (
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/perf_event_paranoid",
    "/sys/kernel/mm/numa/demotion_enabled",
    "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
)


def state() -> dict[str, str]:
    return {p: Path(p).read_text() for p in WATCHED if Path(p).exists()}


def test_no_probe_breaks_and_none_changes_the_host() -> None:
    before = state()
    gc.collect()  # what tests before this one left open
    descriptors = len(os.listdir("/proc/self/fd"))
    report = examine()
    assert state() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors
    broken = [f for f in report.findings if "could not tell" in f.reason]
    assert broken == []


def test_the_verdict_fits_the_findings() -> None:
    report = examine()
    status = {f.id: f.status for f in report.findings}
    if status["tiers"] is Status.NO:
        assert report.exit_code is ExitCode.NOTHING_TO_DO
    elif report.sources and status["move_pages"] is Status.YES:
        assert report.exit_code is ExitCode.OK
    else:
        assert report.exit_code is ExitCode.UNAVAILABLE


def test_an_own_page_is_where_the_kernel_says() -> None:
    with moving.touched_page() as address:
        node = moving.page_to(address, None)
        assert node >= 0
        assert moving.page_to(address, node) == node


def test_a_node_that_is_not_there_is_refused_with_the_kernels_errno() -> None:
    with moving.touched_page() as address, pytest.raises(OSError, match=r"No such device"):
        moving.page_to(address, 63)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_an_ordinary_user_gets_reasons_and_no_traceback() -> None:
    code = (
        "import os; from tierd.doctor.findings import as_text; from tierd.doctor import examine;"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY});"
        "print(as_text(examine()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.returncode == 0, result.stderr
    assert "CAP_SYS_PTRACE" in result.stdout
    assert "not in the effective set" in result.stdout
    assert "Error" not in result.stdout


PROGRAM = """
import mmap, os, sys
memory = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(memory), 4096):
    memory[at : at + 4096] = os.urandom(int(sys.argv[1])).ljust(4096, b"7")
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="reading another process' memory needs root")
@pytest.mark.parametrize(("random_bytes", "least", "most"), [(1024, 0.6, 0.9), (4096, 0.0, 0.35)])
def test_paging_out_frees_what_samples_compress_to(
    random_bytes: int, least: float, most: float
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(random_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        host = Host()
        host.processes = {process.pid: "program", 2**22: "one that has ended"}
        (found,) = ask_all(host, [each for each in all_probes() if each.id == "page_out"])
        process.communicate()
    told = re.search(
        r"samples of 1 of the 1 largest, .* would free about (0\.\d+) GiB", found.reason
    )
    assert told
    # A tenth of it is the interpreter's own, and compresses.
    assert least <= float(told[1]) <= most
