# SPDX-License-Identifier: Apache-2.0
"""What the commands that speak with the service take on the command line."""

from __future__ import annotations

import pytest

from tierd.cli import build_parser


def test_an_address_is_a_number_in_any_base() -> None:
    args = build_parser("explain").parse_args(["explain", "1", "--address", "0x7f00"])
    assert args.address == 0x7F00


@pytest.mark.parametrize("text", ["zzz", "0x", ""])
def test_what_is_no_address_is_told_with_one(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser("explain").parse_args(["explain", "1", "--address", text])
    said = capsys.readouterr().err
    assert f"{text!r} is no address; such as 0x7f12a4000000" in said
