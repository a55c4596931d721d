# SPDX-License-Identifier: Apache-2.0
"""A disk image with Debian and systemd, tierd's packages in it, and its boot in the lab.

The base system is made once by debootstrap, from the mirror of this machine's own apt
sources, and kept in build/machine; each run copies it, installs the packages in the copy
(chroot), and makes an ext4 image of that.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tierd_lab import accel, host
from tierd_lab.machine import Machine
from tierd_lab.qemu import memory_argument, qemu_options

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build/machine"
PACKAGES = (
    "dbus",
    "dkms",
    "gcc",
    "kmod",
    "libelf1",
    "make",
    "pahole",
    "procps",
    "python3",
    "python3-cffi-backend",
    "python3-numpy",
    "systemd-sysv",
    "udev",
)
IMAGE_MIB = 1536
REPORT = "/dev/ttyS1"


def sh(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command; an error shows what it said."""
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        said = (done.stdout + done.stderr)[-4000:]
        raise AssertionError(f"{command[0]} ended with {done.returncode}: {said}")
    return done


def release() -> tuple[str, str]:
    """This machine's (codename, mirror)."""
    text = Path("/etc/os-release").read_text()
    codename = next(
        line.partition("=")[2].strip('"')
        for line in text.splitlines()
        if line.startswith("VERSION_CODENAME=")
    )
    told = sh("apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)")
    for line in told.stdout.splitlines():
        suite, component, uri = line.split(" ", 2)
        if (suite, component) == (codename, "main"):
            return codename, uri
    raise AssertionError(f"apt knows no source of {codename} main")


def base() -> Path:
    """The folder of the base system; made if it is not there."""
    codename, mirror = release()
    key = hashlib.sha256(" ".join([codename, *PACKAGES]).encode()).hexdigest()[:12]
    folder = CACHE / f"base-{key}"
    if (folder / "etc/debian_version").exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    making = CACHE / f"making-{os.getpid()}"
    names = ",".join(PACKAGES)
    try:
        sh("debootstrap", "--variant=minbase", f"--include={names}", codename, making, mirror)
        for waste in ("usr/share/doc", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(making / waste, ignore_errors=True)
            (making / waste).mkdir(parents=True)
        (making / "etc/apt/sources.list").write_text("")
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


@functools.cache
def built_packages() -> list[Path]:
    """The packages, built by the one command; once for all tests of a session."""
    folder = Path(tempfile.mkdtemp(prefix="tierd-deb-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run([ROOT / "config/debian/build.sh", "--no-lint", folder], check=True)
    return sorted(folder.glob("*.deb"))


def bring_headers(root: Path, version: str) -> None:
    """Copy this machine's headers of a kernel into a root, as its package would install them."""
    build = Path("/lib/modules") / version / "build"
    headers = build.resolve()
    common = headers.with_name(headers.name.rpartition("-")[0] + "-common")
    kbuild = (headers / "scripts").resolve().parent
    for folder in {headers, common, kbuild}:
        place = root / str(folder).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        sh("cp", "-a", folder, place)
    link = root / "lib/modules" / version / "build"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(headers)


class Tree:
    """A copy of the base system in which things are installed before it is booted."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        sh("cp", "-a", "--reflink=auto", base(), self.root)
        self.write("etc/hostname", "lab\n")
        self.write("etc/fstab", "")
        # Nothing is started in the folder, and no time is spent on the network.
        self.write("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", mode=0o755)

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """A file."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def put(self, source: Path, path: str, *, mode: int = 0o755) -> None:
        """A copy of a file of this machine."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, self.root / path)
        (self.root / path).chmod(mode)

    def install(self, packages: Sequence[Path]) -> str:
        """Install packages by dpkg, whose dependencies must be there; returns what it said."""
        for package in packages:
            self.put(package, f"root/{package.name}", mode=0o644)
        names = [f"/root/{package.name}" for package in packages]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        done = sh("chroot", self.root, "dpkg", "-i", *names, env=environment)
        return done.stdout + done.stderr

    def run_at_boot(self, script: Path) -> None:
        """Have the guest run a Python script when it has booted, then switch itself off."""
        self.put(script, f"root/{script.name}")
        unit = f"""[Unit]
After=multi-user.target
[Service]
ExecStart=/usr/bin/python3 /root/{script.name}
StandardOutput=file:{REPORT}
StandardError=file:{REPORT}
ExecStopPost=/usr/bin/systemctl --no-block poweroff
"""
        self.write("etc/systemd/system/lab-test.service", unit)
        wants = self.root / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / "lab-test.service").symlink_to("../lab-test.service")

    def image(self) -> Path:
        """The ext4 image."""
        file = self.root.with_name("image.ext4")
        sh("mke2fs", "-q", "-t", "ext4", "-d", self.root, file, f"{IMAGE_MIB}M")
        shutil.rmtree(self.root)
        return file


def boot(
    image: Path,
    machine: str,
    *,
    timeout_s: float,
    kernel: host.Kernel | None = None,
    counted: bool = True,
    on_event: Callable[[dict[str, Any]], None] = lambda event: None,
) -> list[dict[str, Any]]:
    """Boot `image`; the JSON lines that the guest's script reported, until it is off.

    Args:
        image: the file.
        machine: its name.
        timeout_s: of this host's time.
        kernel: the newest if it is None.
        counted: the guest has one CPU, and emulated time counts its instructions. On a busy host it
            waits longer then, and notices nothing; without, it computes several times as fast.
        on_event: called with each line.

    Raises:
        AssertionError: it was not off in time, or its script failed; with its last words.
    """
    described = _one_cpu(machine) if counted else Machine.load(machine)
    kernel, qemu = kernel or host.find_kernel(), host.find_qemu()
    initrd = kernel.image.with_name(f"initrd.img-{kernel.version}")
    console, report = image.with_name("console"), image.with_name("report")
    chosen = accel.choose("auto", qemu, host.qemu_version(qemu), kernel)
    if chosen.name == "kvm":
        speed = ["-accel", "kvm", "-cpu", "host"]
    else:
        speed = ["-accel", "tcg,thread=multi"]
        if counted:
            speed = ["-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off"]
        speed += ["-cpu", described.cpu]
    append = "root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off audit=0 apparmor=0 quiet"
    append += " systemd.mask=serial-getty@ttyS0.service systemd.mask=systemd-timesyncd.service"
    command = [qemu, "-nodefaults", "-no-reboot", "-display", "none", *speed]
    command += ["-smp", str(described.cpu_count), "-m", memory_argument(described)]
    command += ["-kernel", kernel.image, "-initrd", initrd, "-append", append]
    command += ["-drive", f"file={image},format=raw,if=virtio,cache=unsafe"]
    command += ["-serial", f"file:{console}", "-serial", f"file:{report}"]
    command += qemu_options(described)
    setpriv = host.find_program("setpriv", "util-linux")
    process = subprocess.Popen(
        [setpriv, "--pdeathsig", "KILL", "--", *map(str, command)],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    events: list[dict[str, Any]] = []
    try:
        deadline = time.monotonic() + timeout_s
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.5)
            for event in list(_events(report))[len(events) :]:
                events.append(event)
                on_event(event)
        events += list(_events(report))[len(events) :]
        if process.poll() is None or not any(e.get("event") == "done" for e in events):
            words = console.read_text(errors="replace")[-3000:]
            words += report.read_text(errors="replace")[-6000:] if report.exists() else ""
            raise AssertionError(f"the guest did not get through: {words}")
    finally:
        process.kill()
        process.wait()
    return events


def _one_cpu(name: str) -> Machine:
    """The machine with its first CPU only: counted time is for one."""
    machine = Machine.load(name)
    first = dataclasses.replace(machine.nodes[0], cpus=machine.nodes[0].cpus[:1])
    return dataclasses.replace(machine, nodes=(first, *machine.nodes[1:]))


def _events(report: Path) -> Iterator[dict[str, Any]]:
    text = report.read_text(errors="replace") if report.exists() else ""
    for line in text.splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):
            yield json.loads(line)


class Bare:
    """The base system under an overlay, for commands in it; nothing of it is kept.

    Mounts are made in this process's namespace and taken away again.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self._folder = folder
        self._mounted: list[Path] = []

    def __enter__(self) -> Bare:
        below = base()
        # An overlay's upper folder may not be on an overlay, so it gets a file system.
        layer = self._folder / "layer"
        for path in (self.root, layer):
            path.mkdir(parents=True)
        try:
            self._mount("-t", "tmpfs", "-o", "size=1500M", "tmpfs", layer)
            for name in ("upper", "work"):
                (layer / name).mkdir()
            options = f"lowerdir={below},upperdir={layer}/upper,workdir={layer}/work"
            self._mount("-t", "overlay", "-o", options, "overlay", self.root)
            self._mount("-t", "proc", "proc", self.root / "proc")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for place in reversed(self._mounted):
            sh("umount", "--lazy", place)
        self._mounted.clear()

    def _mount(self, *arguments: str | Path) -> None:
        sh("mount", *arguments)
        self._mounted.append(Path(arguments[-1]))

    def put(self, source: Path, path: str, *, mode: int = 0o755) -> None:
        """A copy of a file of this machine."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, self.root / path)
        (self.root / path).chmod(mode)

    def bring_headers(self, version: str) -> None:
        """This machine's headers of a kernel, as its package would install them."""
        bring_headers(self.root, version)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in it."""
        return subprocess.run(
            ["chroot", str(self.root), *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )
