# SPDX-License-Identifier: Apache-2.0
"""Reading small kernel text files below a root, so that captured trees work too."""

from __future__ import annotations

from pathlib import Path


def parse_list(text: str) -> frozenset[int]:
    """Numbers in the kernel's list format, for example "0-3,8" (bitmap_print_to_pagebuf).

    Raises:
        ValueError: something else stands there.
    """
    numbers: set[int] = set()
    for part in text.strip().split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        low, high = int(first), int(last) if dash else int(first)
        if low < 0 or high < low or high - low > 1 << 20:
            raise ValueError(f"{part!r} is not a range")
        numbers.update(range(low, high + 1))
    return frozenset(numbers)


class SysTree:
    """The files of one host below `root` ("/" for the running one)."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def path(self, relative: str) -> Path:
        """The place of `relative` (given without the leading slash)."""
        return self.root / relative

    def text(self, relative: str) -> str | None:
        """The file's text without white space around it, or None if it cannot be read."""
        try:
            raw = self.path(relative).read_bytes()
        except OSError:
            return None
        return raw.decode("utf-8", "replace").strip()

    def integer(self, relative: str, base: int = 10) -> int | None:
        """The number in a file, or None if there is no file or no number in it."""
        text = self.text(relative)
        try:
            return None if text is None else int(text, base)
        except ValueError:
            return None

    def numbers(self, relative: str) -> frozenset[int] | None:
        """The list in a file, or None if there is no file or no list in it."""
        text = self.text(relative)
        try:
            return None if text is None else parse_list(text)
        except ValueError:
            return None

    def names(self, relative: str) -> list[str]:
        """Names in a folder, sorted; empty if there is no such folder."""
        try:
            return sorted(entry.name for entry in self.path(relative).iterdir())
        except OSError:
            return []

    def exists(self, relative: str) -> bool:
        """Whether the file or folder is there and reachable."""
        try:
            return self.path(relative).exists()
        except OSError:
            return False
