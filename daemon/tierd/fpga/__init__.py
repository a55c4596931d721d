# SPDX-License-Identifier: Apache-2.0
"""The NeoProf card as a library: the Verilated RTL or its reference model in this process.

Owns the binding of ``fpga/include/neoprof_card.h`` and the card's register constants. Must not
touch hardware: the driver does that.
"""

from tierd.fpga.card import Card, CardError, Snapshot

__all__ = ["Card", "CardError", "Snapshot"]
