# SPDX-License-Identifier: Apache-2.0
"""What one run of the demo's workload says about the source that steered it.

Owns: the figures of a run and their names. Pure: reports in, figures out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

STEADY_REPORTS = 5
"""The steady state is the mean share of this many reports at the end of a stretch."""


def first_at(reports: Sequence[dict[str, Any]], share: float, since: float) -> float | None:
    """Seconds from `since` to the first report with at least `share` served fast."""
    for report in reports:
        if report["clock"] > since and report["fast_share"] >= share:
            return round(report["clock"] - since, 2)
    return None


def steady(reports: Sequence[dict[str, Any]]) -> float | None:
    """The share served fast in which a stretch ended."""
    last = [report["fast_share"] for report in reports[-STEADY_REPORTS:]]
    return sum(last) / len(last) if last else None


def run_figures(
    reports: Sequence[dict[str, Any]],
    totals: dict[str, Any],
    begun: float,
    before_move: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The figures of one run.

    Args:
        reports: hotset's lines, in order; a line `hot_set_moved` parts them in two.
        totals: tierd's last totals.
        begun: the workload's clock when tierd was given the workload.
        before_move: tierd's last totals before the hot set moved.

    Times are seconds of guest time. "95 % of the steady state" is the first report whose share
    is at least 0.95 of the steady state that the same stretch ended in. Moves a hot page:
    promotions and demotions over the hot pages of all hot sets there were.
    """
    moved_at = next((r["t"] for r in reports if r["event"] == "hot_set_moved"), None)
    shares = [r for r in reports if r["event"] == "sample"]
    start = next(r for r in reports if r["event"] == "start")
    end = next((r for r in reports if r["event"] == "end"), None)
    offset = start["clock"] - start["t"]
    # The report with the time of the move already weighs the new hot set.
    before = [r for r in shares if moved_at is None or r["t"] < moved_at]
    after = [r for r in shares if moved_at is not None and r["t"] >= moved_at]
    before = [r for r in before if r["clock"] > begun]
    level = steady(before)
    hot_sets = 1 if moved_at is None else 2
    native = totals.get("native") or {}
    moves = totals["promoted_pages"] + totals["demoted_pages"]
    figures: dict[str, Any] = {
        "fast_share_before": start["fast_share"],
        "fast_share_after": (end or shares[-1])["fast_share"],
        "steady_share": None if level is None else round(level, 4),
        "seconds_to_90_percent": first_at(before, 0.90, begun),
        "seconds_to_95_percent_of_steady": (
            None if level is None else first_at(before, 0.95 * level, begun)
        ),
        "seconds_to_90_percent_after_move": None,
        "promoted_pages": totals["promoted_pages"],
        "demoted_pages": totals["demoted_pages"],
        "moves_per_hot_page": round(moves / (start["hot_pages"] * hot_sets), 3),
        "bounced_pages": totals.get("bounced_pages"),
        "bounces_held": totals.get("bounces_held"),
        "most_bytes_promoted_in_a_second": native.get("most_in_a_second"),
        "updates_per_second": round(shares[-1]["updates"] / shares[-1]["t"]) if shares else None,
        "checksum_ok": end.get("checksum_ok") if end else None,
    }
    if moved_at is not None:
        figures["seconds_to_90_percent_after_move"] = first_at(after, 0.90, moved_at + offset)
        if before_move is not None:
            first = before_move["promoted_pages"] + before_move["demoted_pages"]
            figures["moves_per_hot_page_before_move"] = round(first / start["hot_pages"], 3)
        figures["fast_share_after_move_at_first"] = after[0]["fast_share"] if after else None
    return figures
