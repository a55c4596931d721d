# SPDX-License-Identifier: Apache-2.0
"""`Control`: what the module shall scan, and how, by generic netlink."""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tierd.core.errors import SecondMmuError, UnavailableError
from tierd.core.pagekey import PAGE_SHIFT
from tierd.sources.kmod.genl import Family, named, understood
from tierd.sources.kmod.uapi import NODE_WORDS, STATS, TARGET_STATS, Command, ScanFlags


@dataclass(frozen=True, slots=True)
class ScanState:
    """The scanner's settings in force, and its counters since the module was loaded.

    Attributes:
        period_us: least time between two looks at a page.
        budget_ppm: CPU time of the scanner, in millionths of one CPU.
        hot_scans: a page seen in this many of the last 8 scans is hot.
        cold_scans: a hot page seen in no more than these is cold again.
        report_scans: a page that stays hot is reported in one scan of so many.
        sampling_interval_us: accesses in so long before a look count; 0: all since the last look.
        hot_nodes: nodes whose hot pages are reported.
        stats: struct tierd_stats by field name.
    """

    period_us: int
    budget_ppm: int
    hot_scans: int
    cold_scans: int
    report_scans: int
    flags: ScanFlags
    sampling_interval_us: int
    hot_nodes: frozenset[int]
    stats: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TargetState:
    """One registered target; `stats` is struct tierd_target_stats by field name."""

    target: int
    pid: int
    stats: Mapping[str, int]


def node_words(nodes: Sequence[int] | frozenset[int]) -> bytes:
    """The bitmap of node numbers as the module takes it."""
    words = [0] * NODE_WORDS
    for node in nodes:
        words[node // 64] |= 1 << node % 64
    return struct.pack(f"={NODE_WORDS}Q", *words)


def nodes_of(data: bytes) -> frozenset[int]:
    """Node numbers of such a bitmap."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    return frozenset(int(node) for node in np.flatnonzero(bits))


def pack_ranges(ranges: Sequence[tuple[int, int]]) -> bytes:
    """Ranges of 4 KiB page numbers as the module takes them."""
    return (np.array(ranges, np.uint64).reshape(-1, 2) << np.uint64(PAGE_SHIFT)).tobytes()


class Control(Family):
    """A connection to the module; `open` makes one. Not for several threads at a time.

    The module ties targets to the socket that registered them: `close` ends their scan.
    """

    def target_add(self, target: int, pid: int, ranges: Sequence[tuple[int, int]] = ()) -> None:
        """Scan process `pid` as `target`, in `ranges` of page numbers (none: everywhere).

        Raises:
            TargetGoneError: no such process, or it has no memory of its own.
            FileExistsError: the number is taken, or its address space is scanned already.
            SecondMmuError: its accesses cannot be seen.
            UnavailableError: refused, or the module went away.
        """
        given: list[list[Any]] = [["TIERD_A_TARGET", target], ["TIERD_A_PID", pid]]
        given.append(["TIERD_A_RANGES", pack_ranges(ranges)])
        try:
            self.ask(Command.TARGET_ADD, given)
        except UnavailableError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno == errno.EOPNOTSUPP:
                raise SecondMmuError(error.message) from cause
            raise

    def target_set(self, target: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Replace the ranges of a target; errors as `target_add`."""
        self.ask(
            Command.TARGET_SET,
            [["TIERD_A_TARGET", target], ["TIERD_A_RANGES", pack_ranges(ranges)]],
        )

    def target_del(self, target: int) -> None:
        """Stop scanning a target; errors as `target_add`."""
        self.ask(Command.TARGET_DEL, [["TIERD_A_TARGET", target]])

    def targets(self) -> list[TargetState]:
        """All registered targets, by number."""
        found = self.ask(Command.TARGET_GET, dump=True)
        with understood():
            return [
                TargetState(
                    target=message.get_attr("TIERD_A_TARGET"),
                    pid=message.get_attr("TIERD_A_PID"),
                    stats=named(TARGET_STATS, message.get_attr("TIERD_A_TARGET_STATS")),
                )
                for message in found
            ]

    def scan_set(
        self,
        *,
        period_us: int | None = None,
        budget_ppm: int | None = None,
        hot_scans: int | None = None,
        cold_scans: int | None = None,
        report_scans: int | None = None,
        flags: ScanFlags | None = None,
        sampling_interval_us: int | None = None,
        hot_nodes: Sequence[int] | None = None,
    ) -> None:
        """Change what is given and leave the rest.

        Raises:
            UnavailableError: the module refused a value, or went away.
        """
        given: list[list[Any]] = [
            ["TIERD_A_PERIOD_US", period_us],
            ["TIERD_A_BUDGET_PPM", budget_ppm],
            ["TIERD_A_HOT_SCANS", hot_scans],
            ["TIERD_A_COLD_SCANS", cold_scans],
            ["TIERD_A_REPORT_SCANS", report_scans],
            ["TIERD_A_FLAGS", None if flags is None else int(flags)],
            ["TIERD_A_SAMPLING_INTERVAL_US", sampling_interval_us],
            ["TIERD_A_HOT_NODES", None if hot_nodes is None else node_words(hot_nodes)],
        ]
        self.ask(Command.SCAN_SET, given)

    def scan_get(self) -> ScanState:
        """The scanner's settings and counters."""
        found = self.ask(Command.SCAN_GET)
        with understood():
            (message,) = found
            return ScanState(
                period_us=message.get_attr("TIERD_A_PERIOD_US"),
                budget_ppm=message.get_attr("TIERD_A_BUDGET_PPM"),
                hot_scans=message.get_attr("TIERD_A_HOT_SCANS"),
                cold_scans=message.get_attr("TIERD_A_COLD_SCANS"),
                report_scans=message.get_attr("TIERD_A_REPORT_SCANS"),
                flags=ScanFlags(message.get_attr("TIERD_A_FLAGS")),
                sampling_interval_us=message.get_attr("TIERD_A_SAMPLING_INTERVAL_US"),
                hot_nodes=nodes_of(message.get_attr("TIERD_A_HOT_NODES")),
                stats=named(STATS, message.get_attr("TIERD_A_STATS")),
            )
