# SPDX-License-Identifier: Apache-2.0
"""The programs that a daemon serves, asked of it, for `tierd gpu show`."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np

from tierd.core.units import format_size
from tierd_gpu import wire
from tierd_gpu.links import CHUNK_BYTES
from tierd_gpu.wire import Kind, Role, WireError

WAIT_S = 2.0
"""For a daemon that has accepted the connection and says nothing."""


def ask(path: Path) -> list[np.void] | str:
    """Records of `wire.TENANT`, or why there are none: nobody serves there, or says no."""
    found: list[np.void] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
        daemon.settimeout(WAIT_S)
        try:
            daemon.connect(str(path))
            daemon.send(wire.bare(Kind.SHOW))
            while True:
                kind, records = wire.decode(daemon.recv(wire.MAX_BYTES + 1))
                if kind is Kind.REFUSED:
                    return f"the daemon at {path} says: {records[0]['text'].decode()}"
                if kind is Kind.TENANTS:
                    found += list(records)
                    if len(records) < wire.most(Kind.TENANTS):
                        return found
        except OSError as error:
            return f"no daemon answers at {path}: {error.strerror or error}"
        except WireError as error:
            return f"the daemon at {path} speaks another version: {error}"


def advice(row: np.void) -> str:
    """What keeps a program from being served, or nothing."""
    if not int(row["role"]) & Role.BORROW:
        return ""
    if not row["chunks"]:
        return "it has no memory that can be placed: allocations below 2 MiB, pools or mappings"
    if not row["uses"] and not row["launches"]:
        return "no launch of it was seen: its memory is left to the driver"
    untold = int(row["launches_untold"])
    if untold * 10 > int(row["launches"]):
        share = 100 * untold // int(row["launches"])
        return (
            f"{share} % of its launches do not tell what they use (cuFuncGetParamInfo needs "
            "CUDA 12.4): that is left to the driver"
        )
    return ""


def as_json(row: np.void) -> dict[str, object]:
    """One program: bytes, counts and what keeps it from being served."""
    role = Role(int(row["role"]))
    return {
        "name": row["name"].decode("ascii", "replace"),
        "session": int(row["session"]),
        "uid": int(row["uid"]),
        "gpu": int(row["home"]),
        "borrows": bool(role & Role.BORROW),
        "lends": bool(role & Role.LEND),
        "memory_bytes": int(row["chunks"]) * CHUNK_BYTES,
        "at_home_bytes": int(row["at_home"]) * CHUNK_BYTES,
        "on_peers_bytes": int(row["on_peers"]) * CHUNK_BYTES,
        "on_host_bytes": int(row["on_host"]) * CHUNK_BYTES,
        "uses": int(row["uses"]),
        "launches": int(row["launches"]),
        "launches_untold": int(row["launches_untold"]),
        "moves_ordered": int(row["moves"]),
        "records_dropped": int(row["dropped"]),
        "note": advice(row),
    }


def as_text(rows: list[np.void]) -> str:
    """A line a program, and what keeps it from being served."""
    lines = []
    for row in rows:
        one = as_json(row)
        places = ", ".join(
            f"{format_size(int(row[name]) * CHUNK_BYTES)} {where}"
            for name, where in (("at_home", "at home"), ("on_peers", "on peers"),
                                ("on_host", "on the host"))
        )  # fmt: skip
        lines.append(
            f"program {one['name']} (user {one['uid']}) on gpu {one['gpu']}: {places}; "
            f"{one['launches']} launches, {one['uses']} uses, {one['moves_ordered']} moves"
        )
        if one["note"]:
            lines.append(f"  {one['note']}")
    return "".join(line + "\n" for line in lines or ["no program is served"])
