# SPDX-License-Identifier: Apache-2.0
"""QEMU's monitor (QMP) through a Unix socket: one command a connection."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

WAIT_S = 60.0


def execute(monitor: Path, command: str, /, **arguments: Any) -> Any:
    """What QEMU returns; `_` in names of arguments stands for `-`.

    Raises:
        RuntimeError: QEMU refused; its message.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(WAIT_S)
        connection.connect(str(monitor))
        with connection.makefile("rw") as lines:
            lines.readline()  # the greeting
            _ask(lines, {"execute": "qmp_capabilities"})
            named = {name.replace("_", "-"): value for name, value in arguments.items()}
            return _ask(lines, {"execute": command, "arguments": named})


def _ask(lines: Any, request: dict[str, Any]) -> Any:
    lines.write(json.dumps(request) + "\n")
    lines.flush()
    for line in lines:
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"QEMU refused {request}: {answer['error']['desc']}")
        if "return" in answer:
            return answer["return"]
    raise RuntimeError(f"QEMU did not answer {request}")
