# SPDX-License-Identifier: Apache-2.0
"""What comes home before its use, and what is used where it is."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_host import Host

from tierd_gpu import wire
from tierd_gpu.links import HOST
from tierd_gpu.settings import HarvestSettings
from tierd_gpu.wire import StateFlag

CHUNKS, AT_HOME = 400, 300
LINK_NS = 174_763
"""Of a chunk, at 12 GB/s."""
MOST = HarvestSettings().prefetch_chunks


def borrower() -> Host:
    """A program on GPU 0, a quarter of whose chunks are used in place on the host."""
    host = Host()
    host.join(1, 0, CHUNKS)
    for chunk in range(CHUNKS):
        away = chunk >= AT_HOME
        row = (chunk, HOST if away else 0, StateFlag.IN_PLACE * away, 0, 0, 0, 0)
        host.core.state(1, np.array([row], wire.STATE), 0)
    host.tick()
    return host


def use(host: Host, chunks: list[int], kernel_ns: int) -> None:
    """Use all pages of chunks one after the other; those that are away are waited for."""
    rows = []
    for chunk in chunks:
        host.now += kernel_ns + LINK_NS * int(host.core.tenants[1].in_place[chunk])
        rows.append((chunk, 512, 0, host.now))
    host.core.use(1, np.array(rows, wire.USE))


def fetched(host: Host) -> list[int]:
    """The chunks that a turn brings home."""
    host.core.plan(1, host.now)
    orders = host.core.tenants[1].take_orders().tolist()
    for chunk, dest, _, sequence in orders:
        host.place(1, chunk, dest, seq=sequence)
    return [chunk for chunk, dest, _, _ in orders if dest == 0]


# A chunk and the one that makes place for it take 369 us of the link; with a quarter away that
# is 92 us a use.
@pytest.mark.parametrize(("kernel_ns", "count"), [(80_000, 0), (100_000, MOST)])
def test_what_is_used_in_place_comes_home_while_the_moves_fit_beside_the_kernels(
    kernel_ns: int, count: int
) -> None:
    host = borrower()
    for _ in range(4):
        use(host, list(range(CHUNKS)), kernel_ns)
    use(host, list(range(AT_HOME)), kernel_ns)
    assert fetched(host) == list(range(AT_HOME, AT_HOME + count))


def test_a_pause_of_the_program_is_no_time_of_its_kernels() -> None:
    host = borrower()
    for _ in range(4):
        use(host, list(range(CHUNKS)), 80_000)
    host.now += 10 * 10**9
    use(host, list(range(CHUNKS)), 80_000)
    use(host, list(range(AT_HOME)), 80_000)
    assert fetched(host) == []


def test_kernels_that_are_longer_than_a_pause_are_known_by_the_second_report() -> None:
    host = borrower()
    for _ in range(4):
        use(host, list(range(CHUNKS)), 1_000_000)
    use(host, list(range(AT_HOME)), 1_000_000)
    assert len(fetched(host)) == MOST


def test_no_more_comes_home_before_the_program_is_known_to_have_gone_on() -> None:
    host = borrower()
    for _ in range(4):
        use(host, list(range(CHUNKS)), 200_000)
    use(host, list(range(AT_HOME)), 200_000)
    assert len(fetched(host)) == MOST
    assert fetched(host) == []
    use(host, [AT_HOME], 200_000)
    assert len(fetched(host)) == MOST


def test_what_is_used_in_place_no_more_often_than_the_rest_stays_there() -> None:
    host = borrower()
    for _ in range(4):
        use(host, list(range(CHUNKS)), 50_000)
    assert fetched(host) == []


def test_what_is_used_in_place_more_often_than_the_rest_comes_home() -> None:
    host = borrower()
    for _ in range(4):
        for at in range(0, AT_HOME, 100):
            use(host, [AT_HOME], 50_000)
            use(host, list(range(at, at + 100)), 50_000)
        use(host, list(range(AT_HOME, CHUNKS)), 50_000)
    assert fetched(host) == [AT_HOME]
