# SPDX-License-Identifier: Apache-2.0
"""Probe: what paging out cold memory would free (`[page_out]`), by samples of programs' memory."""

from __future__ import annotations

import contextlib
import os
import re
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from tierd.core import bounds
from tierd.core.access import Availability
from tierd.core.bounds import PAGE_OUT_PAGES
from tierd.core.errors import TierdError, UnavailableError
from tierd.core.pagekey import PAGE_SIZE
from tierd.core.tuning import PAGE_OUT
from tierd.doctor.findings import Group, Host, probe
from tierd.topology import swap
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.content import compressed_fraction, page_states

GIB: Final = 1 << 30
_RSS_ANON: Final = re.compile(r"^RssAnon:\s*(\d+) kB$", re.MULTILINE)
_MAPPING: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) [^\n]*\n(?:[A-Z][^\n]*\n)*?Anonymous:\s*(\d+) kB$", re.MULTILINE
)
"""Of smaps: start, end and anonymous KiB of a mapping."""


@probe("page_out", Group.HOST, "paging out cold memory", live=True)
def page_out(host: Host) -> Availability:
    """Where cold memory could go, and how much of each GiB that would free."""
    room, full = swap.space(True, host.root)
    gain = _gain(host)
    if full:
        return Availability(False, f"{full}; {gain}", "docs/operate/page-out.md sets up zram")
    return Availability(True, f"swap takes {room / GIB:.1f} GiB; {gain} ([page_out])")


def _gain(host: Host) -> str:
    """What a GiB would free, by samples of the largest processes."""
    held = {pid: _anonymous_bytes(host, pid) for pid in host.processes if pid != os.getpid()}
    largest = sorted((pid for pid in held if held[pid]), key=lambda pid: -held[pid])
    largest = largest[: bounds.SAMPLED_PROCESSES]
    weights, freed = [], []
    with contextlib.closing(BoundedReads(bounds.SAMPLE_S, round_s=bounds.SAMPLES_S)) as reads:
        reads.start_round()
        for pid in largest:
            with contextlib.suppress(TierdError, OSError):
                found = reads.one(pid, None, partial(_freed, pid))
                if found is not None:
                    weights.append(held[pid])
                    freed.append(found)
    if not freed:
        return "what it would free is not known: no memory of other processes could be sampled"
    return (
        f"processes hold some {sum(held.values()) / GIB:.1f} GiB of anonymous memory; by samples "
        f"of {len(freed)} of the {len(largest)} largest, each GiB of it that is "
        f"cold would free about {np.average(freed, weights=weights):.2f} GiB"
    )


def _anonymous_bytes(host: Host, pid: int) -> int:
    found = _RSS_ANON.search(host.tree.text(f"proc/{pid}/status") or "")
    return int(found[1]) << 10 if found else 0


def _freed(pid: int) -> float | None:
    """What a sample of a process' anonymous pages would free, 0 to 1; None where none was met.

    Pages that would stay, as they do not compress well enough, free nothing.

    Raises:
        TierdError, OSError: its mappings cannot be read.
    """
    random = Random(pid)
    mappings = _MAPPING.findall(Path(f"/proc/{pid}/smaps").read_bytes())
    weights = [int(anonymous) for *_, anonymous in mappings]
    if not any(weights):
        return None
    found = []
    for start, end, _ in random.choices(mappings, weights, k=bounds.SAMPLES):
        first, pages = int(start, 16) // PAGE_SIZE, (int(end, 16) - int(start, 16)) // PAGE_SIZE
        first += random.randint(0, max(0, pages - PAGE_OUT_PAGES))
        own = np.flatnonzero(page_states(pid, first, min(pages, PAGE_OUT_PAGES)).own)
        if len(own):
            with contextlib.suppress(UnavailableError):  # that page has gone
                kept = compressed_fraction(pid, [first + int(random.choice(own))])
                found.append(1 - kept if kept <= PAGE_OUT.most_compressed else 0.0)
    return sum(found) / len(found) if found else None
