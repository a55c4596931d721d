# SPDX-License-Identifier: Apache-2.0
"""What differs between two configurations, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tierd.config.model import ROOT, Config
from tierd.config.schema import Numbered, Section, kind_of
from tierd.config.values import Kind, join
from tierd.config.write import as_table


@dataclass(frozen=True, slots=True)
class Difference:
    """One key with two values, as TOML values; None where the key is left out."""

    key: str
    old: Any
    new: Any


def differences(old: Config, new: Config) -> list[Difference]:
    """The keys whose values differ, in the order of the configuration."""
    return list(_differences(as_table(old), as_table(new), ROOT, ""))


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], kind: Kind | None, path: str
) -> Iterator[Difference]:
    for key in dict.fromkeys([*old, *new]):
        here = join(path, key)
        before, after = old.get(key), new.get(key)
        inner = kind_of(kind, key)
        if isinstance(inner, Section | Numbered):
            yield from _differences(before or {}, after or {}, inner, here)
        elif before != after:
            yield Difference(here, before, after)
