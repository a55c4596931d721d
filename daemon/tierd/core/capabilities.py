# SPDX-License-Identifier: Apache-2.0
"""Numbers of Linux capabilities."""

from __future__ import annotations

from typing import Final

NUMBERS: Final = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_NET_ADMIN": 12,
    "CAP_IPC_LOCK": 14,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_SYS_RESOURCE": 24,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""include/uapi/linux/capability.h."""
