# SPDX-License-Identifier: Apache-2.0
"""`tierd-lab`: boot a virtual tiered machine and run something in it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from types import FrameType

from tierd.core.errors import ConfigError, ExitCode, exit_code_of
from tierd.core.units import format_size, parse_duration_ns
from tierd_lab import LabResult, Machine, Share, host, machine_files, run_shell
from tierd_lab import run as run_in_guest
from tierd_lab.machine import check_icount

HELP = "boot a virtual tiered machine and run a command in it"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the lab; returns its exit code."""
    parser = argparse.ArgumentParser(prog="tierd-lab", description=HELP)
    add_arguments(parser)
    args = parser.parse_args(argv)
    return exit_code_of("tierd-lab", lambda: run(args))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands run, shell, machines and kernels."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    runs = actions.add_parser("run", help="boot a machine, run a command, end with its exit status")
    _add_guest_arguments(runs)
    runs.add_argument(
        "--timeout",
        default="10min",
        metavar="TIME",
        help=f"end the guest after TIME, boot included, with exit code {int(ExitCode.TIMEOUT)} "
        "(default: %(default)s)",
    )
    runs.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object about the run as the last line",
    )
    runs.add_argument(
        "--console", action="store_true", help="pass the guest's console on to stderr"
    )
    runs.add_argument(
        "--headers",
        action="store_true",
        help="fail before the boot if the kernel's headers are not installed (modules, BPF)",
    )
    runs.add_argument(
        "words",
        nargs="+",
        metavar="COMMAND",
        help="after --: the command and its arguments; one word alone is a shell line",
    )
    shell = actions.add_parser("shell", help="boot a machine and open a shell in it")
    _add_guest_arguments(shell)
    for name, text in (("machines", "list the machines"), ("kernels", "list the kernels")):
        lists = actions.add_parser(name, help=text)
        lists.add_argument("--json", action="store_true", help="print JSON")


def _add_guest_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine",
        default="dram-cxl",
        metavar="NAME|FILE",
        help="which machine (default: %(default)s; tierd-lab machines lists them)",
    )
    parser.add_argument(
        "--kernel",
        metavar="PATH|VERSION",
        help="which kernel (default: the newest installed; tierd-lab kernels lists them)",
    )
    parser.add_argument(
        "--accel",
        choices=("auto", "kvm", "tcg"),
        default="auto",
        help="what runs the guest (default: KVM where a guest boots with it, else TCG)",
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="set an environment variable for the command, or pass one on",
    )
    parser.add_argument(
        "--share",
        action="append",
        default=[],
        metavar="[GUESTDIR=]DIR",
        help="a folder the guest may write to",
    )
    parser.add_argument("--cwd", metavar="DIR", help="the command's working folder")
    parser.add_argument(
        "--icount",
        type=int,
        metavar="N",
        help="let the guest's clock count instructions, 2**N ns each, and skip its sleeps: runs "
        "repeat on a busy host (one CPU, TCG)",
    )


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    if args.action == "machines":
        return _list_machines(args.json)
    if args.action == "kernels":
        return _list_kernels(args.json)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    machine = _machine(args)
    env = _environment(args.env)
    shares = [Share.parse(text) for text in args.share]
    if args.action == "shell":
        return run_shell(
            machine, kernel=args.kernel, env=env, share=shares, cwd=args.cwd, accel=args.accel
        )
    if args.headers:
        host.require_headers(host.find_kernel(args.kernel))
    result = run_in_guest(
        machine,
        args.words[0] if len(args.words) == 1 else args.words,
        kernel=args.kernel,
        timeout_s=_timeout_s(args.timeout),
        env=env,
        share=shares,
        cwd=args.cwd,
        accel=args.accel,
        on_output=_pass_console if args.console else _pass_output,
    )
    return _report(result, args.json, args.timeout)


def _machine(args: argparse.Namespace) -> Machine:
    machine = Machine.load(args.machine)
    if args.icount is None:
        return machine
    check_icount(args.icount, machine.cpu_count, lambda why: ConfigError("--icount", why))
    return replace(machine, icount=args.icount)


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _pass_output(stream: str, data: bytes) -> None:
    if stream != "console":
        _write(1 if stream == "stdout" else 2, data)


def _pass_console(stream: str, data: bytes) -> None:
    _write(1 if stream == "stdout" else 2, data)


def _report(result: LabResult, as_json: bool, timeout: str) -> int:
    if as_json:
        print(json.dumps(result.as_dict()), flush=True)
    if result.timed_out:
        stage = "booting" if result.boot_s is None else "running the command"
        print(f"tierd-lab: the guest was ended after {timeout}, {stage}", file=sys.stderr)
        return int(ExitCode.TIMEOUT)
    boot = "" if result.boot_s is None else f"booted in {result.boot_s:.1f} s, "
    reason = textwrap.shorten(result.accelerator_reason, 90)
    print(
        f"tierd-lab: {result.machine}, kernel {result.kernel}, {result.accelerator} "
        f"({reason}), {boot}exit status {result.exit_status}",
        file=sys.stderr,
    )
    return result.exit_status if result.exit_status is not None else int(ExitCode.FAILURE)


def _timeout_s(text: str) -> float:
    try:
        seconds = parse_duration_ns(text) / 1e9
    except ValueError as error:
        raise ConfigError("--timeout", str(error)) from error
    if seconds <= 0:
        raise ConfigError("--timeout", "must be longer than nothing")
    return seconds


def _environment(settings: list[str]) -> dict[str, str]:
    env = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name.isidentifier() and name.isascii()):
            raise ConfigError("--env", f"{name!r} is not the name of an environment variable")
        if not equals and name not in os.environ:
            raise ConfigError("--env", f"{name} is not set here; write {name}=VALUE")
        env[name] = value if equals else os.environ[name]
    return env


def _list_machines(as_json: bool) -> int:
    machines = [Machine.load(path) for path in machine_files().values()]
    if as_json:
        print(json.dumps([_machine_dict(machine) for machine in machines], indent=2))
        return int(ExitCode.OK)
    for machine in machines:
        counted = "" if machine.icount is None else f" (icount {machine.icount})"
        print(f"{machine.name}: {machine.description}{counted}")
        for number, node in enumerate(machine.nodes):
            cpus = ",".join(map(str, node.cpus)) or "none"
            line = f"  node {number}: {node.kind:4} {format_size(node.size_bytes):>9}  CPUs {cpus}"
            if node.latency_ns:
                rate = format_size(node.bandwidth_bytes_per_s[node.initiator])
                line += f"  {node.latency_ns[node.initiator]} ns  {rate}/s"
            print(line)
        for card in machine.cards:
            size, offset = format_size(card.size_bytes), format_size(card.offset_bytes)
            print(f"  card:   {card.kind} in front of {size} of node {card.node} from {offset} on")
    return int(ExitCode.OK)


def _machine_dict(machine: Machine) -> dict[str, object]:
    return {
        "name": machine.name,
        "description": machine.description,
        "file": str(machine.file),
        "nodes": [
            {
                "kind": node.kind.value,
                "size_bytes": node.size_bytes,
                "cpus": list(node.cpus),
                "initiator": node.initiator,
                "latency_ns": dict(node.latency_ns),
                "bandwidth_bytes_per_s": dict(node.bandwidth_bytes_per_s),
            }
            for node in machine.nodes
        ],
        "distances": [list(row) for row in machine.distances],
        "icount": machine.icount,
        "cards": [asdict(card) for card in machine.cards],
    }


def _list_kernels(as_json: bool) -> int:
    kernels = host.kernels()
    if as_json:
        rows = [
            {"version": kernel.version, "image": str(kernel.image), "headers": kernel.headers}
            for kernel in kernels
        ]
        print(json.dumps(rows, indent=2))
        return int(ExitCode.OK)
    for kernel in kernels:
        note = (
            "" if kernel.headers else f"  (no headers: apt install linux-headers-{kernel.version})"
        )
        print(f"{kernel.version}  {kernel.image}{note}")
    if not kernels:
        host.find_kernel()
    return int(ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
