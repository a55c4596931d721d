# SPDX-License-Identifier: Apache-2.0
"""Units in configuration values: sizes, rates, durations, shares.

Sizes take decimal (kB, MB, GB, TB) and binary (KiB, MiB, GiB, TiB) units; rates
are sizes followed by "/s"; durations take ns, us, ms, s, min, h; shares are
numbers from 0 to 1 or percentages.
"""

from __future__ import annotations

import math
import re
from typing import Final

SIZE_UNITS: Final = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
DURATION_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
_LARGEST: Final = 2.0**63
"""Nothing in a configuration is larger: sizes and times fit in 63 bits."""
_NUMBER: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%]*(?:/s)?)\s*", re.ASCII)


def _split(text: str, what: str, units: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{_short(text)} is not a {what}; write a number and one of {units}")
    return float(match[1]), match[2]


def _scale(text: str, number: float, factor: int, what: str) -> int:
    scaled = number * factor
    if scaled >= _LARGEST:
        raise ValueError(f"{_short(text)} is too large for a {what}")
    return round(scaled)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def parse_size(text: str) -> int:
    """Bytes in a text such as "200MB" or "1.5GiB".

    Raises:
        ValueError: not a number followed by a known unit.
    """
    number, unit = _split(text, "size", ", ".join(SIZE_UNITS))
    if unit not in SIZE_UNITS:
        raise ValueError(
            f"{_short(text)} has no known size unit; "
            f"write a number and one of {', '.join(SIZE_UNITS)}"
        )
    return _scale(text, number, SIZE_UNITS[unit], "size")


def parse_rate(text: str) -> int:
    """Bytes per second in a text such as "200MB/s".

    Raises:
        ValueError: not a size followed by "/s".
    """
    if not text.rstrip().endswith("/s"):
        raise ValueError(
            f'{_short(text)} is not a rate; write a size and "/s", for example "200MB/s"'
        )
    return parse_size(text.rstrip().removesuffix("/s"))


def parse_duration_ns(text: str) -> int:
    """Nanoseconds in a text such as "30s" or "100ms".

    Raises:
        ValueError: not a number followed by a known unit.
    """
    number, unit = _split(text, "duration", ", ".join(DURATION_UNITS))
    if unit not in DURATION_UNITS:
        raise ValueError(
            f"{_short(text)} has no known unit of time; "
            f"write a number and one of {', '.join(DURATION_UNITS)}"
        )
    return _scale(text, number, DURATION_UNITS[unit], "duration")


def parse_share(value: str | float) -> float:
    """A share from 0 to 1, given as a number or as a text such as "5%".

    Raises:
        ValueError: not a share, or outside 0 to 1.
    """
    if isinstance(value, str):
        number, unit = _split(value, "share", "% (or a number from 0 to 1)")
        if unit not in ("", "%"):
            raise ValueError(f"{_short(value)} is not a share; write 0 to 1 or a percentage")
        share = number / 100 if unit == "%" else number
    else:
        try:
            share = float(value)
        except OverflowError:  # an integer beyond what a float holds
            share = math.inf
    if not 0.0 <= share <= 1.0:
        shown = _short(value) if isinstance(value, str) else f"{share:g}"
        raise ValueError(f"{shown} is not between 0 and 1 (or 0% and 100%)")
    return share


def _exact(number: int, units: dict[str, int]) -> str:
    for unit, factor in sorted(units.items(), key=lambda item: -item[1]):
        if number % factor == 0 and number >= factor:
            return f"{number // factor}{unit}"
    return f"{number}{next(iter(units))}"


def size_text(size: int) -> str:
    """A size as configuration writes it, exact: "64MiB", "200MB"."""
    return _exact(size, SIZE_UNITS)


def rate_text(rate: int) -> str:
    """A rate in bytes per second as configuration writes it, exact: "200MB/s"."""
    return f"{size_text(rate)}/s"


def duration_text(duration_ns: int) -> str:
    """A duration as configuration writes it, exact: "500ms"."""
    return _exact(duration_ns, DURATION_UNITS)


def share_text(share: float) -> str:
    """A share as configuration writes it, exact: "5%", or "0.123456789" where % would round."""
    text = f"{share * 100:.10g}%"
    return text if _is_share(text, share) else repr(share)


def _is_share(text: str, share: float) -> bool:
    try:
        return parse_share(text) == share
    except ValueError:
        return False


def format_size(size: float) -> str:
    """A size for people, in binary units: "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_ns(duration_ns: float) -> str:
    """A time for people: "430 ns", "12.3 us", "4.1 ms", "1.5 s"."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if duration_ns >= 0.9995 * factor:
            return f"{duration_ns / factor:.3g} {unit}"
    return f"{duration_ns:.0f} ns"
