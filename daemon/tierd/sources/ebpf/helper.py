# SPDX-License-Identifier: Apache-2.0
"""The helper: compiles or opens one BPF program, loads it, hands it over, and ends.

It runs as a process of its own (`python -m tierd.sources.ebpf.helper`), because LLVM takes some
180 MiB that the service must not keep. It reads a request, JSON, from its standard
input and writes an answer, one line of JSON, to its standard output; what compilers and
libraries say goes to its standard error. Descriptors of maps and programs are sent through a Unix
socket, so that nothing is left in the kernel when one side dies.

This module must run under a bare system Python: the standard library and bcc only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

from tierd.core import linux

_INCLUDE: Final = re.compile(r'^#include "([\w.]+)"$')
LIBBPF: Final = ("libbpf.so.1", "libbpf.so.0")


class HelperError(Exception):
    """What was tried and found, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def paste_includes(source: Path, seen: set[str] | None = None) -> str:
    """A program's text with its own (quoted) headers pasted in, each once.

    bcc rewrites map calls in the main text only, never in included files.
    """
    seen = set() if seen is None else seen
    lines = []
    for line in source.read_text().splitlines():
        match = _INCLUDE.match(line)
        if match is None:
            lines.append(line)
        elif match[1] not in seen:
            seen.add(match[1])
            lines.append(paste_includes(source.with_name(match[1]), seen))
    return "\n".join(lines)


def load_with_bcc(request: dict[str, Any]) -> tuple[dict[str, int], dict[str, int], object]:
    """(maps, programs, what must stay alive): compile with bcc, load with the kernel."""
    for name, value in request["environment"].items():
        os.environ[name] = value
    try:
        from bcc import BPF, lib
    except ImportError as error:
        raise HelperError(f"bcc cannot be imported: {error}", "install python3-bpfcc") from error
    flags = ["-DTIERD_BCC", "-w", *request["flags"]]
    flags += [f"-D{name}={value}" for name, value in request["defines"].items()]
    try:
        module = BPF(text=paste_includes(Path(request["source"])), cflags=flags)
    except Exception as error:  # bcc raises bare Exceptions
        raise HelperError(f"bcc cannot compile {request['source']}: {error}") from error
    kinds = {"perf_event": BPF.PERF_EVENT, "kprobe": BPF.KPROBE, "tracepoint": BPF.TRACEPOINT}
    programs = {}
    for name, kind in request["functions"]:
        try:
            programs[name] = int(module.load_func(name, kinds[kind]).fd)
        except Exception as error:
            raise HelperError(f"the kernel refused the program {name}: {error}") from error
    maps = {}
    for name in request["maps"]:
        fd = int(lib.bpf_table_fd(module.module, name.encode()))
        if fd < 0:
            raise HelperError(f"bcc made no map {name} of {request['source']}")
        maps[name] = fd
    return maps, programs, module


def _libbpf() -> ctypes.CDLL:
    for name in LIBBPF:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name, use_errno=True)
    raise HelperError("there is no libbpf", "install libbpf1")


def load_prebuilt(request: dict[str, Any]) -> tuple[dict[str, int], dict[str, int], object]:
    """(maps, programs, what must stay alive): load a compiled object through libbpf."""
    libbpf = _libbpf()
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("bpf_object__open_file", pointer, (text, pointer)),
        ("bpf_object__load", number, (pointer,)),
        ("bpf_object__find_map_by_name", pointer, (pointer, text)),
        ("bpf_object__find_program_by_name", pointer, (pointer, text)),
        ("bpf_object__next_program", pointer, (pointer, pointer)),
        ("bpf_program__name", text, (pointer,)),
        ("bpf_program__set_autoload", number, (pointer, ctypes.c_bool)),
        ("bpf_program__fd", number, (pointer,)),
        ("bpf_map__set_max_entries", number, (pointer, ctypes.c_uint32)),
        ("bpf_map__fd", number, (pointer,)),
    ):
        function = getattr(libbpf, name)
        function.restype, function.argtypes = result, arguments
    path = request["object"]
    handle = libbpf.bpf_object__open_file(os.fsencode(path), None)
    if not handle:
        raise HelperError(f"libbpf cannot open {path}: {os.strerror(ctypes.get_errno())}")
    wanted = {name for name, _ in request["functions"]}
    program = libbpf.bpf_object__next_program(handle, None)
    while program:
        if libbpf.bpf_program__name(program).decode() not in wanted:
            libbpf.bpf_program__set_autoload(program, False)
        program = libbpf.bpf_object__next_program(handle, program)
    found = {
        name: libbpf.bpf_object__find_map_by_name(handle, name.encode()) for name in request["maps"]
    }
    for name, entries in request["maps"].items():
        if not found[name]:
            raise HelperError(f"{path} has no map {name}", "it is of another version: rebuild it")
        if entries:
            libbpf.bpf_map__set_max_entries(found[name], entries)
    result = libbpf.bpf_object__load(handle)
    if result:
        raise HelperError(f"the kernel refused {path}: {os.strerror(-result)}")
    maps = {name: int(libbpf.bpf_map__fd(address)) for name, address in found.items()}
    programs = {}
    for name in sorted(wanted):
        address = libbpf.bpf_object__find_program_by_name(handle, name.encode())
        if not address:
            raise HelperError(f"{path} has no program {name}", "rebuild it")
        programs[name] = int(libbpf.bpf_program__fd(address))
    return maps, programs, libbpf


def hand_over(request: dict[str, Any], maps: dict[str, int], programs: dict[str, int]) -> None:
    """Send the descriptors of everything through the request's socket."""
    named = {f"map_{name}": fd for name, fd in maps.items()}
    named |= {f"prog_{name}": fd for name, fd in programs.items()}
    with socket.socket(fileno=request["socket"]) as channel:
        socket.send_fds(channel, [json.dumps([*named]).encode()], [*named.values()])


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Do what was asked for; the answer."""
    begin = time.monotonic()
    load = load_with_bcc if request["loader"] == "bcc" else load_prebuilt
    maps, programs, keep = load(request)
    hand_over(request, maps, programs)
    del keep
    return {
        "ok": True,
        "seconds": time.monotonic() - begin,
        "peak_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def main() -> int:
    """Read a request, answer it; the exit status is 0 when it was fulfilled."""
    # The service's death ends the helper.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(linux.PR_SET_PDEATHSIG, signal.SIGTERM)
    answer_fd = os.dup(1)
    os.dup2(2, 1)  # what compilers print is no part of the answer
    request = json.load(sys.stdin)
    if os.getppid() != request["owner"]:
        return 1  # it died before prctl took hold
    try:
        answer = serve(request)
    except HelperError as error:
        answer = {"ok": False, "message": str(error), "hint": error.hint}
    except OSError as error:
        answer = {"ok": False, "message": f"{error.strerror}", "hint": ""}
    os.write(answer_fd, json.dumps(answer).encode() + b"\n")
    return 0 if answer["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
