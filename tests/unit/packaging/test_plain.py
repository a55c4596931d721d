# SPDX-License-Identifier: Apache-2.0
"""Terminals and locales that lack characters: commands print plain ones, and end as they should."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tierd.cli

ROOT = Path(__file__).parents[3]
COMMAND = "import sys, tierd.cli; sys.exit(tierd.cli.main())"


def printed(text: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    tierd.cli.speak_plainly()
    stream.write(text)
    stream.flush()
    return raw.getvalue()


@pytest.mark.parametrize(
    ("text", "encoding", "plain"),
    [
        ("a \u2192 b\u2026", "iso-8859-1", b"a -> b..."),
        ("12 \u00b5s", "ascii", b"12 us"),
        ("12 \u00b5s", "iso-8859-1", b"12 \xb5s"),
        ("a \u2192 b", "utf-8", "a \u2192 b".encode()),
        ("\u4e2d", "ascii", b"\\u4e2d"),
        # A name that is no UTF-8, as os.fsdecode has it.
        ("name \udcff", "utf-8", b"name \\udcff"),
        ("name \udcff", "koi8-r", b"name \\udcff"),
    ],
)
def test_what_an_encoding_lacks_is_printed_plainly(
    text: str, encoding: str, plain: bytes, monkeypatch: pytest.MonkeyPatch
):
    assert printed(text, encoding, monkeypatch) == plain


@pytest.mark.parametrize("encoding", ["iso-8859-1", "ascii", "cp437", "shift_jis"])
@pytest.mark.parametrize("command", [["topology"], ["doctor"], ["config", "show"], ["--help"]])
def test_commands_end_without_a_traceback_in_any_locale(command: list[str], encoding: str):
    """`LC_ALL=en_US.ISO-8859-1 tierd topology` ended in one."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": f"{ROOT}/daemon"}
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *command],
        capture_output=True, check=False, env=environment, timeout=300,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr
    assert done.stdout.decode(encoding)
    assert done.returncode in (0, 4, 5)
