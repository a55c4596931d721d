# SPDX-License-Identifier: Apache-2.0
"""Processes that wait for a file server with their map lock held (`tests/support/stuck.py`).

People report this of NFS, FUSE and tapes: whoever reads such a process's maps waits as long as it.
The service leaves it out, and all else goes on: ticks, others, commands, and its end. Needs root
and /dev/fuse.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from idle_bitmap import BITMAP, Bitmap

from tierd.sources.idlepage.native import IdlePages
from tierd.sources.idlepage.source import Scanning

ROOT = Path(__file__).parents[2]
ENOUGH_S = 60
MIB = 24
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT}/daemon:{ROOT}/tests/support",
    "OPENBLAS_NUM_THREADS": "1",
}
GOOD = f"""
import mmap, os
held = mmap.mmap(-1, {MIB} << 20, flags=0x22)
for at in range(0, {MIB} << 20, 4096): held[at] = 1
print(flush=True)
while True: held[:] = held[:]
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class Stuck:
    """A process that gets stuck when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        command = [sys.executable, str(ROOT / "tests/support/stuck.py"), str(folder), str(MIB)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        _, pid, server = self.line().split()
        self.pid, self.server = int(pid), int(server)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        """Get stuck."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.line() == "stuck"

    def free(self) -> None:
        """The file server goes: its client goes on."""
        os.kill(self.server, signal.SIGKILL)
        assert self.line() == "free"

    def close(self) -> None:
        for pid in (self.server, self.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait(ENOUGH_S)
        ctypes.CDLL(None).umount2(os.fsencode(self.folder), 2)


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[list[Stuck]]:
    """Two processes that can get stuck."""
    made = [Stuck(tmp_path / name) for name in ("one", "other")]
    yield made
    for each in made:
        each.close()


@pytest.fixture
def good() -> Iterator[int]:
    """A process that uses its memory."""
    with subprocess.Popen([sys.executable, "-c", GOOD], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


class Service:
    """The service with its own registry, maps, walks and mover."""

    def __init__(self, folder: Path, *pids: int) -> None:
        self.socket, self.log = folder / "control.sock", folder / "log"
        config = folder / "tierd.toml"
        matchers = ", ".join(f"{{ pid = {pid} }}" for pid in pids)
        config.write_text(
            f'[loop]\ninterval = "100ms"\nmax_interval = "100ms"\n'
            f'[targets]\nmatch = {{ any = [{matchers}] }}\nmin_rss = "1MiB"\n'
            f'refresh_interval = "200ms"\n'
            f'[residency]\ninterval = "200ms"\n[metrics]\nport = 0\n'
            f'[control]\nsocket = "{self.socket}"\nstate = "{folder}/state"\n'
        )
        command = [sys.executable, str(ROOT / "tests/support/hostservice.py"), "--own-mover"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--config", str(config)], stderr=log, env=ENVIRONMENT
            )

    def until(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first status that is so."""
        until = time.monotonic() + ENOUGH_S
        while time.monotonic() < until:
            command = "import sys, tierd.cli; sys.exit(tierd.cli.main())"
            asked = subprocess.run(
                [sys.executable, "-c", command, "status", "--json", "--socket", str(self.socket)],
                capture_output=True, timeout=ENOUGH_S, check=False, env=ENVIRONMENT,
            )  # fmt: skip
            assert self.process.poll() is None, self.log.read_text()
            if asked.returncode == 0 and what(told := json.loads(asked.stdout)):
                return dict(told)
            time.sleep(0.2)
        pytest.fail(self.log.read_text())

    def ticks(self, count: int) -> None:
        """So many more ticks end."""
        begun = self.until(lambda told: True)["loop"]["ticks"]
        self.until(lambda told: told["loop"]["ticks"] >= begun + count)

    def stop(self) -> int:
        """Waits for answers that the service gave up after SIGTERM; prints how long it took."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(ENOUGH_S)
        log = self.log.read_text()
        print(f"SIGTERM to the end: {time.monotonic() - begun:.2f} s")
        assert status == 0, log
        assert "Traceback" not in log
        (told,) = re.findall(r"event=stopped given_up=(\d+) seconds=([\d.e-]+)", log)
        print(f"of that the loop: {told[1]} s, with {told[0]} answers given up")
        return int(told[0])


def test_one_stuck_before_and_one_after_it_was_watched_are_left_out(
    stuck: list[Stuck], good: int, tmp_path: Path
) -> None:
    """Ticks, commands and SIGTERM go on; the good process is served; what answers again is too."""
    before, after = stuck
    before.go()
    service = Service(tmp_path, before.pid, after.pid, good)
    try:
        told = service.until(lambda told: before.pid in told["targets"]["not_answering"])
        # Both others are watched, and moves are tried.
        service.until(lambda told: told["totals"]["planned_promotions"] > 0)
        after.go()
        told = service.until(lambda told: len(told["targets"]["not_answering"]) == 2)
        assert set(told["targets"]["not_answering"]) == {before.pid, after.pid}
        service.ticks(20)
        # Only of the good one are there any more.
        samples = told["totals"]["samples"]
        service.until(lambda told: told["totals"]["samples"] > samples)
        before.free()
        service.until(lambda told: told["targets"]["not_answering"] == [after.pid])
        log = service.log.read_text()
        assert f"event=answers_again pid={before.pid}" in log
    finally:
        # The other one is stuck still, and known to be: only an agent may not have asked about it.
        given_up = service.stop()
    assert given_up <= 1, service.log.read_text()


def test_sigterm_waits_for_the_read_and_the_call_in_hand_at_most(
    stuck: list[Stuck], good: int, tmp_path: Path
) -> None:
    """Both get stuck a moment before: who they are is not known yet."""
    service = Service(tmp_path, *(each.pid for each in stuck), good)
    try:
        service.until(lambda told: told["totals"]["planned_promotions"] > 0)
        for each in stuck:
            each.go()
    finally:
        given_up = service.stop()
    # One read, and one call that an agent makes.
    assert given_up <= 2, service.log.read_text()


def test_the_check_of_a_configuration_names_a_stuck_process_and_ends(
    stuck: list[Stuck], good: int, tmp_path: Path
) -> None:
    """`tierd config check --live` reads its command line with the service's code."""
    one = stuck[0]
    one.go()
    config = tmp_path / "tierd.toml"
    config.write_text(
        f'[targets]\nmatch = {{ any = [{{ cmdline = "stuck" }}, {{ pid = {good} }}] }}\n'
        f'min_rss = "{MIB // 2}MiB"\n[control]\nsocket = "{tmp_path}/none.sock"\n'
    )
    command = "import sys, tierd.cli; sys.exit(tierd.cli.main())"
    done = subprocess.run(
        [sys.executable, "-c", command, "config", "check", "--live", "--json", "--config", config],
        capture_output=True, timeout=ENOUGH_S, check=True, env=ENVIRONMENT,
    )  # fmt: skip
    told = json.loads(done.stdout)["live"]
    # All command lines of this host are read; another process that ends just now may not answer.
    assert one.pid in [each["pid"] for each in told["not_answering"]]
    assert told["not_read"] == 0
    parts = {each["place"]: each for each in told["matchers"]}
    assert parts["targets.match any[1]"]["examples"][0]["pid"] == good
    assert parts["targets.match any[0]"]["unjudged"] == len(told["not_answering"])


AGENTS = f"""
import errno, os, signal, sys, threading, time
from pathlib import Path
import numpy as np
from tierd._native import ffi, lib
name, stuck, page, answer_ms = sys.argv[1], *map(int, sys.argv[2:])
assert lib.tierd_agents_start(1 << 2 | 1 << 19 | 1 << 23, answer_ms * 1_000_000) == 0
own = os.getpid()
def ask(pid):
    address, status = np.full(1, page, np.uint64), np.full(1, -99, np.int32)
    given = ffi.from_buffer("void *[]", address), ffi.NULL, ffi.from_buffer("int[]", status)
    return errno.errorcode.get(-lib.tierd_move_pages(pid, 1, *given), "") or int(status[0])
def late():
    about, timeouts = ffi.new("int[16]"), ffi.new("uint64_t *")
    return [about[i] for i in range(lib.tierd_agents_late(about, 16, timeouts))], timeouts[0]
def until(what):
    end = time.monotonic() + {ENOUGH_S}
    while not what():
        assert time.monotonic() < end
        time.sleep(0.001)
def children(pid):
    stats = [(each, each / "stat") for each in Path("/proc").iterdir() if each.name.isdigit()]
    parents = {{int(each.name): int(stat.read_text().rsplit(")", 1)[1].split()[1])
               for each, stat in stats if stat.exists()}}
    return [each for each, parent in parents.items() if parent == pid]
def agents():
    (forks,) = children(own)
    return children(forks)
"""
LEFT = """
answers = [ask(stuck), ask(stuck), ask(own)], *late()
if name == "kill":
    for agent in agents():
        os.kill(agent, signal.SIGKILL)
    until(lambda: len(agents()) == 1)
print(*answers, flush=True)
if name != "end":
    sys.stdin.readline()
    until(lambda: not late()[0])
    print([ask(stuck)], *late(), flush=True)
"""
KILLED = """
first, killed = ask(own), agents()
os.kill(killed[0], signal.SIGKILL)
until(lambda: not agents())
again, made = ask(own), agents()
os.kill(made[0], signal.SIGSTOP)
POLL = "7 "
def kill():
    until(lambda: Path(f"/proc/{own}/task/{own}/syscall").read_text().startswith(POLL))
    os.kill(made[0], signal.SIGKILL)
threading.Thread(target=kill).start()
print(len(killed), len(made), first == again, ask(own), ask(own) == first, *late())
(forks,), (last,) = children(own), agents()
os.kill(forks, signal.SIGKILL)
os.waitpid(forks, 0)
print(ask(own) == first)
os.kill(last, signal.SIGKILL)
until(lambda: ask(own) != first)
print(ask(own), *late())
"""
"""An agent is killed that nobody asked, one while its answer is waited for, and what forks them."""


def asking(script: str, *given: object) -> subprocess.Popen[str]:
    """A process that has agents, asks them, and prints what they answer."""
    page = ctypes.addressof(ctypes.create_string_buffer(8)) & ~4095
    name, pid, answer_ms = given
    command = [
        sys.executable,
        "-c",
        AGENTS + script,
        str(name),
        str(pid),
        str(page),
        str(answer_ms),
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=ENVIRONMENT)


@pytest.mark.parametrize("then", ["end", "wait", "kill"])
def test_a_call_that_no_signal_ends_is_left_to_an_agent(stuck: list[Stuck], then: str) -> None:
    """move_pages waits for the map lock where no signal reaches it: an agent does, not the service.

    Later calls about that process fail at once, others are answered, and who asked can end while
    the agent waits. An agent that has answered after all is used again, and in the place of one
    that was killed meanwhile there is another.
    """
    one = stuck[0]
    one.go()
    with asking(LEFT, then, one.pid, 300) as asks:
        assert asks.stdin is not None
        assert asks.stdout is not None
        first = asks.stdout.readline().split("] ", 1)
        assert first[0].startswith("['ETIMEDOUT', 'ETIMEDOUT', ")
        assert first[1].strip() == f"[{one.pid}] 1"
        if then != "end":
            one.free()
            asks.stdin.write("\n")
            asks.stdin.flush()
            answer, late = asks.stdout.readline().split("] ", 1)
            assert answer.strip("[").lstrip("-").isdigit()
            assert late.strip() == "[] 1"
        assert asks.wait(ENOUGH_S) == 0


def test_an_agent_that_was_killed_is_made_again() -> None:
    """It costs the call that it was at, and nothing if it was at none.

    Agents outlive the process that forks them, and are not replaced any more.
    """
    with asking(KILLED, "", 0, ENOUGH_S * 1000) as asks:
        told, _ = asks.communicate(timeout=ENOUGH_S)
    assert told.splitlines() == ["1 1 True EAGAIN True [] 0", "True", "EAGAIN [] 0"]


@contextlib.contextmanager
def idle_pages(root: Path) -> Iterator[IdlePages]:
    """A bitmap of idle pages, which this kernel need not have, and the kernel's own page flags."""
    bitmap = Bitmap(scan=True)
    flags = os.open(root / "proc/kpageflags", os.O_RDONLY)
    yield IdlePages(BITMAP, flags, 1 << 24, 16 << 20, bitmap.calls)
    os.close(flags)


def held(pid: int) -> tuple[int, int]:
    """Page numbers of the memory that a process holds."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    ranges = [[int(end, 16) >> 12 for end in line.split()[0].split("-")] for line in lines]
    (found,) = [(start, end) for start, end in ranges if end - start >= MIB << 8][:1]
    return found


def test_idle_page_tracking_passes_over_one_that_is_stuck(stuck: list[Stuck], good: int) -> None:
    """The others are scanned on, nothing that the loop asks waits, and it is scanned when free."""
    one = stuck[0]
    scanning = Scanning(Path("/"), idle_pages)
    ring, control = scanning.open_ring(Path("/")), scanning.open_control()

    def until(number: int, what: Callable[[Any], bool]) -> None:
        end = time.monotonic() + ENOUGH_S
        while not any(each.target == number and what(each.stats) for each in control.targets()):
            assert time.monotonic() < end
            assert scanning.failure is None
            time.sleep(0.01)

    def rounds(number: int) -> int:
        (found,) = [each.stats["rounds"] for each in control.targets() if each.target == number]
        return int(found)

    try:
        control.scan_set(period_us=20_000, budget_ppm=1_000_000, sampling_interval_us=0)
        memory = {1: (one.pid, [held(one.pid)]), 2: (good, [held(good)])}
        for number, (pid, ranges) in memory.items():
            control.target_add(number, pid, ranges)
            until(number, lambda stats: stats["rounds"] >= 2)
        one.go()
        until(1, lambda stats: stats["passed_over"])
        control.target_set(1, [(1, 2)])
        control.target_del(1)
        control.target_add(1, *memory[1])
        until(1, lambda stats: stats["passed_over"])
        before = rounds(2)
        until(2, lambda stats: stats["rounds"] >= before + 3)
        one.free()
        until(1, lambda stats: stats["rounds"] >= 2 and not stats["passed_over"])
    finally:
        scanning.close()
        ring.close()
