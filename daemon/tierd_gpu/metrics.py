# SPDX-License-Identifier: Apache-2.0
"""The harvester's figures in the words of the metrics page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tierd_gpu.harvest import Harvester
from tierd_gpu.links import CHUNK_BYTES
from tierd_gpu.server import GpuServer


class Sample(NamedTuple):
    """One figure: name, kind ("gauge" or "counter"), help, labels, value."""

    name: str
    kind: str
    help: str
    labels: dict[str, str]
    value: float


def samples(core: Harvester, server: GpuServer | None = None) -> Iterator[Sample]:
    """Every figure of now."""
    for index, gpu in enumerate(core.gpus):
        label = {"gpu": str(index)}
        yield Sample("tierd_gpu_memory_bytes", "gauge", "Memory of a GPU.", label, gpu.total)
        yield Sample("tierd_gpu_free_bytes", "gauge", "Free memory of a GPU.", label, gpu.free)
        yield Sample(
            "tierd_gpu_borrowed_bytes", "gauge", "Memory of a GPU that others borrowed.",
            label, gpu.borrowed_bytes,
        )  # fmt: skip
        yield Sample(
            "tierd_gpu_unbacked_bytes", "gauge",
            "Borrowed memory of a GPU that has no other copy: lost if the GPU is.",
            label, gpu.borrowed * CHUNK_BYTES,
        )  # fmt: skip
        yield Sample(
            "tierd_gpu_lendable_bytes", "gauge", "Memory of a GPU that may be borrowed.",
            label, gpu.lendable * CHUNK_BYTES,
        )  # fmt: skip
        leased = sum(int(t.lease[index]) for t in core.tenants.values())
        leased += sum(loan.granted for loan in core.loans.on(index))
        yield Sample(
            "tierd_gpu_leased_bytes", "gauge", "Memory of a GPU that borrowers may use now.",
            label, leased * CHUNK_BYTES,
        )  # fmt: skip
        yield Sample("tierd_gpu_lost", "gauge", "1: the driver says it is gone.", label, gpu.lost)
    longest_ns = max([*core.revoke_ns, *core.loans.returned_ns], default=0)
    yield Sample(
        "tierd_gpu_revocation_longest_seconds", "gauge",
        "The longest of the last 4096 revocations.", {}, longest_ns / 1e9,
    )  # fmt: skip
    yield Sample(
        "tierd_gpu_tenants", "gauge", "Clients that said where they compute.", {},
        len(core.tenants),
    )  # fmt: skip
    launches = sum(tenant.said.launches for tenant in core.tenants.values())
    untold = sum(tenant.said.untold for tenant in core.tenants.values())
    for told, value in (("yes", launches - untold), ("no", untold)):
        yield Sample(
            "tierd_gpu_launches", "gauge",
            "Launches of the programs here, by whether their parameters tell what they use.",
            {"told": told}, value,
        )  # fmt: skip
    for name, value in sorted(core.counts.items()):
        group, _, what = name.partition("_")
        if group in ("ordered", "done", "refused"):
            yield Sample(
                f"tierd_gpu_moves_{group}_total", "counter", "Chunk commands by outcome.",
                {"what": what}, value,
            )  # fmt: skip
        else:
            yield Sample(
                f"tierd_gpu_{name}_total", "counter", "Events of the harvester.", {}, value
            )
    for name, value in sorted(server.counts.items() if server else ()):
        group, _, reason = name.partition("_")
        yield Sample(
            f"tierd_gpu_connections_{group}_total", "counter", "Connections by outcome.",
            {"reason": reason}, value,
        )  # fmt: skip
