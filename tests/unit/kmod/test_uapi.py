# SPDX-License-Identifier: Apache-2.0
"""`tierd.sources.kmod.uapi`, the user-API header and the netlink description say the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import frame_owners
import numpy as np

from tierd.sources.kmod import uapi

KMOD = Path(__file__).resolve().parents[3] / "kmod"
HEADER = KMOD / "uapi/tierd.h"
ENUMS = {
    "TIERD_CMD_": uapi.Command,
    "TIERD_SCAN_": uapi.ScanFlags,
    "TIERD_EVENT_": uapi.Event,
    "TIERD_RECORD_": uapi.Kind,
    "TIERD_PAGE_": uapi.PageFlags,
    "TIERD_OWNER_": frame_owners.OwnerStatus,
    "TIERD_CARD_STATE_": uapi.CardState,
    "TIERD_TRACK_": uapi.Track,
    "TIERD_CARD_": uapi.CardFlags,
    "TIERD_CARD_DO_": uapi.CardDo,
    "TIERD_CARD_HAS_": uapi.Features,
}
STRUCTS = {
    "tierd_ring_info": uapi.INFO,
    "tierd_record": uapi.RECORD,
    "tierd_owner": frame_owners.OWNER,
    "tierd_stats": np.dtype([(name, "=u8") for name in uapi.STATS]),
    "tierd_target_stats": np.dtype([(name, "=u8") for name in uapi.TARGET_STATS]),
    "tierd_card_range": uapi.CARD_RANGE,
    "tierd_card_geometry": uapi.CARD_GEOMETRY,
    "tierd_card_stats": np.dtype([(name, "=u8") for name in uapi.CARD_STATS]),
    "tierd_profile": uapi.PROFILE,
}
NUMBERS = {
    "TIERD_GENL_VERSION": uapi.VERSION,
    "TIERD_MAX_RANGES": uapi.MAX_RANGES,
    "TIERD_MAX_NODES": uapi.MAX_NODES,
    "TIERD_HISTORY": uapi.HISTORY,
    "TIERD_NO_TARGET": frame_owners.NO_TARGET,
    "TIERD_RESOLVE_MAX": frame_owners.RESOLVE_MAX,
    "TIERD_RING_MAGIC": uapi.RING_MAGIC,
    "TIERD_RING_VERSION": uapi.RING_VERSION,
    "TIERD_RING_HEAD": uapi.RING_HEAD,
    "TIERD_RING_DATA": uapi.RING_DATA,
    "TIERD_IOC_RESOLVE": frame_owners.IOC_RESOLVE,
    "TIERD_IOC_KINDS": uapi.IOC_KINDS,
    "TIERD_CARD_BINS": uapi.BINS,
}


def expected() -> dict[str, int]:
    """Every number that Python has, by an expression of C."""
    said = dict(NUMBERS)
    for prefix, kind in ENUMS.items():
        said |= {prefix + member.name: int(member) for member in kind}
    said |= {name: number for number, (name, _) in enumerate(uapi.ATTRIBUTES)}
    said["TIERD_A_MAX"] = len(uapi.ATTRIBUTES) - 1
    said["TIERD_CMD_MAX"] = max(uapi.Command)
    for name, dtype in STRUCTS.items():
        said[f"sizeof(struct {name})"] = dtype.itemsize
        for field in dtype.names or ():
            said[f"offsetof(struct {name}, {field})"] = int(dtype.fields[field][1])
    return said


def test_header_and_python_have_the_same_numbers(tmp_path: Path) -> None:
    said = expected()
    lines = "".join(f'printf("%llu\\n", (unsigned long long)({text}));' for text in said)
    source = (
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\nint main(void){{{lines}}}'
    )
    program = tmp_path / "numbers"
    subprocess.run(
        ["cc", "-Wall", "-Wextra", "-Werror", "-x", "c", "-", "-o", str(program)],
        input=source,
        text=True,
        check=True,
    )
    out = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(said, map(int, out), strict=True)) == said


def test_every_enumerator_of_the_header_is_known_to_python() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    found = {
        name
        for body in re.findall(r"enum \w+ \{(.*?)\}", text, re.S)
        for name in re.findall(r"\b(TIERD_\w+)\s*(?:=|,)", body)
    }
    assert {name for name in found if not name.endswith("_UNSPEC")} <= set(expected())


def test_netlink_description_has_the_same_names_in_the_same_order() -> None:
    text = (KMOD / "tierd.yaml").read_text()
    sets = text[text.index("attribute-sets:") : text.index("operations:")]
    attributes = re.findall(r"^        name: ([\w-]+)$", sets, re.M)
    known = [name.removeprefix("TIERD_A_") for name, _ in uapi.ATTRIBUTES[1:]]
    assert [name.upper().replace("-", "_") for name in attributes] == known
    operations = text[text.index("operations:") :]
    names = re.findall(
        r"^      name: ([\w-]+)$", operations[: operations.index("mcast-groups:")], re.M
    )
    assert [name.upper().replace("-", "_") for name in names] == [c.name for c in uapi.Command]
    structs = {
        "stats": uapi.STATS,
        "target-stats": uapi.TARGET_STATS,
        "card-stats": uapi.CARD_STATS,
        "card-range": uapi.CARD_RANGE.names or (),
        "card-geometry": uapi.CARD_GEOMETRY.names or (),
        "profile": uapi.PROFILE_COUNTERS + uapi.PROFILE_BOUNDS,
    }
    for name, fields in structs.items():
        part = text[text.index(f"    name: {name}\n    type: struct") :]
        part = part[: part.index("  -\n", 5)] if "  -\n" in part[5:] else part
        listed = re.findall(r"\{ name: ([\w-]+), type: [us]\d+ \}", part)[: len(fields)]
        assert [field.replace("-", "_") for field in listed] == list(fields)
