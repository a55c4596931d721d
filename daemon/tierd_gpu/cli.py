# SPDX-License-Identifier: Apache-2.0
"""`tierd gpu`: show GPUs and their links, or serve peer-GPU memory to clients."""

from __future__ import annotations

import argparse
import json
import signal
from pathlib import Path

import numpy as np

from tierd.config.serving import GpuConfig
from tierd.core.errors import ExitCode
from tierd.core.units import format_size
from tierd_gpu import programs
from tierd_gpu.background import harvest_settings, server_settings
from tierd_gpu.links import GpuTopology
from tierd_gpu.nvml import Nvml
from tierd_gpu.service import GpuService

SOCKET = GpuConfig().socket


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd gpu`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="print GPUs, links and the programs that are served")
    show.add_argument("--socket", type=Path, default=SOCKET, help=f"default: {SOCKET}")
    show.add_argument("--json", action="store_true", help="print JSON (docs/operate/gpu.md)")
    serve = actions.add_parser("serve", help="serve clients until told to stop")
    serve.add_argument("--socket", type=Path, default=SOCKET, help=f"default: {SOCKET}")
    serve.add_argument(
        "--user", type=int, action="append", default=[], metavar="UID",
        help="a user that may connect, beside the daemon's own; may be repeated",
    )  # fmt: skip
    serve.add_argument(
        "--group", type=int, action="append", default=[], metavar="GID",
        help="a group that may connect; may be repeated",
    )  # fmt: skip
    serve.add_argument(
        "--durable", action=argparse.BooleanOptionalAction, default=True,
        help="keep nothing on neighbours, so that a lost GPU loses nothing (the default); "
        "without, borrowers gain more and a lost GPU takes a bounded amount with it",
    )  # fmt: skip
    serve.add_argument(
        "--in-place", action=argparse.BooleanOptionalAction, default=True,
        help="kernels read what is away where it is (the default); without, they fault it home",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Show or serve; returns the exit code."""
    with Nvml() as nvml:
        topology = nvml.topology()
        if args.action == "show":
            return show(topology, nvml.free_bytes(), programs.ask(args.socket), args.json)
        config = GpuConfig(
            socket=args.socket, users=tuple(args.user), groups=tuple(args.group),
            durable=args.durable, in_place=args.in_place,
        )  # fmt: skip
        settings = server_settings(config), harvest_settings(config)
        return serve(GpuService(topology, nvml, *settings))


def show(
    topology: GpuTopology, free: list[int | None], served: list[np.void] | str, json_: bool
) -> int:
    """Print GPUs, links, and the programs that a daemon serves or why none are known."""
    known = [] if isinstance(served, str) else served
    if json_:
        whole = as_json(topology, free) | {"programs": [programs.as_json(row) for row in known]}
        if isinstance(served, str):
            whole["no_programs"] = served
        print(json.dumps(whole, indent=2))
    else:
        tail = f"{served}\n" if isinstance(served, str) else programs.as_text(known)
        print(as_text(topology, free) + tail, end="")
    return ExitCode.OK


def serve(service: GpuService) -> int:
    """Run until SIGINT or SIGTERM."""
    stop = False

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal stop
        stop = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    try:
        while not stop:
            service.step()
    finally:
        service.close()
    return ExitCode.OK


def as_json(topology: GpuTopology, free: list[int | None]) -> dict[str, object]:
    """The topology as JSON: bytes, bytes per second, -1 for the host."""
    count = len(topology.gpus)
    return {
        "gpus": [
            {
                "gpu": gpu.index,
                "name": gpu.name,
                "uuid": gpu.uuid.hex(),
                "memory_bytes": gpu.total_bytes,
                "free_bytes": free[gpu.index],
                "pci_bus": gpu.pci_bus,
                "numa_node": gpu.numa_node,
            }
            for gpu in topology.gpus
        ],
        "links": [
            {
                "from": a if a < count else -1,
                "to": b if b < count else -1,
                "bytes_per_s": float(topology.bytes_per_s[a, b]),
                "nvlinks": int(topology.nvlinks[a, b]) if a < count and b < count else 0,
            }
            for a in range(count + 1)
            for b in range(count + 1)
            if a != b
        ],
        "notes": list(topology.notes),
    }


def as_text(topology: GpuTopology, free: list[int | None]) -> str:
    """The topology for people: one line a GPU, then GB/s from row to column."""
    lines = []
    for gpu in topology.gpus:
        left = free[gpu.index]
        state = "lost" if left is None else f"{format_size(left)} free"
        node = "" if gpu.numa_node is None else f", NUMA node {gpu.numa_node}"
        lines.append(f"gpu {gpu.index}: {gpu.name}, {format_size(gpu.total_bytes)}, {state}{node}")
    lines += [] if topology.gpus else ["no GPU can be served"]
    names = [f"gpu{gpu.index}" for gpu in topology.gpus] + ["host"]
    lines.append("GB/s  " + " ".join(f"{name:>6}" for name in names))
    for a, name in enumerate(names):
        row = [
            "     -" if a == b else f"{topology.bytes_per_s[a, b] / 1e9:6.1f}"
            for b in range(len(names))
        ]
        lines.append(f"{name:5} " + " ".join(row))
    lines += [f"note: {note}" for note in topology.notes]
    return "\n".join(lines) + "\n"
