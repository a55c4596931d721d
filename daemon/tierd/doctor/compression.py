# SPDX-License-Identifier: Apache-2.0
"""Probe: what paging out cold memory would free (`[page_out]`), by samples of programs' memory."""

from __future__ import annotations

import contextlib
import re
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from tierd.core.access import Availability
from tierd.core.bounds import PAGE_OUT_PAGES
from tierd.core.errors import NotAnsweringError, TargetGoneError, UnavailableError
from tierd.core.pagekey import PAGE_SIZE
from tierd.doctor.findings import CannotTellError, Group, Host, probe
from tierd.topology import swap
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.content import compressed_fraction, page_states
from tierd.workloads.mappings import parse_maps

GIB: Final = 1 << 30
PROCESSES: Final = 16
"""The largest ones, of which pages are read."""
SAMPLES: Final = 16
"""Of each process; it is one page each."""
_RSS_ANON: Final = re.compile(r"^RssAnon:\s*(\d+) kB$", re.MULTILINE)


@probe("page_out", Group.HOST, "paging out cold memory", live=True)
def page_out(host: Host) -> Availability:
    """Where cold memory could go, and how much of each GiB that would free."""
    held = {pid: _anonymous_bytes(host, pid) for pid in host.processes}
    largest = sorted(held, key=lambda pid: held[pid])[-PROCESSES:]
    weights, kept = [], []
    with contextlib.closing(BoundedReads()) as reads:
        for pid in largest:
            try:
                found = reads.one(pid, None, partial(_compressed, pid))
            except (TargetGoneError, NotAnsweringError, UnavailableError, OSError):
                continue
            if found is not None:
                weights.append(held[pid])
                kept.append(found)
    if not kept:
        raise CannotTellError("no memory of another process could be read")
    left = float(np.average(kept, weights=weights))
    gain = (
        f"programs hold {sum(held.values()) / GIB:.1f} GiB of anonymous memory; by samples of "
        f"{len(kept)} of them, each GiB of it that is cold would free {1 - left:.2f} GiB"
    )
    room, full = swap.space(True, host.root)
    if full:
        return Availability(False, f"{full}; {gain}", "docs/operate/page-out.md sets up zram")
    return Availability(True, f"swap takes {room / GIB:.1f} GiB; {gain} ([page_out])")


def _anonymous_bytes(host: Host, pid: int) -> int:
    found = _RSS_ANON.search(host.tree.text(f"proc/{pid}/status") or "")
    return int(found[1]) << 10 if found else 0


def _compressed(pid: int) -> float | None:
    """What is left of a sample of a process' anonymous memory; None where none was met.

    Raises:
        TargetGoneError, UnavailableError, OSError: it cannot be read.
    """
    random = Random(pid)
    maps = parse_maps(Path(f"/proc/{pid}/maps").read_bytes())
    size = (maps.end - maps.start) * (maps.reason == "")
    if not size.any():
        return None
    sizes = size.tolist()
    starts = maps.start.tolist()
    sample = []
    for which in random.choices(range(len(sizes)), sizes, k=SAMPLES):
        pages = sizes[which] // PAGE_SIZE
        count = min(pages, PAGE_OUT_PAGES)
        first = starts[which] // PAGE_SIZE + random.randint(0, pages - count)
        own = np.flatnonzero(page_states(pid, first, count).own)
        if len(own):
            sample.append(first + int(random.choice(own)))
    return compressed_fraction(pid, sample) if sample else None
