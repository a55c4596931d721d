# SPDX-License-Identifier: Apache-2.0
"""Named settings of tierd that the benchmark compares with its defaults."""

from __future__ import annotations

from dataclasses import dataclass

from results import DEFAULTS


@dataclass(frozen=True)
class Variant:
    """Settings of tierd.

    Attributes:
        what: one sentence on all that they switch off.
        toml: the settings.
        methods: of the matrix, those that the settings can change.
    """

    what: str
    toml: str = ""
    methods: tuple[str, ...] = ()


VARIANTS = {
    DEFAULTS: Variant("Nothing is switched off."),
    "fast-path-off": Variant(
        "The thread that promotes between passes is off, and with it the early end of an epoch "
        "when its refusals or a burst of requests tell that the hot set has moved: the card's "
        "reports only feed heat.",
        "[fast_path]\nenabled = false\n",
        ("tierd-neoprof",),
    ),
    "change-off": Variant(
        "That the hot set has moved is not noticed: old heat is forgotten by its half-life only.",
        "[policy.phase_change]\nenabled = false\n",
        ("tierd-scan", "tierd-neoprof", "tierd-damon"),
    ),
}


def has(method: str, variant: str) -> bool:
    """Whether there is such a cell: a method without the mechanism has the defaults only."""
    return variant == DEFAULTS or method in VARIANTS[variant].methods
