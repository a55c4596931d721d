# SPDX-License-Identifier: Apache-2.0
"""The tierd kernel module from user space: control by netlink, data by a mapped ring."""

from __future__ import annotations

from tierd.sources.kmod.neoprof import Card, CardRange, Cards, Profile
from tierd.sources.kmod.netlink import Control, ScanState, TargetState
from tierd.sources.kmod.ring import Ring

__all__ = [
    "Card",
    "CardRange",
    "Cards",
    "Control",
    "Profile",
    "Ring",
    "ScanState",
    "TargetState",
]
