# SPDX-License-Identifier: Apache-2.0
"""Structured log lines, `key=value` as in logfmt, and texts that a process may have chosen."""

from __future__ import annotations


def logfmt(**fields: object) -> str:
    """One structured log line: key=value, values with spaces quoted."""
    parts = []
    for key, value in fields.items():
        if isinstance(value, float):
            text = f"{value:.4g}"
        elif isinstance(value, dict):
            text = ",".join(f"{k}:{v}" for k, v in value.items())
        else:
            text = str(value)
        if any(c in text for c in ' "=\n') or not text:
            text = '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        parts.append(f"{key}={text}")
    return " ".join(parts)


def printable(text: object) -> str:
    """`text` in valid UTF-8 and without control characters, which a terminal would obey."""
    shown = str(text).encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
