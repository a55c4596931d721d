# SPDX-License-Identifier: Apache-2.0
"""Constants of the feedback of the policy `cost`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned

ABLATION: Final = "assumption; docs/benchmarks/cost-ablation.md has what the mechanism is worth"


@dataclass(slots=True)
class FeedbackTuning:
    """The feedback controller of the policy `cost`: what moves brought, and what is rolled back."""

    epoch_s: float = tuned(
        2.0,
        unit="s",
        meaning="The effect of moves is observed for this time before the next moves.",
        evidence="assumption",
    )
    kept_epochs: int = tuned(
        256,
        unit="count",
        meaning="The rank correlation is taken over so many epochs with moves.",
        evidence="assumption",
    )
    max_pages: int = tuned(
        1 << 17,
        unit="pages",
        meaning="At most so many pages are compared, or taken back.",
        evidence="assumption",
    )
    max_margin: float = tuned(
        16.0,
        unit="ratio",
        meaning="The margin of a move over its cost grows to at most this after losses.",
        evidence="assumption",
    )
    balance_window_s: float = tuned(
        60.0,
        unit="s",
        meaning="The margin grows when the moves of the last so many seconds have lost time.",
        evidence="assumption",
    )
    first_line_fraction: float = tuned(
        0.05,
        unit="ratio",
        meaning="At most this fraction of all lines changes tier in the first epoch.",
        evidence=ABLATION,
    )
    mean_epochs: int = tuned(
        3,
        unit="count",
        meaning="The rate of served lines is compared in means of so many epochs.",
        evidence="assumption",
    )
    settled_epochs: int = tuned(
        4,
        unit="count",
        meaning="Moves are accepted when nothing was lost for so many epochs without moves.",
        evidence="assumption",
    )
    max_loss: float = tuned(
        0.05,
        unit="ratio",
        meaning="Moves that lose more than this fraction of the served lines are taken back.",
        evidence=ABLATION,
    )
    settled_max_loss: float = tuned(
        0.01,
        unit="ratio",
        meaning="Once settled, moves that lose more than this fraction are taken back.",
        evidence=(
            "tests/unit/policy/test_cost_lines.py: uneven streams on one CPU were 12 % slower "
            "than without any move when only the larger loss counted"
        ),
    )
    standard_deviations: float = tuned(
        2.0,
        unit="ratio",
        meaning="A loss must exceed the allowed one by so many standard deviations of the noise.",
        evidence="assumption",
    )
    initial_noise: float = tuned(
        0.04,
        unit="ratio",
        meaning=(
            "The relative standard deviation of an epoch's rate is taken to be this before it is "
            "known."
        ),
        evidence="assumption",
    )
    noise_weight: float = tuned(
        0.15,
        unit="ratio",
        meaning="The noise estimate follows an epoch with this weight.",
        evidence="assumption",
    )
    alike_overlap: float = tuned(
        0.85,
        unit="ratio",
        meaning=(
            "Two epochs whose distributions of accesses overlap by at least this fraction have "
            "the same use of memory."
        ),
        evidence="assumption",
    )
    min_line_fraction: float = tuned(
        0.01,
        unit="ratio",
        meaning="Moves of less than this fraction of all lines prove nothing.",
        evidence="assumption",
    )
    recovered_fraction: float = tuned(
        0.5,
        unit="ratio",
        meaning=(
            "This fraction of the loss must come back when moves are taken back, or the moves "
            "were not the cause."
        ),
        evidence="assumption",
    )
    derating_range: tuple[float, float] = tuned(
        (1.5, 64.0),
        unit="ratio",
        meaning="A derated tier is taken to be slower by a factor between these two.",
        evidence=ABLATION,
    )
    derating_decay: float = tuned(
        0.98,
        unit="ratio",
        meaning="This fraction of the derating of a tier is left after an epoch.",
        evidence="assumption",
    )


FEEDBACK: Final = FeedbackTuning()
