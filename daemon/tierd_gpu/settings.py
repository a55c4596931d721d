# SPDX-License-Identifier: Apache-2.0
"""What is configured of the harvester, or set in tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierd.config.serving import GpuConfig

CONFIG: Final = GpuConfig()
"""The configuration's defaults."""


@dataclass(frozen=True, slots=True)
class Techniques:
    """What may be used; each can be switched off to see what it gives.

    Attributes:
        peers: park chunks on neighbours (off: the host only).
        prefetch: bring chunks home before they are used.
        pre_evict: make room at home before it is needed.
        in_place: what is away is used where it is until it comes home.
        reuse: choose victims by expected next use; off: the longest at home first.
    """

    peers: bool = True
    prefetch: bool = True
    pre_evict: bool = True
    in_place: bool = CONFIG.in_place
    reuse: bool = True


@dataclass(frozen=True, slots=True)
class HarvestSettings:
    """The harvester's knobs.

    Attributes:
        floor_bytes: free memory of a lender that borrowers never take (HUVM: 100 MB).
        refill_bytes: room below this starts reclaim (HUVM: 200 MB).
        context_bytes: of a lender, for a borrower that comes: its context there (measured on
            an H100 with driver 580: 523 MiB).
        home_free_chunks: chunks kept free at a borrower's home, ahead of its faults.
        prefetch_chunks: chunks brought home ahead of use (HUVM: 16).
        revoke_bound_ns: time in which a lender gets back everything it lent.
        observe_ns: how long a GPU is watched before it lends.
        own_margin: share of the lender's memory kept beside the most it ever used.
        quota_share: most of a neighbour's memory that one tenant may have.
        durable: no chunk goes to neighbours, so that the loss of one loses nothing. Off: what
            a neighbour has is bounded by `revoke_bound_ns`.
    """

    floor_bytes: int = CONFIG.floor_bytes
    refill_bytes: int = CONFIG.refill_bytes
    context_bytes: int = 523 << 20
    home_free_chunks: int = 24
    prefetch_chunks: int = 16
    revoke_bound_ns: int = CONFIG.revoke_ns
    observe_ns: int = 200_000_000
    own_margin: float = 0.02
    quota_share: float = CONFIG.quota_share
    durable: bool = CONFIG.durable
    techniques: Techniques = Techniques()
