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
import signal
import subprocess
import textwrap
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = (ROOT / "config/kubernetes/tierd.yaml").read_text()
CGROUPS = Path("/sys/fs/cgroup")
PODS = CGROUPS / "kubepods.slice/kubepods-besteffort.slice"
LIMIT_S = 300
EMULATED = """
[loop]
cpu_limit = "60%"
[sources.damon]
cpu_limit = "30%"
[migration]
cpu_limit = "60%"
"""
"""A drop-in beside the shipped configuration: an emulated CPU does about a tenth of a real one's
work, and the default shares of that are too little to see anything move."""
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
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=%(capabilities)s %(command)s
"""
"""As runtimes of containers make it: a root that cannot be written, devices that harm nobody, parts
of /proc hidden or for reading alone. Host paths of the manifest are mounted to be written."""


def tell(event: str, **fields: Any) -> None:
    """Print one event."""
    print(json.dumps({"event": event, **fields}), flush=True)


def listed(pattern: str) -> list[str]:
    """The words of a list of the manifest; there must be one."""
    (found,) = re.findall(pattern, MANIFEST)
    return [word.strip("\"' ") for word in found.split(",")]


def configuration() -> str:
    """`tierd.toml` of the manifest's ConfigMap."""
    (text,) = re.findall(r"^  tierd\.toml: \|\n((?:(?:    .*)?\n)+)", MANIFEST, re.MULTILINE)
    return textwrap.dedent(text)


def group(name: str) -> Path:
    """A container's control group, as kubelet and containerd would name it."""
    made = PODS / f"kubepods-besteffort-pod{name}.slice/cri-containerd-{name}.scope"
    made.mkdir(parents=True)
    return made


@contextlib.contextmanager
def groups() -> Iterator[tuple[Path, Path]]:
    """Those of tierd and of the workload, where memory can be limited; removed at the end."""
    ours, theirs = group("aaaa"), group("bbbb")
    for each in reversed([each for each in ours.parents if each.is_relative_to(CGROUPS)]):
        (each / "cgroup.subtree_control").write_text("+memory")
    (limit,) = re.findall(r"limits: \{ memory: (\d+)Mi \}", MANIFEST)
    (ours / "memory.max").write_text(str(int(limit) << 20))
    yield ours, theirs
    for each in (ours, theirs):
        each.rmdir()
        each.parent.rmdir()
    PODS.rmdir()
    PODS.parent.rmdir()


def started(place: Path, command: list[str], **options: Any) -> subprocess.Popen[str]:
    """A command in a control group from its begin."""
    enter = f"echo $$ >{place}/cgroup.procs && exec " + '"$@"'
    return subprocess.Popen(["sh", "-c", enter, "sh", *command], text=True, **options)


class Pod:
    """tierd in its pod."""

    def __init__(self, place: Path, tierd: str) -> None:
        self.tierd = tierd
        assert re.search(r"seccompProfile:\s+type: Unconfined", MANIFEST)
        assert re.search(r"appArmorProfile:\s+type: Unconfined", MANIFEST)
        host = re.findall(r"hostPath: \{ path: (\S+),", MANIFEST)
        mounted = dict(re.findall(r"\{ name: (\w+), mountPath: ([^ ,]+)", MANIFEST))
        assert set(host) == set(mounted.values()) - {mounted["config"]}
        for each in host:
            Path(each).mkdir(parents=True, exist_ok=True)
        Path("/etc/tierd").mkdir(exist_ok=True)
        config = Path("/run/pod-config")
        config.mkdir(exist_ok=True)
        (config / "tierd.toml").write_text(configuration())
        (config / "conf.d").mkdir(exist_ok=True)
        (config / "conf.d/emulated.toml").write_text(EMULATED)
        names = (name.lower() for name in listed(r"add: \[(.*)\]"))
        script = INSIDE % {
            "host": " ".join(host),
            "config": config,
            "capabilities": "-all," + ",".join(f"+{name}" for name in names),
            "command": " ".join([tierd, *listed(r"args: \[(.*)\]")]),
        }
        # hostPID and hostNetwork: of these two it has no namespace of its own.
        spaces = ["unshare", "--mount", "--cgroup", "--ipc", "--uts"]
        command = [*spaces, "bash", "-euc", script]
        self.process = started(place, command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log += (line.rstrip() for line in self.process.stderr)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of tierd in the pod, as a liveness probe runs it."""
        enter = ["nsenter", "--target", str(self.process.pid), "--mount", "--cgroup", "--ipc"]
        return subprocess.run(
            [*enter, self.tierd, *arguments], capture_output=True, text=True, check=False
        )

    def stop(self) -> int:
        """SIGTERM, as kubelet sends it; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=30)  # terminationGracePeriodSeconds
        self._reader.join(10)
        return status


def metrics() -> list[str]:
    """What Prometheus would read from the host's address."""
    (port,) = re.findall(r"containerPort: (\d+)", MANIFEST)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return [line for line in text.splitlines() if re.match(r"tierd_(targets|migrat)", line)]


def main() -> int:
    """Run all of it; 0 if the service served the other pod and left nothing behind."""
    parser = argparse.ArgumentParser()
    for name in ("hotset", "tlbtick", "tierd"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    # Else the kernel may move the hot pages first.
    Path("/proc/sys/kernel/numa_balancing").write_text("0")
    hotset = [args.hotset, "--size", "120M", "--seconds", "100000", "--rate", "100000"]
    hotset += ["--fast-node", "0", "--slow-node", "1", "--interval", "1"]
    spaces = ["unshare", "--mount", "--cgroup", "--pid", "--fork", "--kill-child=TERM"]
    with groups() as (ours, theirs), contextlib.ExitStack() as stack:
        pod = Pod(ours, args.tierd)
        stack.callback(pod.process.kill)
        work = started(theirs, [*spaces, *hotset], stdout=subprocess.PIPE)
        stack.callback(work.kill)
        assert work.stdout is not None
        reports = (json.loads(line) for line in work.stdout)
        tell("begun", near=next(reports)["hot_on_node"].get("0", 0.0))
        end = time.monotonic() + LIMIT_S
        while not any("event=source_selected" in line for line in list(pod.log)):
            assert pod.process.poll() is None, pod.log
            assert time.monotonic() < end, pod.log
            next(reports)
        tick = subprocess.Popen([args.tlbtick, "4000"])
        stack.callback(tick.kill)
        near = 0.0
        while near < 0.5 and time.monotonic() < end and pod.process.poll() is None:
            near = next(reports)["hot_on_node"].get("0", 0.0)
        tick.kill()
        tell("served", near=near, log=pod.log)
        doctor, status = pod.run("doctor", "--json"), pod.run("status", "--json")
        tell("doctor", status=doctor.returncode, told=doctor.stdout, errors=doctor.stderr)
        tell("status", status=status.returncode, told=status.stdout, errors=status.stderr)
        tell("metrics", lines=metrics())
        confined = Path(f"/proc/{pod.process.pid}/status").read_text()
        tell("confined", lines=re.findall(r"^(?:NoNewPrivs|CapBnd|CapPrm):.*$", confined, re.M),
             group=Path(f"/proc/{pod.process.pid}/cgroup").read_text().strip())  # fmt: skip
        tell("stopped", status=pod.stop(), log=pod.log)
        os.kill(_child(work.pid), signal.SIGTERM)
        *_, last = reports
        work.wait()
        tell("end", checksum_ok=last["checksum_ok"])
    return 0


def _child(pid: int) -> int:
    """The program in a namespace of processes of its own, whose parent is `unshare`."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


if __name__ == "__main__":
    raise SystemExit(main())
