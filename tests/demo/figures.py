# SPDX-License-Identifier: Apache-2.0
"""What a run of the demo's workload says, and what its sources do beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

PAGE_BYTES = 4096
FAST_NODE = "0"
STEADY_REPORTS = 5
"""The steady state is the mean share of this many reports at the end of a stretch."""


class SplitRecord(Protocol):
    """What a guest told, by phase: `story.Story`."""

    reports: dict[str, list[dict[str, Any]]]
    tierd: dict[str, dict[str, Any]]
    tierd_before_move: dict[str, dict[str, Any]]
    notes: dict[tuple[str, str], Any]

    def ended(self, phase: str) -> bool:
        """Whether a run with tierd came to its end."""
        ...

    def scanner(self, phase: str) -> dict[str, Any]:
        """What the module's scanner did."""
        ...


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


def least_moves(hot_pages: int, slow_share: float, hot_sets: int, room_bytes: int) -> float:
    """The fewest moves a hot page that bring every hot set in.

    Each set has a share on the slow node that must come in, and what finds no room must have
    something leave for it. It is the floor of the set-up: it counts what the service itself
    takes of the room afterwards as nothing, and knows every page.
    """
    promoted = hot_sets * slow_share * hot_pages
    demoted = max(0.0, promoted - room_bytes / PAGE_BYTES)
    return (promoted + demoted) / (hot_sets * hot_pages)


def run_figures(
    reports: Sequence[dict[str, Any]],
    totals: dict[str, Any],
    begun: float,
    before_move: dict[str, Any] | None = None,
    room: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The figures of one run.

    Args:
        reports: hotset's lines, in order; a line `hot_set_moved` parts them in two.
        totals: tierd's last totals.
        begun: the workload's clock when tierd was given the workload.
        before_move: tierd's last totals before the hot set moved.
        room: `free_bytes` and `kept_bytes` of the fast node when the workload was handed over.

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
    native = totals.get("fast_path") or {}
    moves = totals["promoted_pages"] + totals["demoted_pages"]
    most = native.get("most_in_a_second")
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
        "ping_pong_pages": totals.get("ping_pong_pages"),
        "ping_pong_prevented": totals.get("ping_pong_prevented"),
        "most_bytes_promoted_in_a_second": most,
        "most_megabytes_promoted_in_a_second": None if most is None else round(most / 1e6, 1),
        "updates_per_second": round(shares[-1]["updates"] / shares[-1]["t"]) if shares else None,
        "checksum_ok": end.get("checksum_ok") if end else None,
    }
    if room is not None:
        free = room["free_bytes"] - room["kept_bytes"]
        slow = 1.0 - start["hot_on_node"].get(FAST_NODE, 0.0)
        figures["least_moves_per_hot_page"] = round(
            least_moves(start["hot_pages"], slow, hot_sets, free), 3
        )
        figures["room_bytes"] = free
    if moved_at is not None:
        figures["seconds_to_90_percent_after_move"] = first_at(after, 0.90, moved_at + offset)
        if before_move is not None:
            first = before_move["promoted_pages"] + before_move["demoted_pages"]
            figures["moves_per_hot_page_before_move"] = round(first / start["hot_pages"], 3)
        figures["fast_share_after_move_at_first"] = after[0]["fast_share"] if after else None
    return figures


def source_figures(story: SplitRecord, sources: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The figures of each source whose run ended."""
    found: dict[str, dict[str, Any]] = {}
    for source in sources:
        if not story.ended(source):
            continue
        found[source] = run_figures(
            story.reports[source],
            story.tierd[source],
            story.notes["handed_over", source]["clock"],
            story.tierd_before_move.get(source),
            story.notes.get(("room", source)),
        )
        found[source]["tierd_cpu_seconds"] = round(story.notes["tierd_cpu", source]["seconds"], 2)
        found[source]["tierd_exit"] = story.notes["tierd_exit", source]["code"]
    return found


def result_of(story: SplitRecord) -> dict[str, Any]:
    """The figures of a finished demo."""
    without, with_ = story.reports["without"], story.reports["with"]
    started = story.notes["handed_over", "with"]["clock"]
    tierd = story.tierd["with"]
    shares = [r for r in with_ if "fast_share" in r]
    after = [r for r in shares if r["clock"] > started]
    to_90 = [r["clock"] - started for r in after if r["fast_share"] >= 0.90]
    to_95 = [r["clock"] for r in after if r["fast_share"] >= 0.95]
    held = [r["fast_share"] for r in after if to_95 and r["clock"] >= to_95[0]]
    end = with_[-1]
    checksums = [r["checksum_ok"] for r in (without[-1:] + with_[-1:]) if r["event"] == "end"]
    moves = tierd["promoted_pages"] + tierd["demoted_pages"]
    return {
        "fast_share_before": (without or with_)[-1 if without else 0]["fast_share"],
        "fast_share_after": end["fast_share"],
        "fast_share_lowest_after_95": min(held) if held else None,
        "seconds_to_90_percent": round(to_90[0], 2) if to_90 else None,
        "seconds_to_95_percent": round(to_95[0] - started, 2) if to_95 else None,
        "promoted_pages": tierd["promoted_pages"],
        "demoted_pages": tierd["demoted_pages"],
        "hot_pages": end["hot_pages"],
        "moves_per_hot_page": round(moves / end["hot_pages"], 3),
        "samples_lost": tierd["lost_samples"],
        "move_seconds": round(tierd["move_seconds"], 2),
        "move_cpu_seconds": round(tierd["move_cpu_seconds"], 2),
        "scanner": story.scanner("with"),
        "tierd_cpu_seconds": round(story.notes["tierd_cpu", "with"]["seconds"], 2),
        "updates_per_second_without": _rate(without),
        "updates_per_second_with": _rate(with_),
        "checksum_ok": bool(checksums) and all(checksums),
        "tierd_exit": story.notes["tierd_exit", "with"]["code"],
        "tlbtick_us": story.notes["tlbtick", ""]["period_us"],
    }


def _rate(reports: list[dict[str, Any]]) -> int | None:
    return round(reports[-1]["updates"] / reports[-1]["t"]) if reports else None
