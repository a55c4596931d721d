# SPDX-License-Identifier: Apache-2.0
"""The mover's C code built against a fake kernel with a clock of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from tierd.core.migration import Fate
from tierd.migration.executor import tuning_of_mover

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[2] / "daemon" / "native"
FIRST_PAGE = 0x1000


def declarations(path: Path) -> str:
    """A header without what cffi cannot read."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


MOVER = ("mover.c", "job.c", "batch.c")
PROMOTER = (
    *MOVER,
    "promote.c",
    "promote_move.c",
    "promote_pick.c",
    "promote_read.c",
    "promote_tap.c",
    "promote_wait.c",
    "rule.c",
)


def build(folder: Path, *, promoter: bool = False) -> Any:
    """Compile, with the sanitizer for undefined behaviour that traps; the module.

    With `promoter` the promoter as well, which works with the mover.
    """
    name = "fake_promoter_native" if promoter else "fake_kernel_native"
    builder = cffi.FFI()
    text = declarations(NATIVE / "tierd_native.h")
    start, end = text.index("/* ---- mover"), text.index("/* ---- where pages are")
    builder.cdef(text[text.index("/* Pages [start") : text.index("/* ---- heat")])
    builder.cdef(text[start:end])
    if promoter:
        builder.cdef(declarations(NATIVE / "tierd_rule.h"))
        builder.cdef(declarations(NATIVE / "tierd_promoter.h"))
    builder.cdef(declarations(HERE / "fake_sys.h"))
    builder.set_source(
        name,
        '#include "tierd_promoter.h"\n#include "fake_sys.h"',
        sources=[
            *(str(NATIVE / name) for name in (PROMOTER if promoter else MOVER)),
            str(HERE / "fake_sys.c"),
        ],
        include_dirs=[str(NATIVE), str(HERE), str(HERE.parents[2] / "kmod/uapi")],
        extra_compile_args=[
            "-std=c11",
            "-O1",
            "-fsanitize=undefined",
            "-fsanitize-undefined-trap-on-error",
        ],
    )
    built = builder.compile(tmpdir=str(folder))
    spec = importlib.util.spec_from_file_location(name, built)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Run:
    """One job on the fake kernel, and what became of it."""

    def __init__(
        self,
        native: Any,
        page: list[int],
        dest: list[int],
        *,
        rate: int = 10**12,
        burst: int = 10**12,
        retries: int = 3,
        cpu_share: float = 1.0,
        stop_ns: int | None = None,
        source: list[int] | None = None,
    ) -> None:
        ffi, lib = native.ffi, native.lib
        made = ffi.new("struct tierd_mover **")
        tuning = tuning_of_mover(ffi)
        assert lib.tierd_mover_new(rate, burst, retries, cpu_share, tuning, made) == 0
        mover = ffi.gc(made[0], lib.tierd_mover_free)
        if stop_ns is not None:
            lib.fake_stop_at(mover, lib.fake_now() + stop_ns)
        n = len(page)
        keys = np.array(page, np.uint64) + np.uint64(FIRST_PAGE)
        self.fate = np.zeros(n, np.uint8)
        self.node = np.full(n, -7, np.int16)
        known = [lib.fake_node(each) for each in page]
        arrays = {
            "page": ("uint64_t[]", keys),
            "order": ("uint8_t[]", np.zeros(n, np.uint8)),
            "source": ("int16_t[]", np.array(source or known, np.int16)),
            "dest": ("int16_t[]", np.array(dest, np.int16)),
            "fate": ("uint8_t[]", self.fate),
            "node": ("int16_t[]", self.node),
            "tries": ("uint8_t[]", np.zeros(n, np.uint8)),
        }
        job = ffi.new("struct tierd_job *")
        keep = [ffi.from_buffer(kind, values) for kind, values in arrays.values()]
        for name, view in zip(arrays, keep, strict=True):
            setattr(job, name, view)
        process = ffi.new("struct tierd_process[]", [(0, 1, 1)])
        job.n, job.process, job.processes = n, process, 1
        self.start_ns = lib.fake_now()
        self.slices = 1
        while lib.tierd_mover_run(mover, job, 50_000_000) == 1:
            self.slices += 1
        self.duration_ns = lib.fake_now() - self.start_ns
        self.moved_bytes = job.moved_bytes
        self.retries = job.retries
        self.calls = job.calls
        self.cpu_ns = job.cpu_ns
        self.longest_call_ns = job.longest_call_ns
        calls = np.empty((lib.TIERD_MOVE_CALLS, 2), np.int64)
        dropped, buffer = ffi.new("uint64_t *"), ffi.from_buffer("struct tierd_move_call[]", calls)
        self.kept = calls[: lib.tierd_mover_take_calls(mover, buffer, dropped)]
        """Calls that the mover kept, int64[n, 2]: ns and pages."""
        self.dropped = int(dropped[0])
        assert lib.tierd_mover_take_calls(mover, buffer, dropped) == 0
        self.errors = {each: job.errors[each] for each in range(256) if job.errors[each]}

    def fates(self) -> dict[str, int]:
        """Folios by name of their fate."""
        values, counts = np.unique(self.fate, return_counts=True)
        return {Fate(int(each)).name: int(n) for each, n in zip(values, counts, strict=True)}
