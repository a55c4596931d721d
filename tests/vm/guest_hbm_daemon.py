# SPDX-License-Identifier: Apache-2.0
"""tierd on the lab's sampled misses, in the guest: `guest_hbm_daemon.py CONFIG PERIOD`.

Prints a line when it is about to run, and one JSON object when it has ended.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from movewatch import MoveWatch
from window_source import WindowSource

from tierd.config.whole import load
from tierd.engine import build
from tierd.engine.process import keep_heap, load_all
from tierd.observe.metrics.background import cost_of
from tierd.observe.tick_record import TickRecord
from tierd.policy.cost import CostPolicy


class Notes:
    """What each tick decided on."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.ticks: list[dict[str, Any]] = []

    def on_tick(self, tick: TickRecord) -> None:
        """Note it."""
        sight = self._policy.state
        self.ticks.append(
            {
                "s": tick.time_ns / 1e9,
                "samples": sum(map(len, tick.batches)),
                "planned": len(tick.plan),
                "moved": 0 if tick.report is None else tick.report.moved_bytes >> 12,
                "load": [] if sight is None else [round(float(x)) for x in sight.model.load],
                "known": self._known(),
                "ways": self._ways(tick),
                "allowance": round(self._policy.outcomes.allowance, 3),
                "alarms": self._policy.outcomes.alarms,
                "held": dict(tick.plan.notes),
            }
        )

    def _known(self) -> list[int]:
        """Loaded latencies that it decided with."""
        sight = self._policy.state
        return [] if sight is None else [round(each) for each in sight.loaded_ns]

    @staticmethod
    def _ways(tick: TickRecord) -> dict[str, int]:
        """Moves planned, by way."""
        ways = zip(tick.plan.source.tolist(), tick.plan.dest.tolist(), strict=True)
        return dict(Counter(f"{source} to {dest}" for source, dest in ways))


def main() -> int:
    """Until SIGTERM."""
    # As `tierd run` does: the pages that passes ask for again and again would be HBM's where DRAM
    # has none, and 2 MiB of them at once.
    assert keep_heap()
    load_all()
    settings = load(Path(sys.argv[1]))
    source = WindowSource(int(sys.argv[2]))
    build.make_sources = lambda settings: [source]  # type: ignore[assignment]
    service, tiers = build.build(settings)
    policy = service.components.policy
    assert isinstance(policy, CostPolicy)
    notes = Notes(policy)
    watch = MoveWatch(settings.policy.low_watermark, settings.policy.migration_cooldown_ns / 1e9)
    service.observe(notes)
    service.observe(watch)
    print("ready", flush=True)
    status = service.run()
    out = policy.outcomes
    print(
        json.dumps(
            {
                "status": status,
                "samples": source.taken,
                "lost": source.lost,
                "totals": service.totals.as_json(),
                "cost": None if policy.state is None else cost_of(tiers, policy.state),
                "epochs": [
                    [e.end_ns / 1e9, e.predicted, e.observed, e.gain_s(policy.settings.horizon_s)]
                    for e in out.epochs
                ],
                # Both take moves back before residency has passed.
                "alarms": out.alarms + policy.hill_climber.falls,
                "slices": [policy.hill_climber.kept, policy.hill_climber.failed],
                "correlation": out.correlation,
                "pages": watch.as_json(),
                "ticks": notes.ticks,
            }
        )
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
