# SPDX-License-Identifier: Apache-2.0
"""The tierd kernel module from user space: control by netlink, data by a mapped ring.

Owns: the module's user API (`kmod/uapi/tierd.h`) in Python.
Must not touch: what its data mean to heat and policy (`tierd.sources.scan` does).
"""

from __future__ import annotations

from tierd.kmod.frames import FrameJoin, FrameOwner
from tierd.kmod.neoprof import Card, CardRange, Cards, Profile
from tierd.kmod.netlink import Control, ScanState, TargetState
from tierd.kmod.ring import Ring

__all__ = [
    "Card",
    "CardRange",
    "Cards",
    "Control",
    "FrameJoin",
    "FrameOwner",
    "Profile",
    "Ring",
    "ScanState",
    "TargetState",
]
