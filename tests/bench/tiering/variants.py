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
        internal: tuning constants, NAME=VALUE.
        methods: of the matrix, those that the settings can change.
        lies: the source takes hot pages for cold ones, and cold ones for hot (guest/lying.py). Such
            a service begins with pages where the oracle puts them, so that it can only lose.
        trial: options of `tierd trial`, for the method that runs one.
    """

    what: str
    toml: str = ""
    methods: tuple[str, ...] = ()
    internal: tuple[str, ...] = ()
    lies: bool = False
    trial: tuple[str, ...] = ()


VARIANTS = {
    DEFAULTS: Variant("Nothing is switched off."),
    "fast-path-off": Variant(
        "The thread that promotes between passes is off, and with it the early end of an epoch "
        "when its refusals or a burst of requests tell that the hot set has moved: the card's "
        "reports only feed heat.",
        "[fast_path]\nenabled = false\n",
        ("tierd-neoprof",),
    ),
    "scan-phases-off": Variant(
        "Scans do not tell of phase changes.",
        methods=("tierd-scan", "tierd-neoprof"),
        internal=("phase.newly_hot_fraction=2", "phase.newly_idle_fraction=2"),
    ),
    "bursts-off": Variant(
        "A burst of refusals or of requests does not end an epoch early.",
        methods=("tierd-neoprof",),
        internal=("phase.spike_factor=1e9",),
    ),
    "phases-off": Variant(
        "Nobody notices a phase change: neither scans nor bursts.",
        methods=("tierd-scan", "tierd-neoprof"),
        internal=(
            "phase.newly_hot_fraction=2",
            "phase.newly_idle_fraction=2",
            "phase.spike_factor=1e9",
        ),
    ),
    "lies": Variant(
        "The source exchanges hot and cold pages, which begin where the oracle puts them. The fast "
        "path, which reads the card itself, is off.",
        "[fast_path]\nenabled = false\n",
        ("tierd-neoprof",),
        lies=True,
    ),
    "lies-unnoticed": Variant(
        "As with lies, and the service keeps no account.",
        "[fast_path]\nenabled = false\n[policy]\nstand_down = false\n",
        ("tierd-neoprof",),
        lies=True,
    ),
    "trial": Variant(
        "The service can be asked, and pages that an undo has moved may come back at once.",
        '[control]\nenabled = true\n[policy]\nmigration_cooldown = "500ms"\n',
        # Eight sweeps of stencil, of 443 ms (28.2 million points a second in its first trial): a
        # part of a sweep would be noise. With twelve pairs one odd window does not decide.
        trial=("--window", "3540ms", "--settle", "2s", "--wash-out", "200ms", "--pairs", "12"),
    ),
}


def placed(method: str, variant: str) -> bool:
    """Whether a cell begins with the pages where the oracle puts them."""
    return method == "oracle" or (variant in VARIANTS and VARIANTS[variant].lies)


def has(method: str, variant: str) -> bool:
    """Whether there is such a cell: a method without the mechanism has the defaults only."""
    return variant == DEFAULTS or method in VARIANTS[variant].methods
