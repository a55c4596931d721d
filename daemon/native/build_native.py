# SPDX-License-Identifier: Apache-2.0
"""Describes the extension module `tierd._native` to cffi; setup.py builds it."""

from __future__ import annotations

from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
SOURCES = (
    "agent.c",
    "agent_calls.c",
    "agent_pool.c",
    "agent_wait.c",
    "batch.c",
    "heat.c",
    "heat_rank.c",
    "heat_select.c",
    "heat_table.c",
    "heat_update.c",
    "idle.c",
    "idle_bitmap.c",
    "idle_calls.c",
    "idle_frames.c",
    "idle_history.c",
    "idle_shared.c",
    "job.c",
    "mover.c",
    "nodes.c",
    "pages.c",
    "probe.c",
    "promote.c",
    "promote_move.c",
    "promote_pick.c",
    "promote_read.c",
    "promote_tap.c",
    "promote_wait.c",
    "records.c",
    "regions.c",
    "rule.c",
    "split.c",
    "sys.c",
)
HEADERS = ("tierd_native.h", "tierd_rule.h", "tierd_promoter.h", "tierd_idle.h")
"""In the order of what they need of each other; the last one includes all."""
UAPI = HERE.parents[1] / "kmod/uapi/tierd.h"
UAPI_NUMBERS = (
    "TIERD_GENL_VERSION",
    "TIERD_MAX_RANGES",
    "TIERD_MAX_NODES",
    "TIERD_HISTORY",
    "TIERD_RING_MAGIC",
    "TIERD_RING_VERSION",
    "TIERD_RING_HEAD",
    "TIERD_RING_DATA",
    "TIERD_IOC_KINDS",
    "TIERD_CARD_BINS",
)
"""Macros of the module's header that Python reads; the compiler fills in their values."""
CFLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")


def declarations() -> str:
    """The headers without their preprocessor lines, which cffi cannot read."""
    text = "".join((HERE / name).read_text(encoding="utf-8") for name in HEADERS)
    plain = [line for line in text.splitlines() if not line.startswith("#")]
    return "\n".join([*plain, *(f"#define {name} ..." for name in UAPI_NUMBERS)])


def make_ffi() -> cffi.FFI:
    """The module's description, with source paths relative to the project's root."""
    root = HERE.parent.parent
    builder = cffi.FFI()
    builder.cdef(declarations())
    builder.set_source(
        "tierd._native",
        f'#include "{HEADERS[-1]}"\n#include "{UAPI.name}"',
        sources=[str((HERE / name).relative_to(root)) for name in SOURCES],
        depends=[str(path.relative_to(root)) for path in (*sorted(HERE.glob("*.h")), UAPI)],
        include_dirs=[str(HERE.relative_to(root)), str(UAPI.parent.relative_to(root))],
        # What cffi generates is not ours to keep free of these two.
        extra_compile_args=[*CFLAGS, "-Wno-unused-function", "-Wno-unused-parameter"],
        libraries=["m"],
    )
    return builder


ffi = make_ffi()
