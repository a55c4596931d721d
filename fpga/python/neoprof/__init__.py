# SPDX-License-Identifier: Apache-2.0
"""The NeoProf card as a library: the Verilated RTL or its reference model in this process."""

from neoprof.card import Card, CardError, Snapshot

__all__ = ["Card", "CardError", "Snapshot"]
