# SPDX-License-Identifier: Apache-2.0
"""What tierd relies on, checked and measured on the GPU of this machine.

    make -C daemon/native/gpu && python3 tests/bench/gpu [--out FILE] [--only PART,...]

Parts, each with a limit of its own, each line printed as it is known (JSON):

    driver    rules and costs of managed memory (managed.py); needs the driver alone
    kernels   moves under kernels, faults, use in place, capture, launches (needs nvcc)
    counters  what CUPTI tells of moves, faults and evictions, and its cost (needs nvcc)
    torch     PyTorch plain, under `lend`, under `borrow` (needs torch)
    served    PyTorch and launches under `borrow` with a daemon that thinks the GPU small
    reclaim   other processes' allocations against managed memory; last

All managed memory stays below what is free; `reclaim` alone makes the driver evict. Two
GPUs or more are needed for what is not here: peers, links, leases, revocation. Exits with
1 if a line says `"holds": false`, with 5 where there is no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpu_lines import Report  # noqa: E402

TOP = HERE.parents[2]
SHIM = TOP / "build/gpu/libtierd-gpu-preload.so"
UNAVAILABLE = 5
MIB = 1 << 20


def driver_lines(report: Report, path: str, size: int, risky: bool) -> None:
    """The lines of managed.py, each caught."""
    import managed
    from driver import Cuda

    cuda = Cuda(path)
    report_of = {
        "machine": lambda: managed.machine(cuda),
        "batch": lambda: managed.batch(cuda),
        "retained": lambda: managed.retained(cuda, size),
        "aligned": lambda: managed.aligned(cuda),
        "calls": lambda: managed.calls(cuda),
        "rates": lambda: managed.rates(cuda, size),
        "beside": lambda: managed.beside(cuda),
        "context": lambda: managed.context(cuda, path),
        "shared": lambda: managed.shared(cuda),
        "cleared": lambda: managed.cleared(cuda, path),
    }
    if risky:
        report_of = {
            "room": lambda: managed.room(cuda, path, size),
            "reclaim": lambda: managed.reclaim(cuda, path, size // 2),
        }
    for step, measure in report_of.items():
        try:
            line = measure()
        except Exception as error:
            line = {"error": str(error)[:300], "holds": False}
        report.say("driver", {"step": step, **line})


def driver_part(report: Report, args: argparse.Namespace, part: str) -> None:
    """managed.py in a process of its own: a driver that hangs ends with its limit."""
    command = [sys.executable, str(HERE), "--in-process", part, "--driver", args.driver,
               "--mib", str(args.mib)]  # fmt: skip
    report.run(part, command, 150)


@contextlib.contextmanager
def served(report: Report, mib: int) -> Iterator[dict[str, str]]:
    """The environment of programs that a daemon serves; its own lines at the end."""
    with tempfile.TemporaryDirectory() as folder:
        socket = str(Path(folder) / "gpu.sock")
        daemon = subprocess.Popen(
            [sys.executable, str(HERE / "served.py"), socket, str(mib)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert daemon.stdout is not None
        ready = daemon.stdout.readline().strip() == "ready"
        report.say("served", {"step": "daemon", "holds": ready})
        yield {"LD_PRELOAD": str(SHIM), "TIERD_GPU": "borrow", "TIERD_GPU_SOCKET": socket}
        try:
            out, _ = daemon.communicate("", timeout=30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            out, _ = daemon.communicate()
        for text in out.splitlines():
            report.say("served", json.loads(text))


def shim(mode: str) -> dict[str, str]:
    """The environment of a program under the shim without a daemon."""
    if mode in ("none", "again"):  # twice: equal losses mean something then
        return {}
    return {"LD_PRELOAD": str(SHIM), "TIERD_GPU": mode, "TIERD_GPU_SOCKET": "/nonexistent"}


def build(report: Report, name: str) -> Path | None:
    """kernels.cu or counters.cu, compiled; None where nvcc is not."""
    if not shutil.which("nvcc"):
        report.say(name, {"step": "skipped", "why": "nvcc is not here"})
        return None
    out = TOP / "build/gpu" / name
    out.parent.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["nvcc", "-O2", "-std=c++17", "-arch=native", "-o", str(out), str(HERE / f"{name}.cu")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        report.say(name, {"step": "build", "said": made.stderr[-300:], "holds": False})
        return None
    return out


def main() -> int:
    """All parts."""
    parser = argparse.ArgumentParser(
        prog="python3 tests/bench/gpu", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--driver", default="libcuda.so.1")
    parser.add_argument("--mib", type=int, default=512, help="managed memory to move")
    parser.add_argument("--small-mib", type=int, default=2560, help="the GPU of part served")
    parser.add_argument("--steps", type=int, default=40, help="of training")
    parser.add_argument("--only", default="driver,kernels,counters,torch,served,reclaim")
    parser.add_argument("--out", type=Path, help="the lines, as a file too")
    parser.add_argument("--in-process", help=argparse.SUPPRESS)
    args = parser.parse_args()
    report = Report(args.out)
    if args.in_process:
        driver_lines(report, args.driver, args.mib * MIB, args.in_process == "reclaim")
        return 0
    from driver import Cuda, NoGpuError

    try:
        Cuda(args.driver)
    except NoGpuError as error:
        print(f"no GPU here: {error}; nothing was measured")
        return UNAVAILABLE
    parts = args.only.split(",")
    if {"torch", "served"} & set(parts) and not SHIM.is_file():
        print(f"{SHIM} is not there: make -C daemon/native/gpu builds it", file=sys.stderr)
        return 2
    if "driver" in parts:
        driver_part(report, args, "driver")
    kernels = build(report, "kernels") if {"kernels", "served"} & set(parts) else None
    if kernels and "kernels" in parts:
        report.run("kernels", [str(kernels)], 60)
    counters = build(report, "counters") if "counters" in parts else None
    for mode in ("off", "on") if counters else ():
        report.run("counters", [str(counters), mode], 40)
    training = [sys.executable, str(HERE / "training.py"), "--steps", str(args.steps)]
    if "torch" in parts:
        for mode in ("none", "again", "lend", "borrow"):
            report.run(f"torch {mode}", training, 90, **shim(mode))
    if "served" in parts:
        with served(report, args.small_mib) as environment:
            report.run("served", [*training, "--only", "train,graph"], 120, **environment)
            if kernels:
                report.run("served", [str(kernels), "launches"], 30, **environment)
    if "reclaim" in parts:
        driver_part(report, args, "reclaim")
    for broken in report.broken:
        print(f"does not hold: {broken}", file=sys.stderr)
    return int(bool(report.broken))


if __name__ == "__main__":
    sys.exit(main())
