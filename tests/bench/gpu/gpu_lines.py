# SPDX-License-Identifier: Apache-2.0
"""The report of a run on a real GPU: a line at a time, nothing lost when a part ends badly."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any


class Report:
    """Lines as they come: on standard output, in a file, and whether all rules held."""

    def __init__(self, out: Path | None) -> None:
        self.file = out.open("w", encoding="utf-8") if out else None
        self.broken: list[str] = []
        self.losses: dict[str, list[str]] = {}

    def say(self, part: str, line: dict[str, Any]) -> None:
        """One line."""
        line = {"part": part, **line}
        losses = line.pop("losses", None)
        if losses:
            self.losses[part] = losses
            plain = self.losses.get("torch none", losses)
            # Under `borrow` the memory is managed, or the library was not there at all.
            borrowed = not part.endswith(("borrow", "served")) or line.get("managed") == 1
            line |= {"last_loss": float.fromhex(losses[-1]),
                     "holds": borrowed and losses == plain[: len(losses)]}  # fmt: skip
        text = json.dumps(line)
        print(text, flush=True)
        if self.file:
            self.file.write(text + "\n")
            self.file.flush()
        if line.get("holds") is False:
            self.broken.append(f"{part}: {line.get('step')}")

    def run(self, part: str, command: list[str], limit_s: float, **more: str) -> None:
        """A program that prints lines, ended at its limit with what it printed kept."""
        try:
            done = subprocess.run(
                command, env={**os.environ, **more}, timeout=limit_s, capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            out, said, code = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            out = (late.stdout or b"").decode() if isinstance(late.stdout, bytes) else ""
            said, code = f"ended at its limit of {limit_s} s", -1
        for text in out.splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                self.say(part, json.loads(text))
        if code:
            last = (said.strip().splitlines() or [""])[-1]
            self.say(part, {"step": "ended", "code": code, "said": last, "holds": False})
