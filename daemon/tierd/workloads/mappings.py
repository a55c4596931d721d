# SPDX-License-Identifier: Apache-2.0
"""Which mappings of a process may be moved, and why the others may not: the rules.

Rules, first that applies; what is skipped is counted in pages by reason:

- ``kernel``: vdso, vvar, vsyscall and other mappings that the kernel put there.
- ``device``: files below /dev (but not /dev/shm and /dev/zero) and files without
  a path (anon_inode:, socket:), which map device memory or kernel rings.
- ``inaccessible``: no permission at all: reserved address space.
- ``program``: files that the process also maps executable: programs and
  libraries, whose pages other processes share.
- ``bound``: a memory policy bind, prefer or prefer (many): placed on purpose.
- ``interleaved``: interleave or weighted interleave: spread on purpose; moving
  pages by heat would undo the spreading. "default" and "local" are no placement.
- ``hugetlb``: pages of the hugetlb pool, which are reserved per node.
- ``shared``: files mapped read-only of which numa_maps counts a page in several
  processes. Other shared mappings may be moved; the kernel refuses single pages.
- ``locked``: mlock: the owner asked for no surprises.
- ``unread``: newer than the last look at policies: left where it is until the next.
- ``tiny``: less than `WORKLOADS.min_range_pages` together with their neighbours.
- ``scattered``: beyond the `bounds.WATCHED_RANGES` largest ranges.

Sources: proc(5), Documentation/filesystems/proc.rst, mm/mempolicy.c (mpol_to_str).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tierd.core import bounds
from tierd.core.access import WatchedRange
from tierd.core.pagekey import PAGE_SHIFT, BoolArray, U64Array
from tierd.core.tuning import WORKLOADS

_LINE: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) ([r-][w-][x-][sp]) [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+ \d+) *(.*)$",
    re.MULTILINE,
)
_POLICY_LINE: Final = re.compile(
    rb"^([0-9a-f]+) (weighted interleave|prefer \(many\)|[a-z]+)(.*)$", re.MULTILINE
)
_SMAPS_LINE: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) [r-][w-][x-][sp] |^VmFlags:(.*)$", re.MULTILINE
)
_NO_INODE: Final = b" 0"
_USER_NAMES: Final = (b"[heap]", b"[stack", b"[anon:", b"[anon_shmem:")
_MEMORY_FILES: Final = (b"/dev/shm/", b"/dev/zero", b"/dev/hugepages")
_SPREAD: Final = (b"interleave", b"weighted interleave")
_PLAIN: Final = (b"default", b"local")


@dataclass(frozen=True, slots=True)
class MovableRanges:
    """What may be moved.

    Attributes:
        ranges: page ranges, ascending, not touching each other.
        skipped: pages (4 KiB, mapped or not) by the reason they may not be moved.
        mappings: uint64[n, 2] pages [start, end) of each mapping that `ranges` are made of.
    """

    ranges: tuple[WatchedRange, ...]
    skipped: dict[str, int]
    mappings: U64Array = field(default_factory=lambda: np.empty((0, 2), np.uint64), compare=False)


@dataclass(frozen=True, slots=True)
class Mappings:
    """The maps file: addresses uint64[n], a reason each ("" for none) and read-only files."""

    start: U64Array
    end: U64Array
    reason: npt.NDArray[np.object_]
    read_only_file: BoolArray


@dataclass(slots=True)
class Policies:
    """Address ranges whose policy is known, and those that may not be moved, by reason."""

    start: U64Array
    end: U64Array
    marks: dict[str, BoolArray]
    read_ns: int
    cost_ns: int


def parse_maps(text: bytes) -> Mappings:
    """Every mapping of a maps file. The kernel writes a newline in a name as \\012."""
    lines = _LINE.findall(text)
    programs = {
        place for _, _, flags, place, _ in lines if flags[2] == 120 and place[-2:] != _NO_INODE
    }
    known: dict[tuple[bytes, bytes, bytes], str] = {}
    reasons = []
    for _, _, flags, place, name in lines:
        key = (flags, place, name)
        reason = known.get(key)
        if reason is None:
            reason = known[key] = _reason(flags, place, name, programs)
        reasons.append(reason)
    return Mappings(
        start=np.array([int(line[0], 16) for line in lines], dtype=np.uint64),
        end=np.array([int(line[1], 16) for line in lines], dtype=np.uint64),
        reason=np.array(reasons, dtype=object),
        read_only_file=np.array(
            [line[2][1] == 45 and line[3][-2:] != _NO_INODE for line in lines], dtype=np.bool_
        ),
    )


def _reason(flags: bytes, place: bytes, name: bytes, programs: set[bytes]) -> str:
    """Why a mapping may not be moved, as far as its line in maps tells."""
    if name.startswith(b"[") and not name.startswith(_USER_NAMES):
        return "kernel"
    if name.startswith(b"/dev/") and not name.startswith(_MEMORY_FILES):
        return "device"
    if name and name[:1] not in b"/[":
        return "device"
    if flags.startswith(b"---"):
        return "inaccessible"
    if place in programs:
        return "program"
    return ""


def parse_policies(policy_text: bytes, locked_text: bytes, mappings: Mappings) -> Policies:
    """What numa_maps and smaps tell, for those mappings that did not change meanwhile.

    numa_maps has no end addresses: a line counts when a mapping starts there now and
    no other line lies inside that mapping. Without numa_maps, nothing has a policy.
    """
    lines = _POLICY_LINE.findall(policy_text)
    if lines:
        addresses = np.array([int(line[0], 16) for line in lines], dtype=np.uint64)
        first = np.searchsorted(addresses, mappings.start, side="left")
        past_limit = np.searchsorted(addresses, mappings.end, side="left")
        there = (first < len(addresses)) & (past_limit == first + 1)
        there[there] &= addresses[first[there]] == mappings.start[there]
        line_of = first[there]
    else:
        there = np.ones(len(mappings.start), dtype=np.bool_)
        line_of = np.zeros(0, dtype=np.intp)
    start, end = mappings.start[there], mappings.end[there]
    marks: dict[str, BoolArray] = {}
    if lines:
        reasons = np.array([_policy_reason(line[1]) for line in lines], dtype=object)[line_of]
        for name in set(reasons.tolist()) - {""}:
            marks[name] = reasons == name
        rest = [line[2] for line in lines]
        huge = np.array([b" huge" in tail for tail in rest], dtype=np.bool_)[line_of]
        many = np.array([b" mapmax=" in tail for tail in rest], dtype=np.bool_)[line_of]
        marks["hugetlb"] = huge
        marks["shared"] = many & mappings.read_only_file[there]
    marks["locked"] = _overlaps(start, end, _locked(locked_text))
    return Policies(start, end, marks, 0, 0)


def _policy_reason(policy: bytes) -> str:
    """The reason for a policy's name; a kernel's future policies are placement too."""
    if policy in _PLAIN:
        return ""
    if policy in _SPREAD:
        return "interleaved"
    return "bound"


def _locked(text: bytes) -> list[tuple[int, int]]:
    """Address ranges with the flag lo (VM_LOCKED) in a smaps file."""
    found = []
    current: tuple[int, int] | None = None
    for low, high, flags in _SMAPS_LINE.findall(text):
        if low:
            current = (int(low, 16), int(high, 16))
        elif current is not None and b"lo" in flags.split():
            found.append(current)
    return found


def _overlaps(start: U64Array, end: U64Array, ranges: Sequence[tuple[int, int]]) -> BoolArray:
    """Which of [start, end) meet any of `ranges`, ascending."""
    if not ranges:
        return np.zeros(len(start), dtype=np.bool_)
    low = np.array([item[0] for item in ranges], dtype=np.uint64)
    high = np.array([item[1] for item in ranges], dtype=np.uint64)
    first = np.searchsorted(high, start, side="right")
    past_limit = np.searchsorted(low, end, side="left")
    return np.asarray(past_limit > first, dtype=np.bool_)


def decide(mappings: Mappings, policies: Policies) -> MovableRanges:
    """Put both together; a mapping has the policies of all known ranges it covers."""
    start, end, reason = mappings.start, mappings.end, mappings.reason.copy()
    first = np.searchsorted(policies.end, start, side="right")
    past_limit = np.maximum(np.searchsorted(policies.start, end, side="left"), first)
    for name, marks in policies.marks.items():
        before = np.concatenate(([0], np.cumsum(marks)))
        reason[(reason == "") & (before[past_limit] > before[first])] = name
    reason[(reason == "") & (past_limit == first)] = "unread"

    pages = (end - start) >> np.uint64(PAGE_SHIFT)
    skipped: dict[str, int] = {}
    for name in sorted(set(reason.tolist()) - {""}):
        skipped[name] = int(pages[reason == name].sum())

    kept = reason == ""
    low = start[kept] >> np.uint64(PAGE_SHIFT)
    high = end[kept] >> np.uint64(PAGE_SHIFT)
    apart = np.column_stack([low, high])
    if len(low):
        begins = np.concatenate(([True], low[1:] != high[:-1]))
        low = low[begins]
        high = high[np.concatenate((begins[1:], [True]))]
    size = high - low
    tiny = size < np.uint64(WORKLOADS.min_range_pages)
    if tiny.any():
        skipped["tiny"] = int(size[tiny].sum())
        low, high, size = low[~tiny], high[~tiny], size[~tiny]
    if len(low) > bounds.WATCHED_RANGES:
        largest = np.sort(np.argsort(size, kind="stable")[-bounds.WATCHED_RANGES :])
        skipped["scattered"] = int(size.sum() - size[largest].sum())
        low, high = low[largest], high[largest]
    ranges = tuple(map(WatchedRange, low.tolist(), high.tolist()))
    return MovableRanges(ranges, skipped, apart)
