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
        write_back: give parked chunks a host copy, so that taking them back costs nothing.
        multi_path: stage host chunks on neighbours through their own host links.
        in_place: use sparsely touched chunks where they are.
        cancel: take back prefetches that a changed prediction made useless.
        forecast: lend by the forecast; off: by the most the lender ever used.
        reuse: choose victims by expected next use; off: the longest at home first.
        link_width: weigh neighbours by their link; off: all alike.
    """

    peers: bool = True
    prefetch: bool = True
    pre_evict: bool = True
    write_back: bool = True
    multi_path: bool = True
    in_place: bool = True
    cancel: bool = True
    forecast: bool = True
    reuse: bool = True
    link_width: bool = True


@dataclass(frozen=True, slots=True)
class HarvestSettings:
    """The harvester's knobs.

    Attributes:
        floor_bytes: free memory of a lender that borrowers never take (HUVM: 100 MB).
        refill_bytes: free + removable below this starts reclaim (HUVM: 200 MB).
        home_free_chunks: chunks kept free at a borrower's home, ahead of its faults.
        prefetch_chunks: chunks brought home ahead of use (HUVM: 16).
        stage_chunks: how far ahead host chunks are staged on neighbours.
        own_share: share of the home's own host link that prefetches are trusted to fill;
            neighbours' links carry what goes beyond it.
        revoke_bound_ns: time in which a lender gets back everything it lent.
        observe_ns: how long a GPU is watched before it lends.
        horizon_ns: how far the forecast of a lender's memory looks.
        forecast_margin: share of the lender's memory kept beside the forecast.
        quota_share: most of a neighbour's memory that one tenant may have.
        bounce_limit: moves of a chunk towards home without a use in between.
        bounce_window_ns: after this time the count starts again.
        outstanding: commands a tenant may have under way.
        fault_ns: what a fault costs beside its transfer.
        backoff_ns: how long a broken way is left alone.
        answer_ns: after this a command without an answer is forgotten.
        remote_factor: how much slower small reads over a link are than copies.
        margin: a move's gain must exceed its cost by this factor.
        durable: neighbours get copies of host chunks only, so that the loss of a
            neighbour loses nothing; costs a trip to the host for what is written. Off:
            what a neighbour alone has is bounded by `revoke_bound_ns`.
    """

    floor_bytes: int = 100 * MB
    refill_bytes: int = 200 * MB
    home_free_chunks: int = 24
    prefetch_chunks: int = 16
    stage_chunks: int = 384
    own_share: float = 0.4
    revoke_bound_ns: int = 50_000_000
    observe_ns: int = 200_000_000
    horizon_ns: int = 200_000_000
    forecast_margin: float = 0.02
    quota_share: float = 1.0
    bounce_limit: int = 2
    bounce_window_ns: int = 1_000_000_000
    outstanding: int = 96
    fault_ns: float = 30_000.0
    backoff_ns: int = 1_000_000_000
    answer_ns: int = 2_000_000_000
    remote_factor: float = 2.0
    margin: float = 1.1
    durable: bool = True
    techniques: Techniques = Techniques()
