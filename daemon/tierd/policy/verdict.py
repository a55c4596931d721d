# SPDX-License-Identifier: Apache-2.0
"""What a decision says of one page: `tierd explain`.

A verdict is no second rule. The policy decides again on what it is given, the page is found in the
plan or is not, and the terms are those that the decision met it with.
"""

from __future__ import annotations

from dataclasses import dataclass

from tierd.core.migration import Direction
from tierd.core.reasons import Reason
from tierd.policy.rule import Terms


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a page in the next decision, and why.

    Attributes:
        reason: why.
        heat: of the page.
        direction: None where it stays.
        dest: the node that it goes to, None where it stays.
        victim: hotness of the page that has to leave for it; 0 for free memory, None where no
            page was compared with it.
        terms: what the rule said of the two, None where it was not asked.
    """

    reason: Reason
    heat: float
    direction: Direction | None = None
    dest: int | None = None
    victim: float | None = None
    terms: Terms | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """How far down the hottest pages came into a tier.

    Attributes:
        refused: hotness of the hottest page that did not win; None where each one won.
        victim: hotness of the page that it was compared with; None where no page could leave.
    """

    refused: float | None
    victim: float | None
