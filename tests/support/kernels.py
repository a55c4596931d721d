# SPDX-License-Identifier: Apache-2.0
"""Which installed kernels the module can be built for, and what they report of themselves."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

import pytest

from tierd.core.errors import UnavailableError
from tierd_lab import Guest
from tierd_lab.host import Kernel, find_kernel, kernels

ROOT: Final = Path(__file__).resolve().parents[2]

OLD: Final = "6.1"
"""Debian 12's own release; no later Debian has it."""
RELEASES: Final = ("6.12", OLD)
"""What the module's checks run on."""
DEBUG: Final = "debug"
"""The kernel of `make lab-kernels` that checks itself; in `make soak` they run on it, too."""
ALL_RELEASES: Final = (*RELEASES, pytest.param(DEBUG, marks=pytest.mark.soak))
"""`RELEASES` and `DEBUG`, as parameters of a test."""

ON_EACH_KERNEL = frozenset(
    {
        *("accuracy", "changes", "removal", "modprobe", "young", "never_scanned"),  # test_kmod
        *("hot_pages", "profiles", "registers", "pulled"),  # test_neoprof
        *("faults_are_exact", "loss_is_counted", "migrations_equal_vmstat"),  # test_ebpf
        *("pmu_program_on_the_software_event", "cpu_hotplug", "with_two_capabilities_only"),
    }
)
"""Checks that `make test` runs on every kernel; the rest of the older ones is `make soak`."""


def buildable(start: str) -> Kernel | None:
    """The newest installed kernel of a release, if its headers are there."""
    for kernel in kernels():
        headers = Path("/lib/modules") / kernel.version / "build"
        if kernel.version.startswith(start + ".") and headers.is_dir():
            return kernel
    return None


def of_lab(name: str) -> Kernel:
    """A kernel that `make lab-kernels` builds: "debug" or "idle".

    Raises:
        UnavailableError: it was not built.
    """
    image = ROOT / "build/lab-kernels" / name / "vmlinuz"
    if not image.exists():
        raise UnavailableError(f"there is no lab kernel {name}", hint="make lab-kernels")
    return find_kernel(image)


def required(start: str) -> Kernel:
    """The kernel of a release that `make test` installs, or `DEBUG`.

    Skips where no package of it exists.
    """
    if start == DEBUG:
        return of_lab(start)
    kernel = buildable(start)
    if kernel is None and start == OLD and not _is_debian_12():
        pytest.skip(f"only Debian 12 has packages of kernel {OLD}")
    assert kernel is not None, f"no kernel {start} with headers: `config/setup.sh --with-{OLD}`"
    return kernel


def selected(request: pytest.FixtureRequest, release: str, **others: str) -> list[str]:
    """Values of the tests' parameters that are to run, of one file and kernel, in their order.

    `others`: parameters that have these values, which are not among those returned.
    """
    found: dict[str, None] = {}
    for item in request.session.items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if (
            item.path == request.path
            and release in params.values()
            and others.items() <= params.items()
        ):
            fixed = {release, *others.values()}
            found |= dict.fromkeys(v for v in params.values() if v not in fixed)
    return list(found)


def assert_nothing_reported(guest: Guest) -> None:
    """A guest with the debug kernel has its whole log, without a report, and still checks locks."""
    log = guest.dmesg()
    assert "] Linux version " in log
    assert "KernelAddressSanitizer initialized" in log
    complaints = guest.kernel_complaints()
    assert complaints == [], log[log.find(complaints[0]) :][:4000]
    # Lockdep ends its work, without a complaint, when its tables are full.
    (state,) = (
        line.split()[-1]
        for line in guest.read_text("/proc/lockdep_stats").splitlines()
        if "debug_locks:" in line
    )
    assert state == "1"


def _is_debian_12() -> bool:
    release = platform.freedesktop_os_release()
    return (release.get("ID"), release.get("VERSION_ID")) == ("debian", "12")
