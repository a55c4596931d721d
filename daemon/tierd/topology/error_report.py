# SPDX-License-Identifier: Apache-2.0
"""Reports of memory errors, and how a line of trace text becomes one."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tierd.core.pagekey import PAGE_SIZE

# With the fields before the event's name: a command's name, at most 15 bytes, cannot be like it.
_LINE: Final = re.compile(r"\[\d+\] \S+ +[\d.]+: (\w+): (.*)")
_FAILURE: Final = re.compile(r"pfn (?:0x)?([0-9a-f]+): recovery action for (.*): (\w+)")
_FIELD: Final = re.compile(r"(\w+)=('[^']*'|\S+)")
_NO_ADDRESS: Final = (1 << 64) - 1
"""The host's address of what no region maps (drivers/cxl/core/trace.h, ULLONG_MAX)."""


class Kind(enum.StrEnum):
    """What happened; `tierd.topology.errors` says who tells it."""

    MEMORY_FAILURE = "memory_failure"
    SOFT_OFFLINE = "soft_offline"
    POISON = "poison"
    MEDIA_CORRECTED = "media_corrected"
    MEDIA_UNCORRECTED = "media_uncorrected"
    CORRECTED = "corrected"
    UNCORRECTED = "uncorrected"


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """An error, or several of a kind that were reported together.

    Attributes:
        address: the host's physical address in bytes; None where nobody tells.
        device: "mem0", a CXL device, or "mc0", a memory controller; "" for neither.
        device_address: in the device, bytes; None where there is none.
        detail: what the kernel did, or what the device says of it.
        node: that the address is in; None where that is not known.
    """

    kind: Kind
    address: int | None = None
    device: str = ""
    device_address: int | None = None
    detail: str = ""
    count: int = 1
    node: int | None = None


@dataclass(frozen=True, slots=True)
class ErrorTotals:
    """What was reported since the start.

    Attributes:
        counts: errors by node (None: not known) and kind.
        latest: the last report of each of these.
        lost: events that the kernel overwrote before they were read.
        malformed: lines that are no event that is known.
        not_logged: reports that were left out of the log.
    """

    counts: Mapping[tuple[int | None, Kind], int] = field(default_factory=dict)
    latest: Mapping[tuple[int | None, Kind], ErrorReport] = field(default_factory=dict)
    lost: int = 0
    malformed: int = 0
    not_logged: int = 0


def parse(line: str) -> ErrorReport | None:
    """The report in a line of trace text; None if there is none.

    Poison that was cleared is a report of no errors (`count` is 0).
    """
    found = _LINE.search(line)
    if found is None:
        return None
    event, text = found[1], found[2]
    if event == "memory_failure_event":
        failure = _FAILURE.search(text)
        if failure is None:
            return None
        address = int(failure[1], 16) * PAGE_SIZE
        return ErrorReport(
            Kind.MEMORY_FAILURE, address, detail=f"{failure[2]}: {failure[3]}".lower()
        )
    fields = {name: value.strip("'") for name, value in _FIELD.findall(text)}
    try:
        device, device_address = fields["memdev"], int(fields["dpa"], 16)
        address = int(fields.get("hpa", "ffffffffffffffff"), 16)
    except (KeyError, ValueError):
        return None
    if event == "cxl_poison":
        kind, detail = Kind.POISON, fields.get("source", "")
        count = int(fields.get("trace_type") != "Clear")
    elif event in ("cxl_general_media", "cxl_dram"):
        detail, count = fields.get("descriptor", ""), 1
        uncorrected = "UNCORRECTABLE" in detail
        kind = Kind.MEDIA_UNCORRECTED if uncorrected else Kind.MEDIA_CORRECTED
    else:
        return None
    known = None if address == _NO_ADDRESS else address
    return ErrorReport(kind, known, device, device_address, detail, count)


def described(report: ErrorReport) -> dict[str, object]:
    """A report's fields for a line of the log or for JSON, without those that nobody told."""
    fields: dict[str, object] = {
        "node": "unknown" if report.node is None else report.node,
        "kind": str(report.kind),
    }
    for name in ("address", "device_address"):
        if (value := getattr(report, name)) is not None:
            fields[name] = f"{value:#x}"
    for name in ("device", "detail"):
        if value := getattr(report, name):
            fields[name] = value
    return {**fields, "count": report.count}
