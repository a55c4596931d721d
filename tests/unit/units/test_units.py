# SPDX-License-Identifier: Apache-2.0
"""Quantities with units: what is accepted, what is refused, what is printed."""

from __future__ import annotations

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tierd.core import units


@pytest.mark.parametrize(
    ("text", "size"),
    [("0B", 0), ("200MB", 200_000_000), ("1.5GiB", 3 << 29), (" 64 MiB ", 64 << 20), ("1kB", 1000)],
)
def test_sizes(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "5", "MB", "-5MB", "5 parsec", "5mb", "5MB/s", "5%", "1e3B"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"size"):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("5ns", 5),
        ("20us", 20_000),
        ("0.5s", 500_000_000),
        ("2min", 120 * 10**9),
        ("1h", 36 * 10**11),
    ],
)
def test_durations(text: str, duration_ns: int) -> None:
    assert units.parse_duration_ns(text) == duration_ns


def test_rates_end_in_per_second() -> None:
    assert units.parse_rate("200MB/s") == 200_000_000
    with pytest.raises(ValueError, match="rate"):
        units.parse_rate("200MB")


@pytest.mark.parametrize(("value", "share"), [("5%", 0.05), (0.05, 0.05), ("0.5", 0.5), (1, 1.0)])
def test_shares(value: str | float, share: float) -> None:
    assert units.parse_share(value) == share


@pytest.mark.parametrize(
    "value", ["101%", 1.5, -0.1, float("nan"), float("inf"), 10**400, "5s", "9" * 400 + "%"]
)
def test_what_is_no_share_is_refused(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1|not a share"):
        units.parse_share(value)


@pytest.mark.parametrize("digits", [30, 400, 5000])
def test_numbers_beyond_63_bits_are_refused_in_a_short_message(digits: int) -> None:
    for parse in (units.parse_size, units.parse_duration_ns):
        for unit in ("TiB", "h", "B", "ns"):
            with pytest.raises(ValueError, match=r"size|time|duration") as caught:
                parse("9" * digits + unit)
            assert len(str(caught.value)) < 200


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_a_value_error(text: str) -> None:
    for parse in (units.parse_size, units.parse_rate, units.parse_duration_ns, units.parse_share):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0


@given(st.floats(0, 1))
def test_shares_are_printed_exactly(share: float) -> None:
    assert units.parse_share(_number(units.share_text(share))) == share


def _number(text: str) -> str | float:
    return text if text.endswith("%") else float(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0B"), (64 << 20, "64MiB"), (200_000_000, "200MB"), (1025, "1025B")]
)
def test_sizes_are_printed_in_the_largest_unit_that_is_exact(size: int, text: str) -> None:
    assert units.size_text(size) == text


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (430, "430 ns"),
        (999.4, "999 ns"),
        (999.6, "1 us"),
        (12_340, "12.3 us"),
        (4_100_000, "4.1 ms"),
        (1.5e9, "1.5 s"),
    ],
)
def test_times_are_shown_in_a_unit_that_fits(duration_ns: float, text: str) -> None:
    assert units.format_ns(duration_ns) == text
