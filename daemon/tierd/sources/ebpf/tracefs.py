# SPDX-License-Identifier: Apache-2.0
"""Tracepoints: their numbers, where their fields stand, and what their numbers mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.core.errors import UnavailableError

ROOTS: Final = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
_FIELD: Final = re.compile(r"field:[^;]*?(\w+)(?:\[\d*\])?;\s*offset:(\d+);\s*size:(\d+);")
_PAIR: Final = re.compile(r'\{\s*(\d+),\s*"([^"]*)"\s*\}')


@dataclass(frozen=True, slots=True)
class Tracepoint:
    """One tracepoint.

    Attributes:
        id: its number, the `config` of a perf event.
        fields: (offset, size) in bytes by name.
        format: the text of its print format.
    """

    id: int
    fields: dict[str, tuple[int, int]]
    format: str

    def symbols(self, field: str) -> dict[int, str]:
        """The names of a field's values, as `__print_symbolic` has them."""
        start = self.format.find(f"__print_symbolic(REC->{field},")
        if start < 0:
            return {}
        end = self.format.find(")", start)
        return {int(n): text for n, text in _PAIR.findall(self.format[start:end])}


def parse_format(text: str) -> Tracepoint:
    """A tracepoint from the text of its `format` file."""
    found = re.search(r"^ID:\s*(\d+)", text, re.MULTILINE)
    fields = {name: (int(offset), int(size)) for name, offset, size in _FIELD.findall(text)}
    _, _, print_format = text.partition("print fmt:")
    return Tracepoint(int(found[1]) if found else -1, fields, print_format)


def find(name: str) -> Tracepoint:
    """The tracepoint `subsystem:event`.

    Raises:
        UnavailableError: tracefs is not mounted or not readable, or has no such event.
    """
    place = name.replace(":", "/")
    for root in ROOTS:
        try:
            return parse_format((root / "events" / place / "format").read_text())
        except FileNotFoundError:
            continue
        except PermissionError as error:
            raise UnavailableError(
                f"tracefs ({root}) cannot be read", hint="run tierd as root"
            ) from error
    if not any((root / "events").is_dir() for root in ROOTS):
        raise UnavailableError(
            "tracefs is not mounted", hint="mount -t tracefs tracefs /sys/kernel/tracing"
        )
    raise UnavailableError(f"this kernel has no tracepoint {name}")
