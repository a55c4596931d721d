# SPDX-License-Identifier: Apache-2.0
"""The lab itself: guests show the machine that was asked for, and nothing outlives them."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tierd.core.errors import ExitCode
from tierd_lab import Guest, GuestError, LabResult, Machine, files, run
from tierd_lab.boot_watch import BootWatch
from tierd_lab.nodes import MIB
from tierd_lab.process import qemu_children

Vm = Callable[[str], Guest]
TIERS = "/sys/devices/virtual/memory_tiering"
MACHINES = ("dram-cxl", "hbm-dram-cxl", "two-socket-cxl", "flat")
SYSFS = """
import glob, json
def read(path):
    with open(path) as file:
        return file.read().strip()
found = {}
for path in glob.glob("/sys/devices/system/node/node[0-9]*"):
    node = {"cpus": read(path + "/cpulist"), "distance": read(path + "/distance")}
    node["kib"] = int(read(path + "/meminfo").split("MemTotal:")[1].split()[0])
    for name in ("read_latency", "read_bandwidth"):
        try:
            node[name] = int(read(f"{path}/access0/initiators/{name}"))
        except OSError:
            pass
    node["initiators"] = sorted(
        int(link.rsplit("node", 1)[1])
        for link in glob.glob(path + "/access0/initiators/node[0-9]*")
    )
    found[int(path.rsplit("node", 1)[1])] = node
print(json.dumps(found))
"""


def tiers(guest: Guest) -> dict[str, str]:
    """Nodes of each of the kernel's memory tiers that has any."""
    lines = guest.run(f"cd {TIERS} && grep -H . memory_tier*/nodelist").stdout.split()
    pairs = (line.split("/nodelist:") for line in lines)
    return {tier: nodes for tier, nodes in pairs if nodes}


@pytest.mark.parametrize("name", MACHINES)
def test_guest_shows_the_machine_of_the_file(vm: Vm, name: str) -> None:
    """Sizes, CPUs, distances, and the HMAT's figures arrive in sysfs."""
    machine = Machine.load(name)
    shown = json.loads(vm(name).run(["python3", "-c", SYSFS]).check().stdout)
    assert sorted(map(int, shown)) == list(range(len(machine.nodes)))
    for number, node in enumerate(machine.nodes):
        found = shown[str(number)]
        assert 0.8 * node.size_bytes < found["kib"] * 1024 <= node.size_bytes
        assert found["distance"] == " ".join(map(str, machine.distances[number]))
        low, high = min(node.cpus, default=0), max(node.cpus, default=0)
        assert found["cpus"] == (
            "" if not node.cpus else f"{low}-{high}" if high > low else f"{low}"
        )
        if machine.has_hmat:
            assert found["initiators"] == [node.initiator]
            assert found["read_latency"] == node.latency_ns[node.initiator]
            rate = node.bandwidth_bytes_per_s[node.initiator]
            assert found["read_bandwidth"] == pytest.approx(rate / MIB, rel=0.01)


def test_what_guests_read_most_comes_from_a_disk(vm: Vm) -> None:
    """Python's library, its packages and this tree: the same files as on the host."""
    guest = vm("dram-cxl")
    sums = "find {} -name '*.py' -type f | LC_ALL=C sort | xargs md5sum | md5sum"
    for folder in files.folders():
        assert guest.run(["stat", "-fc", "%T", str(folder)]).check().stdout == "squashfs\n"
    for folder in (files.ROOT / "daemon", files.ROOT / "fpga/python"):
        command = sums.format(folder)
        here = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
        assert guest.run(command).check().stdout == here.stdout


def test_kernel_ranks_dram_above_cxl(vm: Vm) -> None:
    """Two tiers, the DRAM node in the kernel's default tier."""
    assert tiers(vm("dram-cxl")) == {"memory_tier4": "0", "memory_tier163": "1"}


def test_kernel_puts_wide_memory_above_dram(vm: Vm) -> None:
    """Equal latency and double bandwidth: the kernel's own ranking puts HBM first."""
    found = tiers(vm("hbm-dram-cxl"))
    assert sorted(found.values()) == ["0", "1", "2"]
    rank = {nodes: int(tier.removeprefix("memory_tier")) for tier, nodes in found.items()}
    assert rank["1"] < rank["0"] < rank["2"]


def test_kernel_joins_the_expanders_of_both_sockets(vm: Vm) -> None:
    """Alike nodes are in one tier, whatever socket they are at."""
    assert sorted(tiers(vm("two-socket-cxl")).values()) == ["0-1", "2-3"]


def test_flat_machine_has_one_tier(vm: Vm) -> None:
    """One node, one tier."""
    assert list(tiers(vm("flat")).values()) == ["0"]


def test_guest_has_what_tierd_needs(vm: Vm) -> None:
    """DAMON, trace events, cgroups, bpffs or debugfs, NUMA balancing, a writable /tmp."""
    guest = vm("dram-cxl")
    guest.run("ls /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds").check()
    guest.run("ls /sys/kernel/tracing/events/migrate /sys/fs/cgroup/cgroup.procs").check()
    guest.run("echo text >/tmp/tierd-lab-test && rm /tmp/tierd-lab-test").check()
    # Tests that had this guest before may have switched it off.
    balancing = "/proc/sys/kernel/numa_balancing"
    told = guest.run(f"echo 1 >{balancing} && cat {balancing}").check().stdout
    assert told.strip() == "1"
    assert guest.run("id -u").stdout.strip() == "0"


def test_writes_of_the_guest_stay_in_the_guest(vm: Vm) -> None:
    """The host's files are read through a layer that takes the writes."""
    guest = vm("dram-cxl")
    guest.run("echo guest >/etc/tierd-lab-test && cat /etc/tierd-lab-test").check()
    assert not Path("/etc/tierd-lab-test").exists()
    guest.run("rm /etc/tierd-lab-test").check()


def test_commands_run_together_and_tell_their_lines_live(vm: Vm) -> None:
    """A command in the background, one beside it; each line comes when it is written."""
    guest = vm("dram-cxl")
    times: list[float] = []
    process = guest.start(
        "echo one; sleep 2; echo two", on_line=lambda _: times.append(time.monotonic())
    )
    assert guest.run(["echo", "beside"]).stdout == "beside\n"
    assert process.wait().stdout == "one\ntwo\n"
    assert times[1] - times[0] > 1.0


def test_command_status_streams_and_environment(vm: Vm) -> None:
    """Exit status, stdout, stderr, stdin, environment and folder of a command."""
    result = vm("dram-cxl").run(
        'cat; echo "$WORD" >&2; pwd; exit 7', env={"WORD": "a b"}, cwd="/sys", stdin="in\n"
    )
    assert (result.status, result.stdout, result.stderr) == (7, "in\n/sys\n", "a b\n")


def test_command_is_killed_when_its_time_is_up(vm: Vm) -> None:
    """`timeout` ends a command and its children, and the guest goes on."""
    guest = vm("dram-cxl")
    begin = time.monotonic()
    result = guest.run("sleep 1234 & wait", timeout=1)
    assert result.timed_out
    assert time.monotonic() - begin < 20
    assert guest.run(["pgrep", "-f", "^sleep 1234"]).status == 1


def test_command_that_does_not_exist_is_an_error(vm: Vm) -> None:
    """Not an exit status, which a command might have of its own."""
    with pytest.raises(GuestError, match=r"cannot run no-such-command.*No such file"):
        vm("dram-cxl").run(["no-such-command"])


def test_dead_guest_is_an_error_with_its_console() -> None:
    """A panic under a command, and every command after it, tell the end of the console."""
    with Guest("flat") as guest:
        begin = time.monotonic()
        with pytest.raises(GuestError, match="sysrq triggered crash"):
            guest.run("echo c >/proc/sysrq-trigger; sleep 60")
        assert time.monotonic() - begin < 30
        with pytest.raises(GuestError, match="flat"):
            guest.run(["true"])
    assert guest.pid not in qemu_children()


def test_kernel_complaints_are_found(vm: Vm) -> None:
    """None in a healthy guest; a warning in the log is one."""
    guest = vm("flat")
    assert guest.kernel_complaints() == []
    guest.run("echo 'WARNING: CPU: 0 PID: 1 at mm/test.c:1' >/dev/kmsg").check()
    assert len(guest.kernel_complaints()) == 1
    guest.run(["dmesg", "-C"]).check()


def qemu_with(mark: str) -> list[int]:
    """QEMUs below the `tierd-lab run` that was started with this LAB_TEST."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                environment = (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if words.startswith("/usr/bin/qemu-system") and f"LAB_TEST={mark}\0" in environment:
                found.append(int(entry.name))
    return found


def tierd_lab(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tierd_lab.cli", *arguments]


def test_run_passes_status_streams_folder_environment_and_share(tmp_path: Path) -> None:
    """The whole command line in one boot: nothing of the boot is in stdout."""
    share = tmp_path / "share"
    share.mkdir()
    done = subprocess.run(
        tierd_lab(
            *("run", "--machine", "flat", "--json", "--env", "WORD=a b"),
            *("--share", str(share), "--", "sh", "-c"),
            'echo "$WORD"; pwd; echo problem >&2; echo result >"$1/file"; exit 9',
            *("sh", str(share)),
        ),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
    )
    *lines, last = done.stdout.splitlines()
    assert lines == ["a b", str(tmp_path)]
    assert done.stderr.splitlines()[0] == "problem"
    assert done.returncode == 9
    assert (share / "file").read_text() == "result\n"
    report = json.loads(last)
    assert report["exit_status"] == 9
    assert report["machine"] == "flat"
    assert report["accelerator"] in ("kvm", "tcg")
    assert report["timed_out"] is False
    assert 0 < report["boot_s"] < report["duration_s"]


def test_python_api_tells_lines_live() -> None:
    """`run` calls back with each line, in order, before the guest has ended."""
    seen: list[tuple[str, float]] = []
    result: LabResult = run(
        "flat",
        "echo first; sleep 2; printf last",
        on_line=lambda line: seen.append((line, time.monotonic())),
    )
    assert [line for line, _ in seen] == ["first", "last"]
    assert seen[1][1] - seen[0][1] > 1.0
    assert (result.exit_status, result.stdout) == (0, b"first\nlast")


def test_hung_guest_is_ended_at_the_timeout() -> None:
    """Exit code 6, soon after the time was up, and no QEMU is left."""
    begin = time.monotonic()
    mark = f"{os.getpid()}-timeout"
    process = subprocess.Popen(
        tierd_lab("run", "--machine", "flat", "--timeout", "4s", "--", "sleep 1000"),
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LAB_TEST": mark},
    )
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == ExitCode.TIMEOUT
    assert "ended after 4s" in stderr
    assert time.monotonic() - begin < 30
    assert qemu_with(mark) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_qemu_outlives_tierd(number: signal.Signals) -> None:
    """However tierd ends, even without a chance to clean up, QEMU ends with it."""
    mark = f"{os.getpid()}-{number}"
    process = subprocess.Popen(
        # Who starts tests in the background of a shell has SIGINT ignored, and all below it.
        [
            "env",
            "--default-signal=INT",
            *tierd_lab("run", "--machine", "flat", "--", "sleep 1000"),
        ],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LAB_TEST": mark},
    )
    deadline = time.monotonic() + 60
    while not qemu_with(mark):
        assert time.monotonic() < deadline, "QEMU did not start"
        time.sleep(0.1)
    process.send_signal(number)
    status = process.wait(timeout=30)
    deadline = time.monotonic() + 5
    while qemu_with(mark):
        assert time.monotonic() < deadline, "QEMU outlived tierd"
        time.sleep(0.05)
    assert status == (-number if number is signal.SIGKILL else 128 + number)


def shell_session(said: bytearray) -> int | None:
    """Talk to a guest's shell; its status, None if there was none: QEMU got stuck, or aborted."""
    pid, terminal = pty.fork()
    if pid == 0:
        command = tierd_lab("shell", "--machine", "flat")
        os.execv(command[0], command)
    answers = [(b"flat:", b"tty; echo he''llo\n"), (b"hello", b"exit 5\n")]
    watch, booted, stuck = BootWatch(), False, ""
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline and not stuck:
        readable, _, _ = select.select([terminal], [], [], 1.0)
        try:
            said += os.read(terminal, 4096) if readable else b""
        except OSError:  # the terminal's other end is closed
            break
        if answers and answers[0][0] in said:
            booted = True
            os.write(terminal, answers.pop(0)[1])
        if not booted:
            qemu = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            stuck = watch.stuck(int(qemu[0]) if qemu else 0, said.decode(errors="replace"))
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if booted else None


def test_shell_has_a_terminal_and_hands_on_its_status() -> None:
    """The guest's shell has job control, and its exit status is the command's."""
    for _ in range(3):
        said = bytearray()
        if (status := shell_session(said)) is not None:
            break
    assert status == 5, said.decode(errors="replace")[-2000:]
    assert b"/dev/ttyS0" in said
