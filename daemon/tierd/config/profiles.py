# SPDX-License-Identifier: Apache-2.0
"""Profiles: sets of values that a configuration starts from."""

from __future__ import annotations

from typing import Any, Final

PROFILES: Final[dict[str, dict[str, Any]]] = {
    # Seldom wrong, slow to act: hosts whose load is not known.
    "cautious": {
        "loop": {"tick": "1s", "cpu": "1%", "residency_pages": 32768, "residency_interval": "1min"},
        "sources": {
            "scan": {"period": "2s", "cpu": "2%"},
            "pmu": {"samples": 5000, "cpu": "1%"},
            "damon": {"cpu": "1%"},
            "faults": {"cpu": "2%"},
        },
        "heat": {"half_life": "20s"},
        "policy": {
            "low_watermark": "4%",
            "high_watermark": "8%",
            "margin": 1.0,
            "confidence": 3.5,
            "min_residency": "1min",
            "max_moves_per_tick": 8192,
        },
        "budget": {"rate": "50MB/s", "cpu": "2%", "failures": "10%"},
    },
    # The defaults themselves.
    "balanced": {},
    # Quick to act, at a price: hosts that were measured.
    "aggressive": {
        "loop": {"tick": "200ms", "quiet_tick": "2s", "cpu": "25%", "residency_pages": 262144},
        "sources": {
            "scan": {"period": "200ms", "cpu": "15%"},
            "pmu": {"samples": 100_000, "cpu": "8%"},
            "damon": {"cpu": "15%"},
            "faults": {"cpu": "10%"},
        },
        "heat": {"half_life": "2s"},
        "policy": {
            "low_watermark": "1%",
            "high_watermark": "1.25%",
            "margin": 0.25,
            "confidence": 2.0,
            "min_residency": "3s",
            "max_moves_per_tick": 262144,
        },
        "budget": {"rate": "1GB/s", "cpu": "25%", "failures": "40%"},
    },
}
DEFAULT_PROFILE: Final = "balanced"
