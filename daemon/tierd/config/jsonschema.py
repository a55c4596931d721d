# SPDX-License-Identifier: Apache-2.0
"""A JSON schema of the configuration, for editors that check and complete TOML."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, Final

from tierd.config.model import ROOT
from tierd.config.overrides import KindName
from tierd.config.rules import MatcherKind, RulesKind
from tierd.config.schema import REQUIRED, ListOf, Numbered, Optional, Section, options_of
from tierd.config.values import Flag, Measure, Number, Share, Text
from tierd.core import units
from tierd.core.tiermap import MemoryKind

_NUMBER: Final = r"[0-9]+(\.[0-9]+)?"
_SIZE: Final = f"^{_NUMBER} *({'|'.join(units.SIZE_UNITS)})"
_PATTERNS: Final = {
    "size": f"{_SIZE}$",
    "rate": f"{_SIZE}/s$",
    "duration": f"^{_NUMBER} *({'|'.join(units.DURATION_UNITS)})$",
}
_MATCHER: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Which processes are meant; several keys must all hold.",
    "additionalProperties": False,
    "properties": {
        "pid": {"type": "integer", "minimum": 1},
        "exe": {"type": "string", "minLength": 1},
        "cmdline": {"type": "string", "minLength": 1},
        "cgroup": {"type": "string", "pattern": "^/"},
        "uid": {"type": ["integer", "string"]},
        "min_rss": {"type": "string", "pattern": _PATTERNS["size"]},
        "all": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/matcher"}},
        "any": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/matcher"}},
        "not": {"$ref": "#/$defs/matcher"},
    },
}


def schema() -> dict[str, Any]:
    """The schema of the whole file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tierd.toml",
        **_reported(ROOT),
        "$defs": {"matcher": _MATCHER},
    }


@singledispatch
def _reported(kind: Any) -> dict[str, Any]:
    """A kind that has no form here: any value, with its description."""
    return {"$comment": str(kind.describe())}


@_reported.register
def _(kind: Section) -> dict[str, Any]:
    properties, needed = {}, []
    for key, (_, made) in options_of(kind.cls).items():
        told = {"description": made.doc, **_reported(made.kind)}
        if made.default is REQUIRED:
            needed.append(key)
        elif made.default is not None and not isinstance(made.kind, Section):
            told["default"] = made.default
        properties[key] = told
    table = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**table, "required": needed} if needed else table


@_reported.register
def _(kind: Numbered) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {"^(0|[1-9][0-9]*)$": _reported(kind.item)},
    }


@_reported.register
def _(kind: Text) -> dict[str, Any]:
    told: dict[str, Any] = {"type": "string", "minLength": 1}
    return {**told, "enum": list(kind.choices)} if kind.choices else told


@_reported.register
def _(kind: KindName) -> dict[str, Any]:
    del kind
    return {"type": "string", "enum": [str(each) for each in MemoryKind]}


@_reported.register
def _(kind: Flag) -> dict[str, Any]:
    del kind
    return {"type": "boolean"}


@_reported.register
def _(kind: Number) -> dict[str, Any]:
    limits = {"minimum": kind.low, "maximum": kind.high}
    return {"type": "integer" if kind.whole else "number", **limits}


@_reported.register
def _(kind: Measure) -> dict[str, Any]:
    limits = f"{kind.write(kind.low)} to {kind.write(kind.high)}"
    return {"type": "string", "pattern": _PATTERNS[kind.what], "$comment": limits}


@_reported.register
def _(kind: Share) -> dict[str, Any]:
    bare = {"type": "number", "minimum": kind.low, "maximum": kind.high}
    return {"anyOf": [{"type": "string", "pattern": f"^{_NUMBER} *%?$"}, bare]}


@_reported.register
def _(kind: ListOf) -> dict[str, Any]:
    told = {"type": "array", "items": _reported(kind.item), "maxItems": kind.most}
    if kind.least:
        told["minItems"] = kind.least
    if kind.unique:
        told["uniqueItems"] = True
    return told


@_reported.register
def _(kind: RulesKind) -> dict[str, Any]:
    return {"type": "array", "items": _reported(kind.item)}


@_reported.register
def _(kind: Optional) -> dict[str, Any]:
    return _reported(kind.item)


@_reported.register
def _(kind: MatcherKind) -> dict[str, Any]:
    matcher = {"$ref": "#/$defs/matcher"}
    return matcher if kind.empty else {**matcher, "minProperties": 1}
