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
    for name in ("scan.warmup_scans", "scan.patience_scans"):
        assert sensitivity.sentence(found[name]) == MEASURED[name]
    assert sensitivity.sentence(found["scan.known_scans"]) == "no decision differs"
    assert MEASURED["scan.known_scans"].startswith("cards ")


def test_no_override_is_left() -> None:
    before = [each.value for each in tuning.fields()]
    found = sensitivity.measure([golden.FOLDER / "scan.rec"], ["hotness.change_prior_shape"])
    assert found["hotness.change_prior_shape"]["scan"].keys() == {"half", "twice"}
    assert [each.value for each in tuning.fields()] == before
