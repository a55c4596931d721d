# SPDX-License-Identifier: Apache-2.0
"""Constants of the feedback of the policy `cost`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class FeedbackTuning:
    """The feedback controller of the policy `cost`: what moves brought, and what is taken back."""

    epoch_s: float = tuned(
        2.0,
        unit="s",
        meaning="The effect of moves is observed for this time before the next moves.",
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
    alarm_loss: float = tuned(
        0.15,
        unit="ratio",
        meaning="A loss of more than this fraction of the served lines is an alarm.",
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
    max_part_factor: float = tuned(
        4.0,
        unit="ratio",
        meaning="A part of memory counts as at most so many times faster or slower than before.",
        evidence="assumption",
    )
    slice_fraction: float = tuned(
        0.05,
        unit="ratio",
        meaning=(
            "At most this fraction of all lines changes tier in the first epoch and in a trial; a "
            "trial that loses more of them beyond chance ends at once."
        ),
        evidence="assumption",
    )
    min_line_fraction: float = tuned(
        0.01,
        unit="ratio",
        meaning="An epoch that moved less than this fraction of all lines proves nothing.",
        evidence="assumption",
    )
    derating_range: tuple[float, float] = tuned(
        (1.5, 64.0),
        unit="ratio",
        meaning="A derated tier is taken to be slower by a factor between these two.",
        evidence="assumption",
    )
    derating_decay: float = tuned(
        0.98,
        unit="ratio",
        meaning="This fraction of the derating of a tier is left after an epoch.",
        evidence="assumption",
    )


FEEDBACK: Final = FeedbackTuning()


@dataclass(slots=True)
class TrialTuning:
    """Trials of the policy `cost` (perturb and observe): a slice moves, and the rate decides."""

    epochs: int = tuned(
        4,
        unit="count",
        meaning=(
            "A trial takes so many epochs and is compared with as many epochs of rest; both "
            "double where chance is larger than the effect."
        ),
        evidence="assumption",
    )
    overloaded_factor: float = tuned(
        2.0,
        unit="ratio",
        meaning=(
            "A tier whose loaded latency is at least so many times its idle latency is worth a "
            "trial."
        ),
        evidence="assumption",
    )
    min_noise: float = tuned(
        0.01,
        unit="ratio",
        meaning="The standard deviation of an epoch's rate is taken to be at least this fraction.",
        evidence="assumption",
    )
    standard_deviations: float = tuned(
        2.0,
        unit="ratio",
        meaning="What a slice brings must exceed chance by so many standard deviations.",
        evidence="assumption",
    )
    min_gain: float = tuned(
        0.005,
        unit="ratio",
        meaning="A slice must bring this fraction of the served lines beyond chance.",
        evidence="assumption",
    )
    pause_epochs: tuple[int, int] = tuned(
        (16, 256),
        unit="count",
        meaning=(
            "After two failed directions there is no trial for the first number of epochs, which "
            "grows up to the second."
        ),
        evidence="assumption",
    )
    model_error_factor: float = tuned(
        1.5,
        unit="ratio",
        meaning="The promise of the model must exceed its usual error by this factor.",
        evidence="assumption",
    )


TRIAL: Final = TrialTuning()
