# SPDX-License-Identifier: Apache-2.0
"""The kernel's text of how much memory there is: /proc/meminfo and nodeN/meminfo."""

from __future__ import annotations


def parse_meminfo(text: str) -> tuple[int, int] | None:
    """(total, free) bytes of the host or of a node, or None where the text does not say."""
    found = []
    for name in ("MemTotal:", "MemFree:"):
        _, there, value = text.partition(name)
        number = value.partition(" kB")[0].strip()
        if not (there and number.isdecimal()):
            return None
        found.append(int(number) * 1024)
    return found[0], found[1]
