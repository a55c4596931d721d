# SPDX-License-Identifier: Apache-2.0
"""How a tuning constant is declared."""

from __future__ import annotations

import dataclasses
from typing import Final, TypeVar

T = TypeVar("T")
ASSUMPTION: Final = "assumption"
"""Evidence of a value that nobody has measured."""


def tuned(default: T, unit: str, meaning: str, evidence: str = ASSUMPTION) -> T:
    """A field of a tuning class; its measured sensitivity stands in `measured`.

    Args:
        unit: pages, bytes, ns, s, ratio, count and the like.
        evidence: the measurement, document or paper that the value is from.
    """
    about = {"unit": unit, "meaning": meaning, "evidence": evidence}
    return dataclasses.field(default=default, metadata=about)
