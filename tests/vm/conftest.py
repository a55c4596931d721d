# SPDX-License-Identifier: Apache-2.0
"""Guests for the tests in this folder: one boot a machine, as long as tests ask for one.

    def test_something(vm: Vm) -> None:
        guest = vm("dram-cxl")
        assert guest.run(["python3", "-m", "..."], timeout=60).check().stdout == "..."

Tests share a guest, so they undo what they change in it. If it dies, later tests that
ask for the same machine fail at once with the end of its console. Guests end with a file, if the
next test asks for none; one whose clock counts instructions always does: it keeps a processor of
the host busy while it idles.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from kernels import OLD, ON_EACH_KERNEL

from tierd_lab import Guest, Machine
from tierd_lab.process import qemu_children
from tierd_lab.session import GuestError

Vm = Callable[[str], Guest]
NEXT = pytest.StashKey[pytest.Item | None]()
ABORTED = "QEMU ended with status -6 before the command started"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What repeats a check on an older kernel is for `make soak`, but for `ON_EACH_KERNEL`."""
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        values = {value for value in params.values() if isinstance(value, str)}
        if OLD in values and not values & ON_EACH_KERNEL:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="session")
def guests() -> dict[str, Guest]:
    """Machine → its booted guest."""
    return {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Keep which test is next, for `guests_end`."""
    item.session.stash[NEXT] = nextitem


@pytest.fixture(scope="module", autouse=True)
def guests_end(request: pytest.FixtureRequest, guests: dict[str, Guest]) -> Iterator[None]:
    """See above."""
    yield
    following = request.session.stash[NEXT]
    wanted = "vm" in getattr(following, "fixturenames", ())
    for machine, guest in list(guests.items()):
        if guest.machine.icount is not None or not wanted:
            guests.pop(machine).close()


def boot(machine: Machine | str) -> Guest:
    """A booted guest; a second try if QEMU itself died, and no guest, before there was one.

    (QEMU 10.0.2 with several processors emulated: `iotlb_to_section: Assertion ... failed`, met
    once, on a busy host.)
    """
    try:
        return Guest(machine).boot()
    except GuestError as error:
        if ABORTED not in str(error):
            raise
        print(f"{error}: booted once more", file=sys.stderr)
    return Guest(machine).boot()


@pytest.fixture
def own_vm() -> Iterator[Callable[[Machine], Guest]]:
    """A function from a machine of the test's own to its booted guest."""
    with contextlib.ExitStack() as stack:
        yield lambda machine: stack.enter_context(contextlib.closing(boot(machine)))


@pytest.fixture(scope="session")
def vm(guests: dict[str, Guest]) -> Iterator[Vm]:
    """A function from a machine's name to its booted guest."""
    failures: dict[str, BaseException] = {}

    def booted(machine: str) -> Guest:
        if machine in failures:
            raise failures[machine]
        if machine not in guests:
            try:
                guests[machine] = boot(machine)
            except BaseException as error:
                failures[machine] = error
                raise
        guests[machine].check_alive()
        return guests[machine]

    yield booted
    for guest in guests.values():
        guest.close()
    # One that was killed gives its memory back first, which takes a busy host a while.
    end = time.monotonic() + 60
    while qemu_children() and time.monotonic() < end:
        time.sleep(0.2)
    assert qemu_children() == [], "a QEMU outlived its guest"
