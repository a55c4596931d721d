# SPDX-License-Identifier: Apache-2.0
"""What the guest of the demo tells, line by line, and the progress that people see of it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Story:
    """What the guest has told so far."""

    reports: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"without": [], "with": []}
    )
    tierd: dict[str, dict[str, Any]] = field(default_factory=dict)
    tierd_before_move: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last totals before the hot set moved for the first time."""
    notes: dict[tuple[str, str], Any] = field(default_factory=dict)
    """By event and the phase it is of (empty: of none)."""
    begun: float = field(default_factory=time.monotonic)

    def take(self, line: str) -> None:
        """One line of the guest's output."""
        if not line.startswith("{"):
            print(line, file=sys.stderr)
            return
        event = json.loads(line)
        if "tierd" in event:
            self.tierd[event["phase"]] = event["tierd"]
        elif "phase" in event:
            self.reports.setdefault(event["phase"], []).append(event)
            if event["event"] == "hot_set_moved" and event["phase"] in self.tierd:
                self.tierd_before_move.setdefault(event["phase"], self.tierd[event["phase"]])
            self.show(event)
        else:
            self.notes[event["event"], event.get("of", "")] = event
            if event["event"] == "populating":
                self.say(event["of"], f"the workload takes its memory, {event['size']}")

    def say(self, phase: str, text: str) -> None:
        """One line of progress, with the host seconds since the start."""
        seconds = time.monotonic() - self.begun
        print(f"[{seconds:5.0f} s] {phase:>13}: {text}", file=sys.stderr, flush=True)

    def show(self, event: dict[str, Any]) -> None:
        """What one report of the workload says."""
        if "fast_share" not in event:
            return
        bar = "#" * round(40 * event["fast_share"])
        text = f"guest second {event['t']:5.1f}: served by DRAM {event['fast_share']:6.1%}"
        self.say(event["phase"], f"{text} |{bar:<40}|")

    def ended(self, phase: str) -> bool:
        """Whether a run with tierd came to its end."""
        return ("tierd_exit", phase) in self.notes

    def scanner(self, phase: str) -> dict[str, Any]:
        """What the module's scanner did in a phase; empty without the module."""
        told = self.notes.get(("scanner", phase), {})
        return {k: v for k, v in told.items() if k not in ("event", "of")}
