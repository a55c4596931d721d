# SPDX-License-Identifier: Apache-2.0
"""Every number that tunes decisions and no configuration key sets: its value, unit and evidence.

Each subsystem has one object here, whose fields are read where they are used. So `override` has
to be called before the components are made. docs/reference/tuning.md lists all fields.
"""

from __future__ import annotations

from tierd.core.tuning.feedback import FEEDBACK, REGRESSION, TRIAL
from tierd.core.tuning.overrides import (
    SECTIONS,
    Field,
    fields,
    overridden,
    override,
    parse_override,
)
from tierd.core.tuning.phase import PHASE
from tierd.core.tuning.policy import COST, VALUE, WATERMARK
from tierd.core.tuning.service import (
    ACCOUNT,
    BANDWIDTH,
    FAST_PATH,
    HOTNESS,
    MIGRATION,
    PACING,
    PRESSURE,
    WORKLOADS,
)
from tierd.core.tuning.sources import DAMON, HMU, INTERVAL, SCAN

__all__ = [
    "ACCOUNT",
    "BANDWIDTH",
    "COST",
    "DAMON",
    "FAST_PATH",
    "FEEDBACK",
    "HMU",
    "HOTNESS",
    "INTERVAL",
    "MIGRATION",
    "PACING",
    "PHASE",
    "PRESSURE",
    "REGRESSION",
    "SCAN",
    "SECTIONS",
    "TRIAL",
    "VALUE",
    "WATERMARK",
    "WORKLOADS",
    "Field",
    "fields",
    "overridden",
    "override",
    "parse_override",
]
