# SPDX-License-Identifier: Apache-2.0
"""Profiles: sets of values that a configuration starts from."""

from __future__ import annotations

from typing import Any, Final

PROFILES: Final[dict[str, dict[str, Any]]] = {
    # Seldom wrong, slow to act: hosts whose load is not known.
    "cautious": {
        "loop": {"interval": "1s", "cpu_limit": "1%"},
        "residency": {"pages_per_tick": 32768, "interval": "1min"},
        "sources": {
            "scan": {"interval": "2s", "cpu_limit": "2%"},
            "idlepage": {"interval": "2s", "cpu_limit": "2%"},
            "pmu": {"samples": 5000, "cpu_limit": "1%"},
            "damon": {"cpu_limit": "1%"},
            "faults": {"cpu_limit": "2%"},
        },
        "heat": {"half_life": "20s"},
        "policy": {
            "low_watermark": "4%",
            "high_watermark": "8%",
            "hysteresis": 1.0,
            "confidence_sigmas": 3.5,
            "migration_cooldown": "1min",
            "max_moves_per_tick": 8192,
        },
        "migration": {"rate_limit": "50MB/s", "cpu_limit": "2%", "max_failure_ratio": "10%"},
    },
    # The defaults themselves.
    "balanced": {},
    # Quick to act, at a price: hosts that were measured.
    "aggressive": {
        "loop": {"interval": "200ms", "max_interval": "2s", "cpu_limit": "25%"},
        "residency": {"pages_per_tick": 262144},
        "sources": {
            "scan": {"interval": "200ms", "cpu_limit": "15%"},
            "idlepage": {"interval": "200ms", "cpu_limit": "15%"},
            "pmu": {"samples": 100_000, "cpu_limit": "8%"},
            "damon": {"cpu_limit": "15%"},
            "faults": {"cpu_limit": "10%"},
        },
        "heat": {"half_life": "2s"},
        "policy": {
            "low_watermark": "1%",
            "high_watermark": "1.25%",
            "hysteresis": 0.25,
            "confidence_sigmas": 2.0,
            "migration_cooldown": "3s",
            "max_moves_per_tick": 262144,
        },
        "migration": {"rate_limit": "1GB/s", "cpu_limit": "25%", "max_failure_ratio": "40%"},
    },
}
DEFAULT_PROFILE: Final = "balanced"
