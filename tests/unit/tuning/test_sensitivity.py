# SPDX-License-Identifier: Apache-2.0
"""The published sensitivity of tuning constants is what replays show."""

from __future__ import annotations

import sys
from pathlib import Path

import golden

from tierd.core import tuning
from tierd.core.tuning.measured import MEASURED

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import sensitivity


def test_constants_that_are_measured_exist() -> None:
    assert MEASURED.keys() <= {each.name for each in tuning.fields()}


def test_what_was_measured_is_what_is_measured() -> None:
    paths = [golden.FOLDER / f"{name}.rec" for name in ("rules", "scan")]
    names = ["scan.known_scans", "scan.warmup_scans", "scan.patience_scans"]
    found = sensitivity.measure(paths, names)
    assert found.keys() == set(names)
    for name in names:
        # Cards' recordings may say more.
        assert sensitivity.sentence(found[name]) in MEASURED[name]


def test_no_override_is_left() -> None:
    before = [each.value for each in tuning.fields()]
    found = sensitivity.measure([golden.FOLDER / "scan.rec"], ["phase.burst_refused_pages"])
    assert found["phase.burst_refused_pages"]["scan"].keys() == {"half", "twice"}
    assert [each.value for each in tuning.fields()] == before
