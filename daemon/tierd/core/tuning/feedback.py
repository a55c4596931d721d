# SPDX-License-Identifier: Apache-2.0
"""Constants of the feedback of the policy `cost`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.core.tuning.fields import tuned


@dataclass(slots=True)
class FeedbackTuning:
    """The feedback controller of the policy `cost`: what moves brought, and what is taken back."""

    half_life_s: float = tuned(
        5.0,
        unit="s",
        meaning=(
            "Half-life of the distribution of accesses, and of heat where no traffic is counted."
        ),
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
    first_line_fraction: float = tuned(
        0.05,
        unit="ratio",
        meaning="At most this fraction of all lines changes tier in the first epoch.",
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

    slice_line_fraction: float = tuned(
        0.05,
        unit="ratio",
        meaning="A slice has this fraction of all lines, and at least one region.",
        evidence="assumption",
    )
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
    min_gain: float = tuned(
        0.005,
        unit="ratio",
        meaning="A slice must bring this fraction of the served lines beyond chance.",
        evidence="assumption",
    )
    sharp_loss: float = tuned(
        0.05,
        unit="ratio",
        meaning=(
            "One epoch is enough to end a trial that loses more than this fraction beyond chance."
        ),
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
    rest_epochs: int = tuned(
        3,
        unit="count",
        meaning="The model moves nothing for so many epochs after a slice went back.",
        evidence="assumption",
    )
    model_min_gain: float = tuned(
        0.02,
        unit="ratio",
        meaning="The model must promise this fraction of the waiting time, because less is chance.",
        evidence="assumption",
    )
    model_error_factor: float = tuned(
        1.5,
        unit="ratio",
        meaning="The promise of the model must exceed its usual error by this factor.",
        evidence="assumption",
    )


TRIAL: Final = TrialTuning()


@dataclass(slots=True)
class RegressionTuning:
    """The regression window of the policy `cost`: series of moves that lose are taken back."""

    mean_epochs: int = tuned(
        3,
        unit="count",
        meaning="The mean of so many of the latest epochs is compared.",
        evidence="assumption",
    )
    max_loss: float = tuned(
        0.05,
        unit="ratio",
        meaning="A series of moves may lose this fraction of the served lines.",
        evidence="assumption",
    )
    min_gain: float = tuned(
        0.02,
        unit="ratio",
        meaning="A series that gained more than this fraction is accepted.",
        evidence="assumption",
    )
    settled_epochs: int = tuned(
        4,
        unit="count",
        meaning="The effect of a series is known better after so many epochs without moves.",
        evidence="assumption",
    )
    settled_max_loss: float = tuned(
        0.01,
        unit="ratio",
        meaning=(
            "A series of moves may have lost this fraction of the served lines after it has "
            "settled."
        ),
        evidence="assumption",
    )
    max_epochs: int = tuned(
        64,
        unit="count",
        meaning="A series is observed for at most so many epochs.",
        evidence="assumption",
    )
    standard_deviations: float = tuned(
        2.0,
        unit="ratio",
        meaning="A loss must exceed the allowed one by so many standard deviations.",
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
    max_change: float = tuned(
        0.15,
        unit="ratio",
        meaning=(
            "A change between two epochs counts as at most this fraction when the noise is "
            "estimated."
        ),
        evidence="assumption",
    )
    noise_weight: float = tuned(
        0.15,
        unit="ratio",
        meaning="The noise estimate follows an epoch with this weight.",
        evidence="assumption",
    )


REGRESSION: Final = RegressionTuning()
