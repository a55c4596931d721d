# SPDX-License-Identifier: Apache-2.0
"""The harvester's knobs, with the reason for each default."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1_000_000


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
    in_place: bool = True
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
        horizon_ns: how far uses of a chunk are reckoned ahead.
        own_margin: share of the lender's memory kept beside the most it ever used.
        quota_share: most of a neighbour's memory that one tenant may have.
        bounce_limit: moves of a chunk towards home without a use in between.
        bounce_window_ns: after this time the count starts again.
        outstanding: commands a tenant may have under way.
        fault_ns: what faults on a chunk cost beside the transfer (measured: 280 us where
            all of it is used).
        to_host_ns, to_gpu_ns: what a chunk's move costs beside the link's time, in runs of
            neighbours as the client makes them (measured: 55 and 80 us a call).
        host_first_ns: what it costs beside when the chunk was never on the host, which
            has to find memory (measured).
        backoff_ns: how long a broken way is left alone.
        answer_ns: after this a command without an answer is forgotten.
        durable: nothing goes to neighbours that is nowhere else, so that the loss of one
            loses nothing. Off: what a neighbour has is bounded by `revoke_bound_ns`.
    """

    floor_bytes: int = 100 * MB
    refill_bytes: int = 200 * MB
    context_bytes: int = 523 << 20
    home_free_chunks: int = 24
    prefetch_chunks: int = 16
    revoke_bound_ns: int = 50_000_000
    observe_ns: int = 200_000_000
    horizon_ns: int = 200_000_000
    own_margin: float = 0.02
    quota_share: float = 1.0
    bounce_limit: int = 2
    bounce_window_ns: int = 1_000_000_000
    outstanding: int = 96
    fault_ns: float = 280_000.0
    to_host_ns: float = 14_000.0
    to_gpu_ns: float = 5_000.0
    host_first_ns: float = 474_000.0
    backoff_ns: int = 1_000_000_000
    answer_ns: int = 2_000_000_000
    durable: bool = True
    techniques: Techniques = Techniques()
