# SPDX-License-Identifier: Apache-2.0
"""What is given to virtme-ng, what is made of its answer, and the guest's script."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tierd.core.errors import ConfigError, ExitCode, TierdError
from tierd_lab.compose import Boot, Share, finish, virtme_arguments
from tierd_lab.host import Kernel
from tierd_lab.initramfs import cpio_entry, root_cache_archive
from tierd_lab.machine import Machine
from tierd_lab.session import guest_script
from tierd_lab.tail import Tail

COMPOSED = [
    "/usr/bin/qemu-system-x86_64",
    *("-chardev", "file,id=console,path=/dev/null"),
    *("-chardev", "stdio,id=stdin,signal=on,mux=off"),
    *("-chardev", "file,id=stdout,path=/proc/self/fd/1"),
    *("-chardev", "file,id=ret,path=/tmp/virtme_ret1"),
    *("-append", "quiet"),
]


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    """The reference machine under TCG."""
    kernel = Kernel("6.12.9", Path("/boot/vmlinuz-6.12.9"), headers=True)
    return Boot(Machine.load("dram-cxl"), kernel, "tcg", tmp_path, console_fd=9)


def options(command: list[str], name: str) -> list[str]:
    return [value for option, value in pairwise(command) if option == name]


def test_virtme_composes_the_whole_memory_and_all_cpus(boot: Boot) -> None:
    """virtme-ng knows no HMAT: it is given the sum, the nodes come later."""
    arguments = virtme_arguments(boot)
    assert options(arguments, "--memory") == ["3072M"]
    assert options(arguments, "--cpus") == ["2"]
    assert options(arguments, "--kimg") == ["/boot/vmlinuz-6.12.9"]
    assert "--dry-run" in arguments


def test_shares_are_mounted_where_they_were_asked_for(boot: Boot, tmp_path: Path) -> None:
    """At the same path, or at another."""
    there = Share.parse(f"/mnt/results={tmp_path}")
    arguments = virtme_arguments(replace(boot, shares=[Share.parse(str(tmp_path)), there]))
    same = str(tmp_path).lstrip("/")
    assert options(arguments, "--rwdir") == [f"{same}={tmp_path}", f"mnt/results={tmp_path}"]


@pytest.mark.parametrize("text", ["/nonexistent", "relative=/tmp", "/=/tmp", "/a,b=/tmp"])
def test_share_that_cannot_be_mounted_is_an_error(text: str) -> None:
    """Before anything is booted."""
    with pytest.raises(ConfigError, match="--share"):
        Share.parse(text)


def test_cold_plug_is_left_out_unless_asked_for(boot: Boot) -> None:
    """The stand-ins come first in the boot's PATH."""
    kernel_args = options(virtme_arguments(boot), "--kopt")
    path = next(text for text in kernel_args if text.startswith("PATH="))
    stand_ins = Path(path.removeprefix("PATH=").split(":")[0])
    assert {file.name for file in stand_ins.iterdir()} == {"udevadm", "systemd-tmpfiles"}
    assert all(file.stat().st_mode & 0o111 for file in stand_ins.iterdir())
    slow = replace(boot, machine=replace(boot.machine, coldplug=True))
    assert not any(text.startswith("PATH=") for text in options(virtme_arguments(slow), "--kopt"))


def test_devices_are_replaced_and_the_machine_added(boot: Boot) -> None:
    """The console goes to tierd, the status to the run's folder, stdout stays."""
    command = finish(COMPOSED, boot)
    assert options(command, "-chardev") == [
        "file,id=console,path=/proc/self/fd/9",
        "null,id=stdin",
        "file,id=stdout,path=/proc/self/fd/1",
        f"file,id=ret,path={boot.result_file}",
    ]
    assert options(command, "-accel") == ["tcg,thread=multi"]
    assert options(command, "-cpu") == ["max,la57=off,erms=off,fsrm=off"]
    assert options(command, "-machine") == ["hmat=on"]


def test_agent_gets_a_port_of_its_own(boot: Boot) -> None:
    """Connected to the socket that the caller made."""
    command = finish(COMPOSED, replace(boot, agent_fd=11))
    assert "socket,id=agent,fd=11" in options(command, "-chardev")
    assert "virtserialport,name=tierd.agent,chardev=agent" in options(command, "-device")


def test_kvm_takes_the_hosts_cpu(boot: Boot) -> None:
    """And no TCG option is left."""
    command = finish(COMPOSED, replace(boot, accelerator="kvm"))
    assert options(command, "-accel") == ["kvm"]
    assert options(command, "-cpu") == ["host"]


def test_virtme_that_composes_otherwise_is_an_error(boot: Boot) -> None:
    """Said with the version that was tried, instead of a guest that says nothing."""
    with pytest.raises(TierdError, match=r"no character device console, ret.*1\.42"):
        finish(["qemu", "-chardev", "stdio,id=stdin", "-append", ""], boot)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["printf", "%s|", "a b", "$HOME", "it's"], "a b|$HOME|it's|"),
        ('printf "%s|" $WORD; printf "%s" "$WORD"', "one|two|one two"),
    ],
)
def test_script_keeps_words_and_runs_lines(
    tmp_path: Path, command: str | list[str], said: str
) -> None:
    """A list of words is not expanded; one text is a shell line."""
    script = guest_script(command, env={"WORD": "one two"}, cwd=str(tmp_path), machine="flat")
    script = script.replace(">/dev/console", ">/dev/null")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == said


def test_script_refuses_a_name_no_shell_takes() -> None:
    """Instead of running something else."""
    with pytest.raises(TierdError, match="'A;B' is not the name"):
        guest_script("true", env={"A;B": "x"}, cwd="/", machine="flat")


def test_archive_is_read_by_cpio(tmp_path: Path) -> None:
    """The added archive holds one program, `mount`."""
    archive = root_cache_archive(512)
    subprocess.run(["cpio", "-id", "--quiet"], input=archive, cwd=tmp_path, check=True)
    script = (tmp_path / "bin" / "mount").read_text()
    assert script.startswith("#!/bin/sh\n")
    assert "cache=loose" in script


def test_archive_members_and_their_data_are_aligned() -> None:
    """Four bytes, and 512 behind the archive that came before."""
    assert len(cpio_entry("a", b"xyz", 0o100644, 1)) % 4 == 0
    assert root_cache_archive(100).index(b"070701") == 412


def test_tail_keeps_the_last_bytes() -> None:
    """However they came."""
    tail = Tail(10)
    for number in range(100):
        tail.add(f"{number:02d}".encode())
    assert tail.data == b"9596979899"
    assert tail.dropped == 190


def test_mistakes_of_the_command_line_are_told_by_tierd(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, the exit code of a wrong configuration, nothing booted."""
    from tierd_lab.cli import main

    for arguments, message in (
        (["--machine", "dram-clx"], "there is no machine 'dram-clx'"),
        (["--timeout", "5"], "--timeout: '5' has no known unit of time"),
        (["--env", "A-B=1"], "--env: 'A-B' is not the name"),
        (["--share", "/nonexistent"], "--share: /nonexistent is not a folder"),
    ):
        assert main(["run", *arguments, "--", "true"]) == ExitCode.CONFIG
        assert message in capsys.readouterr().err


def test_machines_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """With their nodes."""
    from tierd_lab.cli import main

    assert main(["machines"]) == ExitCode.OK
    listed = capsys.readouterr().out
    assert "dram-cxl: one socket" in listed
    assert "node 1: cxl    2.0 GiB  CPUs none  430 ns  20.0 GiB/s" in listed
