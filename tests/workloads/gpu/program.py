# SPDX-License-Identifier: Apache-2.0
"""An unmodified program: what PyTorch asked of the driver, asked again.

    python program.py TRACE [--steps N] [--scale N]

Speaks CUDA's driver interface alone (libcuda.so.1 by name), so that whatever is preloaded
sees the calls of a program that knows nothing of tierd. A trace (folder traces/) was
recorded on a real GPU: `a ID BYTES` allocates, `f ID` frees, `k ID:OFFSET ...` launches a
kernel with those addresses in its parameters (offsets in units of 512 bytes,
hexadecimal), and what follows `s` is one step, repeated. Kernels are the stand-in
driver's: an operand reaches from its address to the next one that the trace knows in its
allocation; all are read, each block compared with what was last written, and the last is
written. Answers each line of standard input with `steps, blocks found wrong`.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import sys
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

BLOCK = 2 << 20
UNIT = 512


class Operand(ctypes.Structure):
    """`struct fg_operand`."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("addr", "bytes", "write", "value")]


class Driver:
    """The driver library; every call raises RuntimeError on an error."""

    def __init__(self) -> None:
        self.cu = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)
        self.functions: dict[int, ctypes.c_void_p] = {}

    def call(self, name: str, *args: object) -> None:
        """One call."""
        status = getattr(self.cu, name)(*args)
        if status:
            raise RuntimeError(f"{name}: CUDA error {status}")

    def alloc(self, size: int) -> int:
        """The address of new memory."""
        out = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(out), ctypes.c_size_t(size))
        return out.value

    def launch(self, operands: list[Operand], launches: int) -> None:
        """A kernel with these parameters: in turn a function's, a kernel's, and a buffer's."""
        count, how = len(operands), launches % 3
        kernel = self.functions.get(count * 2 + (how == 1))
        if kernel is None:
            kernel = ctypes.c_void_p()
            name = f"operands{count}".encode()
            get = "cuLibraryGetKernel" if how == 1 else "cuModuleGetFunction"
            self.call(get, ctypes.byref(kernel), None, name)
            self.functions[count * 2 + (how == 1)] = kernel
        params, extra = None, None
        if how == 2:
            buffer = (Operand * count)(*operands)
            size = ctypes.c_size_t(ctypes.sizeof(buffer))
            extra = (ctypes.c_void_p * 5)(
                1, ctypes.addressof(buffer), 2, ctypes.addressof(size), None
            )
        else:
            params = (ctypes.c_void_p * count)(*[ctypes.addressof(o) for o in operands])
        self.call("cuLaunchKernel", kernel, *[1] * 6, 0, None, params, extra)


class Program:
    """The trace's memory, and what its blocks hold."""

    def __init__(self, trace: list[str]) -> None:
        self.driver = Driver()
        at = trace.index("s")
        self.start, self.step = trace[:at], trace[at + 1 :]
        self.base: dict[int, int] = {}
        self.size = {}
        known: dict[int, set[int]] = defaultdict(set)
        for line in trace:
            kind, *rest = line.split()
            if kind == "a":
                self.size[int(rest[0])] = int(rest[1])
            elif kind == "k":
                for part in rest:
                    known[int(part.split(":")[0])].add(int(part.split(":")[1], 16) * UNIT)
        self.known = {name: sorted(offsets) for name, offsets in known.items()}
        self.value: dict[int, int] = {}
        """By block: the value it was filled from."""
        self.launches = 0

    def span(self, part: str) -> tuple[int, int]:
        """Address and bytes of an operand."""
        name, offset = int(part.split(":", maxsplit=1)[0]), int(part.split(":")[1], 16) * UNIT
        known = self.known[name]
        after = bisect_right(known, offset)
        end = known[after] if after < len(known) else self.size[name]
        return self.base[name] + offset, max(min(end, self.size[name]) - offset, UNIT)

    def reads(self, addr: int, size: int) -> list[Operand]:
        """Operands that compare: one for each run of blocks with the same contents."""
        out: list[Operand] = []
        end = addr + size
        while addr < end:
            value = self.value.get(addr // BLOCK, 0)
            stop = min((addr // BLOCK + 1) * BLOCK, end)
            while stop < end and self.value.get(stop // BLOCK, 0) == value:
                stop = min(stop + BLOCK, end)
            out.append(Operand(addr, stop - addr, 0, value))
            addr = stop
        return out

    def kernel(self, parts: list[str]) -> None:
        """Reads its operands, writes the last."""
        operands: list[Operand] = []
        for part in parts:
            operands += self.reads(*self.span(part))
        addr, size = self.span(parts[-1])
        self.launches += 1
        operands.append(Operand(addr, size, 1, self.launches))
        for block in range(addr // BLOCK, (addr + size - 1) // BLOCK + 1):
            self.value[block] = self.launches
        self.driver.launch(operands[-500:], self.launches)

    def run(self, lines: list[str]) -> None:
        """Do what the lines say."""
        for line in lines:
            kind, *rest = line.split()
            if kind == "a":
                self.base[int(rest[0])] = self.driver.alloc(int(rest[1]))
            elif kind == "f":
                self.driver.call("cuMemFree_v2", ctypes.c_uint64(self.base.pop(int(rest[0]))))
            elif rest:
                self.kernel(rest)


def main() -> int:
    """Start, then a step for every line asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    args = parser.parse_args()
    with gzip.open(args.trace, "rt") as text:
        program = Program(text.read().splitlines())
    wrong = program.driver.cu.fg_wrong_reads
    wrong.restype = ctypes.c_uint64
    program.run(program.start)
    print("started", flush=True)
    steps = 0
    for request in sys.stdin:
        for _ in range(int(request)):
            program.run(program.step)
            steps += 1
        print(steps, wrong(), flush=True)
    return int(wrong() != 0)


if __name__ == "__main__":
    sys.exit(main())
