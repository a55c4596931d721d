# SPDX-License-Identifier: Apache-2.0
"""What is known of a NUMA node at one time: how full it is, and what a measurement of it found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """How full a node is.

    Attributes:
        total_bytes: memory of the node.
        free_bytes: free now.
        reserve_bytes: what the kernel keeps for itself: the sum of its zones' high
            watermarks. Below it kswapd runs, so tierd never fills a node past it.
    """

    total_bytes: int
    free_bytes: int
    reserve_bytes: int

    def low_bytes(self, low_watermark: float) -> int:
        """What must stay free: this share of the node, or the kernel's own reserve if larger."""
        return max(self.reserve_bytes, int(low_watermark * self.total_bytes))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a probe of a node found; None for what it could not tell.

    Attributes:
        latency_ns: of a dependent read, the least so far: load makes it longer.
        bandwidth_bytes_per_s: one CPU's stream, the most so far: the node has at least this.
    """

    latency_ns: float | None = None
    bandwidth_bytes_per_s: float | None = None

    def beside(self, other: Measured) -> Measured:
        """The least latency and the most bandwidth of both."""
        latency = [each for each in (self.latency_ns, other.latency_ns) if each is not None]
        wide = (self.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s)
        bandwidth = [each for each in wide if each is not None]
        return Measured(min(latency, default=None), max(bandwidth, default=None))


def parse_meminfo(text: str) -> tuple[int, int] | None:
    """(total, free) bytes of the host or of a node, or None where the text does not say."""
    found = []
    for name in ("MemTotal:", "MemFree:"):
        _, there, value = text.partition(name)
        number = value.partition(" kB")[0].strip()
        if not (there and number.isdecimal()):
            return None
        found.append(int(number) * 1024)
    return found[0], found[1]
