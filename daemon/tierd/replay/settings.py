# SPDX-License-Identifier: Apache-2.0
"""Other settings for a replay: which keys can change anything, and how they are given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tierd.config.model import Config
from tierd.config.values import parse_assignment
from tierd.config.whole import as_table, load, with_values
from tierd.config.whole import differences as configured_differences
from tierd.core.errors import ConfigError, did_you_mean

SECTIONS: Final = ("policy", "heat", "migration")
"""Tables of the configuration that a replay uses."""
USED: Final = ("migration.rate_limit", "heat.half_life", "heat.memory")
"""Their keys that can change a replay, beside all of [policy]."""
INTERNAL: Final = "internal."
"""Before the name of a tuning constant (`tierd.core.tuning`)."""


def parse_setting(text: str) -> tuple[str, Any]:
    """The dotted key and the value of "KEY=VALUE"; a value that is no TOML is a text.

    Raises:
        ConfigError: no "=", or a key that cannot change a replay.
    """
    key, value = parse_assignment(text)
    if not key.startswith("policy.") and key not in USED:
        policy = (f"policy.{name}" for name in as_table(Config())["policy"])
        near = did_you_mean(key, [*USED, *policy])
        hint = f"{near} what does: policy.*, {', '.join(USED)}"
        raise ConfigError(key, "changes nothing in a replay", hint=hint.lstrip())
    return key, value


def split_internal(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Settings of the configuration, and those of tuning constants without their "internal."."""
    internal = [text.removeprefix(INTERNAL) for text in texts if text.startswith(INTERNAL)]
    return [text for text in texts if not text.startswith(INTERNAL)], internal


def make_change(
    settings: Sequence[tuple[str, Any]], file: Path | None, *, internal: bool = False
) -> Callable[[Config], Config] | None:
    """What turns a recorded configuration into the one to replay with; None for no change.

    Args:
        settings: dotted keys and values; they win over the file.
        file: a configuration whose [policy], [heat] and [migration] are used.
        internal: tuning constants are changed, so that it is no replay of the same settings.

    Raises:
        ConfigError: the file is wrong.
    """
    if not settings and file is None and not internal:
        return None
    other = None if file is None else load(file)

    def change(config: Config) -> Config:
        if other is not None:
            parts = {name: getattr(other, name) for name in SECTIONS}
            config = dataclasses.replace(config, **parts)
        return with_values(config, dict(settings))

    return change


def differences(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    """Dotted key → its two values, of the keys that differ and can change a replay."""
    return {
        each.key: (each.old, each.new)
        for each in configured_differences(old, new)
        if each.key.startswith("policy.")
        # A file that leaves heat.memory to the host changes nothing: the recording has a table.
        or (each.key in USED and each.new is not None)
    }
