# SPDX-License-Identifier: Apache-2.0
"""House rules of this folder: a licence line in every file, one module a file of its name,
every module in files.f, small files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

FPGA = Path(__file__).resolve().parent.parent
LIMIT = 450  # lines; written files only
SUFFIXES = {".sv", ".vlt", ".rdl", ".py", ".c", ".cc", ".h"}


def problems() -> list[str]:
    """Return what is wrong, one sentence each."""
    found = []
    listed = set((FPGA / "rtl" / "files.f").read_text().split())
    files = [
        path
        for path in FPGA.rglob("*")
        if path.suffix in SUFFIXES and "build" not in path.relative_to(FPGA).parts
    ]
    for path in sorted(files):
        name = path.relative_to(FPGA).as_posix()
        text = path.read_text()
        if "SPDX-License-Identifier" not in text[:200]:
            found.append(f"{name}: no SPDX-License-Identifier in its first lines")
        generated = "generated" in text[:300].lower() or "gen" in path.relative_to(FPGA).parts
        if text.count("\n") > LIMIT and not generated:
            found.append(f"{name}: {text.count(chr(10))} lines, more than {LIMIT}")
        if path.parent == FPGA / "rtl" and path.suffix == ".sv":
            modules = re.findall(r"^(?:module|package) (\w+)", text, re.MULTILINE)
            if modules != [path.stem]:
                found.append(f"{name}: holds {modules}, expected [{path.stem}]")
            if name not in listed:
                found.append(f"{name}: is not in rtl/files.f")
    return found


def main() -> int:
    """Print the problems; return 1 if there are any."""
    found = problems()
    for problem in found:
        print(f"check_files: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
