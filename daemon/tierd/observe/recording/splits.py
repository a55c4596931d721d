# SPDX-License-Identifier: Apache-2.0
"""What a tick knew and did about whole or split folios, to bytes and back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tierd.core.migration import MigrationPlan, MigrationResult, SplitFate
from tierd.core.pagekey import HUGE_PAGES
from tierd.observe.recording.columns import Decoder, Encoder
from tierd.observe.recording.errors import RecordingError
from tierd.policy.traffic import Traffic


@dataclass(frozen=True, slots=True)
class SplitRecord:
    """The three words of a tick that tell of folios."""

    plan: MigrationPlan
    report: MigrationResult | None
    traffic: Traffic | None

    @property
    def needed(self) -> bool:
        """Whether they do tell something; else the frame is as it was before there were splits."""
        return bool(
            len(self.plan.split)
            or (self.report is not None and len(self.report.plan.split))
            or (self.traffic is not None and np.isfinite(self.traffic.patterns.pages).any())
        )


def encode_splits(out: Encoder, told: SplitRecord) -> None:
    """Append it."""
    out.pages(told.plan.split)
    if told.report is not None:
        out.pages(told.report.plan.split)
        out.array(told.report.split_fate, np.uint8)
    if told.traffic is not None:
        out.array(told.traffic.patterns.pages, np.float64)


def decode_splits(take: Decoder, told: SplitRecord) -> SplitRecord:
    """Take it off, and put it in.

    Raises:
        RecordingError: the bytes are not those of it.
    """
    plan, report, traffic = told.plan, told.report, told.traffic
    plan = replace(plan, split=take.pages())
    if report is not None:
        split = take.pages()
        fate = take.array(len(split), np.uint8)
        if len(fate) and int(fate.max()) > max(SplitFate):
            raise RecordingError("a split with an unknown fate")
        own = plan if report.plan is told.plan else replace(report.plan, split=split)
        if own is plan and not np.array_equal(split, plan.split):
            raise RecordingError("a report of other splits than its plan's")
        report = replace(report, plan=own, split_fate=fate)
    if traffic is not None:
        pages = take.array(len(traffic.patterns.region), np.float64)
        if np.any((pages < 1) | (pages > HUGE_PAGES) | np.isinf(pages)):
            raise RecordingError("a region's accesses on less than one of its pages, or on more")
        traffic = replace(traffic, patterns=replace(traffic.patterns, pages=pages))
    return SplitRecord(plan, report, traffic)
