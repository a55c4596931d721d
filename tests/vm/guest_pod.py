# SPDX-License-Identifier: Apache-2.0
"""The service as `config/kubernetes/tierd.yaml` has it run, in a guest: a pod made by hand.

usage: guest_pod.py --tierd PATH --hotset PATH --tlbtick PATH

What a container runtime would do with the manifest is done here: control group, namespaces (the
host's processes and network), mounts, capabilities, no new privileges, memory limit. Beside it is
a pod with a workload, whose hot pages are on the slow node. Prints one JSON object a step. Neither
a runtime nor a cluster is there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from guest_mishaps import EMULATED
from pod_manifest import CONFIGURATION, CONTAINER, MEMORY_BYTES, POD, SECURITY

CGROUPS = Path("/sys/fs/cgroup")
PODS = CGROUPS / "kubepods.slice/kubepods-besteffort.slice"
LIMIT_S = 300
NEAR = 0.5
"""So much of the hot pages is waited for."""
INSIDE = """
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /dev
for each in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 /dev/${each%%:*} c 1 ${each#*:}
done
umount --lazy --recursive /sys
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 /sys/fs/cgroup
for each in %(host)s; do
    case $each in
    /sys/kernel/tracing) mount -t tracefs tracefs $each ;;
    /sys/*) mount -t sysfs sysfs /mnt; mount --bind /mnt${each#/sys} $each; umount /mnt ;;
    *) mount --bind $each $each ;;
    esac
done
mount --bind -o ro %(config)s /etc/tierd
findmnt --raw --noheadings --output TARGET | while read -r each; do
    case " %(host)s " in *" $each "*) continue ;; esac
    case $each in /proc* | /dev*) continue ;; esac
    mount -o remount,bind,ro "$each" 2>/dev/null || true # others lie over some
done
for each in / /usr /etc /home /var /tmp /sys /sys/fs/cgroup; do [ ! -w $each ]; done
for each in kcore keys latency_stats timer_list sched_debug; do
    [ ! -e /proc/$each ] || mount --bind /dev/null /proc/$each
done
for each in bus fs irq sys sysrq-trigger; do
    mount --bind /proc/$each /proc/$each
    mount -o remount,bind,ro /proc/$each
done
exec %(confined)s %(command)s
"""
"""As runtimes of containers make it: a root that cannot be written, devices that harm nobody, parts
of /proc hidden or for reading alone. Host paths of the manifest are mounted to be written."""


def tell(event: str, **fields: Any) -> None:
    """Print one event."""
    print(json.dumps({"event": event, **fields}), flush=True)


def group(name: str) -> Path:
    """A container's control group, as kubelet and containerd would name it."""
    made = PODS / f"kubepods-besteffort-pod{name}.slice/cri-containerd-{name}.scope"
    made.mkdir(parents=True)
    return made


@contextlib.contextmanager
def groups() -> Iterator[tuple[Path, Path]]:
    """Those of tierd and of the workload, where memory can be limited; removed at the end."""
    controllers = CGROUPS / "cgroup.subtree_control"
    had = "memory" in controllers.read_text().split()
    ours, theirs = group("aaaa"), group("bbbb")
    for each in reversed([each for each in ours.parents if each.is_relative_to(CGROUPS)]):
        (each / "cgroup.subtree_control").write_text("+memory")
    (ours / "memory.max").write_text(str(MEMORY_BYTES))
    try:
        yield ours, theirs
    finally:
        end = time.monotonic() + LIMIT_S
        for each in (ours, theirs):
            # Agents of the service end a little later than it does.
            while "populated 1" in (each / "cgroup.events").read_text():
                assert time.monotonic() < end, (each / "cgroup.procs").read_text()
                time.sleep(0.2)
            each.rmdir()
            each.parent.rmdir()
        PODS.rmdir()
        PODS.parent.rmdir()
        if not had:
            controllers.write_text("-memory")


@contextlib.contextmanager
def still_kernel() -> Iterator[None]:
    """The kernel moves no page by itself meanwhile: it may move the hot ones first."""
    switch = Path("/proc/sys/kernel/numa_balancing")
    before = switch.read_text()
    switch.write_text("0")
    try:
        yield
    finally:
        switch.write_text(before)


def started(place: Path, command: list[str], **options: Any) -> subprocess.Popen[str]:
    """A command in a control group from its begin."""
    enter = f"echo $$ >{place}/cgroup.procs && exec " + '"$@"'
    return subprocess.Popen(["sh", "-c", enter, "sh", *command], text=True, **options)


class Pod:
    """tierd in its pod."""

    def __init__(self, place: Path, tierd: str) -> None:
        self._place, self._tierd = place, tierd
        self._made: list[Path] = []
        # What is made here is made for these.
        assert POD["hostPID"] and POD["hostNetwork"] and SECURITY["readOnlyRootFilesystem"]
        assert not (SECURITY["privileged"] or SECURITY["allowPrivilegeEscalation"])
        assert SECURITY["capabilities"]["drop"] == ["ALL"] and SECURITY["runAsUser"] == 0
        for profile in ("seccompProfile", "appArmorProfile"):
            assert SECURITY[profile] == {"type": "Unconfined"}
        mounted = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
        assert mounted.pop("config") == "/etc/tierd"
        paths = {each["name"]: each.get("hostPath", {}).get("path") for each in POD["volumes"]}
        host = list(mounted.values())
        assert host == [paths[name] for name in mounted]
        for each in host:
            self._folder(Path(each))
        self._folder(Path("/etc/tierd"))
        config = Path("/run/pod-config")
        self._folder(config)
        (config / "tierd.toml").write_text(CONFIGURATION)
        (config / "conf.d").mkdir(exist_ok=True)
        # Commands get the answer of a loop that waits for its CPU.
        (config / "conf.d/emulated.toml").write_text(EMULATED + '[control]\ntimeout = "1min"\n')
        names = (f"+{name.lower()}" for name in SECURITY["capabilities"]["add"])
        bounding = "--bounding-set=-all," + ",".join(names)
        self._confined = ["setpriv", "--no-new-privs", "--inh-caps=-all", bounding]
        script = INSIDE % {
            "host": " ".join(host),
            "config": config,
            "confined": " ".join(self._confined),
            "command": " ".join([tierd, *CONTAINER["args"]]),
        }
        # Of processes and of the network it has the host's namespaces.
        spaces = ["unshare", "--mount", "--cgroup", "--ipc", "--uts"]
        command = [*spaces, "bash", "-euxc", script]
        self.process = started(place, command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip())

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of tierd in the pod, as a liveness probe runs it."""
        enter = ["nsenter", "--target", str(self.process.pid), "--mount", "--cgroup", "--ipc"]
        command = [*enter, *self._confined, self._tierd, *arguments]
        process = started(self._place, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, errors = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(command, process.returncode, out, errors)

    def stop(self) -> int:
        """SIGTERM, as kubelet sends it; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=POD["terminationGracePeriodSeconds"])
        self._reader.join(10)
        return status

    def end(self) -> None:
        """Whatever happened, leave nothing behind."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=30)
            self.process.kill()
            self.process.wait()
        for each in reversed(self._made):
            shutil.rmtree(each)

    def _folder(self, path: Path) -> None:
        if not path.exists():
            self._made.append(path)
        path.mkdir(parents=True, exist_ok=True)


def metrics() -> list[str]:
    """What Prometheus would read from the host's address."""
    (port,) = (each["containerPort"] for each in CONTAINER["ports"])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return [line for line in text.splitlines() if re.match(r"tierd_(targets|migrat)", line)]


class Work:
    """The other pod: a program whose hot pages are on the slow node."""

    def __init__(self, place: Path, hotset: str) -> None:
        spaces = ["unshare", "--mount", "--cgroup", "--pid", "--fork", "--kill-child=TERM"]
        command = [hotset, "--size", "120M", "--seconds", "100000", "--rate", "100000"]
        command += ["--fast-node", "0", "--slow-node", "1", "--interval", "1"]
        self.process = started(place, [*spaces, *command], stdout=subprocess.PIPE)
        self.reports: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.reports.append(json.loads(line))

    @property
    def near(self) -> float:
        """The part of its hot pages that was on the fast node at its last report."""
        return float(self.reports[-1]["hot_on_node"].get("0", 0.0))

    def end(self) -> dict[str, Any]:
        """End the program, and `unshare` with it; the program's last report."""
        pid = self.process.pid
        if self.process.poll() is None:
            child = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for each in child or [pid]:
                os.kill(int(each), signal.SIGTERM)
        self.process.wait(timeout=LIMIT_S)
        self._reader.join(10)
        return self.reports[-1] if self.reports else {}


def confinement(pod: Pod, place: Path) -> dict[str, Any]:
    """How the service is held."""
    process = Path(f"/proc/{pod.process.pid}")
    lines = re.findall(r"^(?:NoNewPrivs|CapBnd|CapPrm):.*$", (process / "status").read_text(), re.M)
    mounts = (line.split() for line in (process / "mountinfo").read_text().splitlines())
    flags = {each[4]: each[5].split(",") for each in mounts}
    return {
        "lines": lines,
        "group": (process / "cgroup").read_text().strip(),
        "read_only": {path: "ro" in flags[path] for path in ("/", "/sys", "/sys/fs/cgroup")},
        "memory_max": int((place / "memory.max").read_text()),
        "memory_events": (place / "memory.events").read_text().split(),
    }


def main() -> int:
    """Run all of it; 0 if it came to its end."""
    parser = argparse.ArgumentParser()
    for name in ("hotset", "tlbtick", "tierd"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    with still_kernel(), groups() as (ours, theirs), contextlib.ExitStack() as stack:
        pod = Pod(ours, args.tierd)
        stack.callback(pod.end)
        work = Work(theirs, args.hotset)
        stack.callback(work.end)

        def wait(until: Callable[[], bool]) -> None:
            end = time.monotonic() + LIMIT_S
            while not until():
                alive = pod.process.poll() is None and work.process.poll() is None
                assert alive, (pod.log, work.reports)
                assert time.monotonic() < end, (pod.log, work.reports)
                time.sleep(0.2)

        wait(lambda: bool(work.reports))
        tell("begun", near=work.near)
        wait(lambda: any("event=source_selected" in line for line in list(pod.log)))
        with subprocess.Popen([args.tlbtick, "4000"]) as tick:
            try:
                wait(lambda: work.near >= NEAR)
            finally:
                tick.kill()
        tell("served", near=work.near, log=pod.log)
        for name in ("doctor", "status"):
            done = pod.run(name, "--json")
            tell(name, status=done.returncode, told=done.stdout, errors=done.stderr)
        tell("metrics", lines=metrics())
        tell("confined", **confinement(pod, ours))
        tell("stopped", status=pod.stop(), log=pod.log)
        tell("end", checksum_ok=work.end()["checksum_ok"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
