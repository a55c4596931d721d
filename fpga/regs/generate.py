# SPDX-License-Identifier: Apache-2.0
"""Writes every file that follows from neoprof.rdl and from the hash seeds.

``python regs/generate.py`` writes them, ``--check`` compares them with what is in the tree and
exits with 1 if one differs. Outputs: the register block and seed package (SystemVerilog), the C
header of the register map, the Python constants, the C++ seeds, and the documentation page.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import seeds
from peakrdl_markdown import MarkdownExporter
from peakrdl_regblock import RegblockExporter
from peakrdl_regblock.cpuif.axi4lite import AXI4Lite_Cpuif_flattened
from peakrdl_regblock.udps import ALL_UDPS
from systemrdl import RDLCompiler
from systemrdl.node import AddrmapNode, FieldNode, MemNode, Node, RegNode

FPGA = Path(__file__).resolve().parent.parent
SOURCE = FPGA / "regs" / "neoprof.rdl"
SPDX = "SPDX-License-Identifier: Apache-2.0"
HEADER_SPDX = "SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0"
FROM = "Generated from fpga/regs/neoprof.rdl by fpga/regs/generate.py."

Constant = tuple[str, int, str]


def _path(node: Node, top: Node) -> str:
    names: list[str] = []
    while node is not top:
        names.insert(0, node.inst_name.upper())
        assert node.parent is not None
        node = node.parent
    return "_".join(names)


def _field_constants(field: FieldNode, name: str) -> Iterator[Constant]:
    width = field.high - field.low + 1
    description = " ".join(str(field.get_property("desc") or "").split())
    yield f"{name}_SHIFT", field.low, description
    yield f"{name}_WIDTH", width, ""
    yield f"{name}_MASK", ((1 << width) - 1) << field.low, ""
    reset = field.get_property("reset")
    if isinstance(reset, int) and reset and not field.is_sw_writable:
        yield f"{name}_VALUE", reset, ""


def constants(top: AddrmapNode) -> list[Constant]:
    """Return (name, value, description) of every block, register, memory and field."""
    found: list[Constant] = [("SIZE", top.size, "Bytes of the register space.")]
    for node in top.descendants(unroll=False):
        if isinstance(node, RegNode | MemNode):
            name = _path(node, top)
            description = " ".join(str(node.get_property("name")).split())
            node_offset = node.raw_absolute_address if node.is_array else node.absolute_address
            found.append((name, node_offset, description))
            if node.is_array:
                assert node.array_dimensions is not None
                assert node.array_stride is not None
                found.append((f"{name}_COUNT", node.array_dimensions[0], ""))
                found.append((f"{name}_STRIDE", node.array_stride, ""))
            if isinstance(node, MemNode):
                found.append((f"{name}_BYTES", node.size, ""))
            else:
                for field in node.fields():
                    found.extend(_field_constants(field, f"{name}_{field.inst_name.upper()}"))
    return found


def c_header(items: list[Constant]) -> str:
    """Return the C header: offsets, shifts, widths and masks, nothing but macros."""
    lines = [
        f"/* {HEADER_SPDX} */",
        f"/* Register map of the NeoProf card. {FROM} */",
        "#ifndef NEOPROF_REGS_H",
        "#define NEOPROF_REGS_H",
        "",
    ]
    for name, value, description in items:
        literal = f"0x{value:x}" + ("ull" if name.endswith("_MASK") else "")
        comment = f"\t/* {description} */" if description and len(description) < 72 else ""
        lines.append(f"#define NEOPROF_{name} {literal}{comment}")
    lines += ["", "#endif /* NEOPROF_REGS_H */", ""]
    return "\n".join(lines)


def python_module(items: list[Constant]) -> str:
    """Return the Python module with the same constants."""
    lines = [f"# {SPDX}", '"""Register map of the NeoProf card.', "", FROM, '"""', ""]
    lines += ["from typing import Final", ""]
    lines += [f"{name}: Final = 0x{value:X}" for name, value, _ in items]
    return "\n".join(lines) + "\n"


def _stamp(text: str) -> str:
    """Give a generated SystemVerilog file its licence and take out the generator's own lines."""
    body = [line.rstrip() for line in text.splitlines() if "PeakRDL-regblock" not in line]
    while body and not body[0]:
        body.pop(0)
    return "\n".join([f"// {SPDX}", f"// {FROM}", *body]) + "\n"


def outputs() -> dict[Path, str]:
    """Return the text of every generated file by path."""
    compiler = RDLCompiler()
    for udp in ALL_UDPS:
        compiler.register_udp(udp)
    compiler.compile_file(str(SOURCE))
    top = compiler.elaborate().top
    items = constants(top)
    table = seeds.generate()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        RegblockExporter().export(
            top,
            str(out),
            cpuif_cls=AXI4Lite_Cpuif_flattened,
            module_name="np_regs",
            package_name="np_regs_pkg",
            default_reset_activelow=True,
            default_reset_async=True,
            err_if_bad_addr=True,
            err_if_bad_rw=True,
        )
        MarkdownExporter().export(top, str(out / "regs.md"), rename="neoprof")
        regblock = _stamp((out / "np_regs.sv").read_text())
        package = _stamp((out / "np_regs_pkg.sv").read_text())
        page = (out / "regs.md").read_text()
    page = page[page.index("-->") + 3 :].lstrip("\n")
    page = (
        "\n".join(line.rstrip() for line in page.splitlines())
        .replace("<p>", "")
        .replace("</p>", "")
    )
    page = f"<!-- {SPDX} -->\n<!-- {FROM} -->\n# NeoProf registers\n\n{page}\n"
    return {
        FPGA / "rtl" / "gen" / "np_regs.sv": regblock,
        FPGA / "rtl" / "gen" / "np_regs_pkg.sv": package,
        FPGA / "rtl" / "gen" / "np_seeds_pkg.sv": seeds.systemverilog(table),
        FPGA / "include" / "neoprof_regs.h": c_header(items),
        FPGA / "model" / "np_seeds.h": seeds.cplusplus(table),
        FPGA / "python" / "neoprof" / "regs.py": python_module(items),
        FPGA.parent / "docs/hardware/registers.md": page,
    }


def main() -> int:
    """Write the files or, with --check, compare them."""
    parser = argparse.ArgumentParser(description="generate the register files of the card")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    stale = []
    for path, text in outputs().items():
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in stale:
        print(
            f"{path.relative_to(FPGA.parent)}: differs from what its source gives; "
            "run 'make -C fpga regs' and commit the result",
            file=sys.stderr,
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
