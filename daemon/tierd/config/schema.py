# SPDX-License-Identifier: Apache-2.0
"""Kinds of configuration values that hold others, and the fields that options are."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tierd.config.values import Kind, join, show_value, unknown_key
from tierd.core.errors import ConfigError

KEY: Final = "tierd.option"
"""Where a dataclass field's metadata keeps its `Option`."""
REQUIRED: Final = object()
"""The default of a key that has none."""
_UNIT: Final = re.compile(r"_(ns|bytes|bytes_per_s|per_s)$")


@dataclass(frozen=True, slots=True)
class Option:
    """One key: its kind, its default in TOML form, what it is for, its name if not `key_of`'s."""

    kind: Kind
    default: Any
    doc: str
    key: str = ""


def option(kind: Kind, default: Any, doc: str, key: str = "") -> Any:
    """A dataclass field for a key; its default is `default` parsed by `kind`."""
    made = Option(kind, default, doc, key)
    return dataclasses.field(
        default_factory=lambda: kind.parse(default, "default"), metadata={KEY: made}
    )


def section(cls: type[Any]) -> Any:
    """A field for a table, described by the dataclass `cls`: its purpose by the docstring."""
    purpose = (cls.__doc__ or "").partition("\n")[0].partition("]: ")[2]
    doc = purpose[:1].upper() + purpose[1:]
    return dataclasses.field(default_factory=cls, metadata={KEY: Option(Section(cls), {}, doc)})


_DESCRIBED: Final[dict[type[Any], Mapping[str, Option]]] = {}


def describe(cls: type[Any], **options: Option) -> None:
    """Make keys of fields of a dataclass whose package must not import this one."""
    _DESCRIBED[cls] = options


def key_of(attribute: str) -> str:
    """The key in TOML: the attribute's name without its unit, which the value carries there."""
    return _UNIT.sub("", attribute)


def options_of(cls: type[Any]) -> dict[str, tuple[str, Option]]:
    """TOML key → (attribute name, Option) of every option of a section's dataclass."""
    found = {}
    for item in dataclasses.fields(cls):
        made = item.metadata.get(KEY) or _DESCRIBED.get(cls, {}).get(item.name)
        if made is not None:
            found[made.key or key_of(item.name)] = (item.name, made)
    return found


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of one kind, as a tuple; `unique` refuses a second of the same."""

    item: Kind
    least: int = 0
    most: int = 1024
    unique: bool = False

    def parse(self, value: Any, path: str) -> tuple[Any, ...]:
        """A tuple of parsed items."""
        if not isinstance(value, list):
            raise ConfigError(path, f"must be a list in square brackets, not {show_value(value)}")
        if not self.least <= len(value) <= self.most:
            raise ConfigError(
                path, f"has {len(value)} entries, not between {self.least} and {self.most}"
            )
        items: list[Any] = []
        for index, raw in enumerate(value):
            parsed = self.item.parse(raw, f"{path}[{index}]")
            if self.unique and parsed in items:
                raise ConfigError(f"{path}[{index}]", f"{show_value(raw)} is there twice")
            items.append(parsed)
        return tuple(items)

    def text(self, value: Any) -> Any:
        """A list."""
        return [self.item.text(item) for item in value]

    @property
    def about(self) -> str:
        """What is in the list."""
        return f"list of: {self.item.about}"

    @property
    def schema(self) -> Mapping[str, Any]:
        """An array."""
        limits = {"minItems": self.least} if self.least else {}
        unique = {"uniqueItems": True} if self.unique else {}
        items = {"type": "array", "items": self.item.schema, "maxItems": self.most}
        return {**items, **limits, **unique}


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be left out (TOML has no null), else of the kind `item`."""

    item: Kind

    def parse(self, value: Any, path: str) -> Any:
        """None stands for a key that was left out."""
        return None if value is None else self.item.parse(value, path)

    def text(self, value: Any) -> Any:
        """None for a key to leave out."""
        return None if value is None else self.item.text(value)

    @property
    def about(self) -> str:
        """The kind of the value."""
        return f"{self.item.about}; may be left out"

    @property
    def schema(self) -> Mapping[str, Any]:
        """That of the value."""
        return self.item.schema


@dataclass(frozen=True, slots=True)
class Section:
    """A table with the keys of a dataclass made of options."""

    cls: type[Any]

    def parse(self, value: Any, path: str) -> Any:
        """An instance of the dataclass; keys that are absent take their defaults."""
        if not isinstance(value, dict):
            raise ConfigError(path, f"must be a table, not {show_value(value)}")
        options = options_of(self.cls)
        for key in value:
            if key not in options:
                raise unknown_key(key, options, path)
        given = {
            attribute: made.kind.parse(value[key], join(path, key))
            for key, (attribute, made) in options.items()
            if key in value
        }
        missing = [
            key
            for key, (attribute, made) in options.items()
            if attribute not in given and made.default is REQUIRED
        ]
        if missing:
            raise ConfigError(join(path, missing[0]), "is missing here")
        made_section = self.cls(**given)
        check = getattr(made_section, "check", None)
        if check is not None:
            check(path)
        return made_section

    def text(self, value: Any) -> Any:
        """A table of every key that is set."""
        table = {}
        for key, (attribute, made) in options_of(self.cls).items():
            shown = made.kind.text(getattr(value, attribute))
            if shown is not None:
                table[key] = shown
        return table

    @property
    def about(self) -> str:
        """The keys."""
        return f"table with {', '.join(options_of(self.cls))}"

    @property
    def schema(self) -> Mapping[str, Any]:
        """An object with the keys, their purposes and defaults."""
        properties, needed = {}, []
        for key, (_, made) in options_of(self.cls).items():
            told = {"description": made.doc, **made.kind.schema}
            if made.default is REQUIRED:
                needed.append(key)
            elif made.default is not None and not isinstance(made.kind, Section):
                told["default"] = made.default
            properties[key] = told
        table = {"type": "object", "additionalProperties": False, "properties": properties}
        return {**table, "required": needed} if needed else table


@dataclass(frozen=True, slots=True)
class Numbered:
    """A table whose keys are whole numbers from 0 to `most`, each with one `item`."""

    item: Kind
    most: int

    def parse(self, value: Any, path: str) -> Mapping[int, Any]:
        """Number → parsed item, in ascending order."""
        if not isinstance(value, dict):
            raise ConfigError(path, f"must be a table, not {show_value(value)}")
        found = {}
        for key, raw in value.items():
            where = join(path, key)
            plain = key.isascii() and key.isdigit() and len(key) < 9 and key == str(int(key))
            if not plain or int(key) > self.most:
                raise ConfigError(where, f"must be a number from 0 to {self.most}")
            found[int(key)] = self.item.parse(raw, where)
        return dict(sorted(found.items()))

    def text(self, value: Any) -> Any:
        """A table with the numbers as keys."""
        return {str(number): self.item.text(item) for number, item in value.items()}

    @property
    def about(self) -> str:
        """What each entry is."""
        return f"by number: {self.item.about}"

    @property
    def schema(self) -> Mapping[str, Any]:
        """An object whose keys are numbers."""
        numbers = {"^(0|[1-9][0-9]*)$": self.item.schema}
        return {"type": "object", "additionalProperties": False, "patternProperties": numbers}


def required(kind: Kind, doc: str) -> Any:
    """A dataclass field for a key that must be given."""
    return dataclasses.field(metadata={KEY: Option(kind, REQUIRED, doc)})


def kind_of(kind: Kind | None, key: str) -> Kind | None:
    """The kind of what `key` holds inside a value of `kind`; None where nothing is known."""
    if isinstance(kind, Numbered):
        return kind.item
    if isinstance(kind, Section):
        found = options_of(kind.cls).get(key)
        return found[1].kind if found else None
    return None
