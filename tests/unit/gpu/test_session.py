# SPDX-License-Identifier: Apache-2.0
"""A client's conversation with the daemon, and what ends it."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from gpu_host import SETTINGS, hello, topology

from tierd_gpu import wire
from tierd_gpu.harvest import Harvester
from tierd_gpu.session import MAX_CHUNKS, Session
from tierd_gpu.wire import Kind, WireError


def test_a_session_starts_with_hello_and_says_where_the_gpus_are() -> None:
    core = Harvester(topology(), SETTINGS)
    session = Session(core, 7, 1000)
    session.receive(hello(), 0)
    kinds = [wire.decode(message)[0] for message in session.answer(0)]
    assert kinds == [Kind.WELCOME, Kind.GPUS, Kind.LEASE]
    assert core.tenants[7].spec.uid == 1000


def old_hello() -> bytes:
    """What a client of version 1 says, which is shorter."""
    head = np.array([(1, 1, 72)], wire.HEADER).tobytes()
    return head + np.array([1, 1, 64, 0], "<u4").tobytes() + bytes(48)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (b"", errno.EPROTO),
        (bytes(7), errno.EPROTO),
        (np.array([(Kind.HELLO, 5, 8)], wire.HEADER).tobytes(), errno.EPROTO),
        (np.array([(55, 0, 8)], wire.HEADER).tobytes(), errno.EPROTO),
        (wire.bare(Kind.CHUNKS), errno.EPROTO),
        (wire.bare(Kind.PING), errno.EPROTO),
        (hello()[:80], errno.EPROTO),
        (hello(visible=(0,) * (wire.MAX_GPUS + 1)), errno.EPROTO),
        (hello(bytes([9] * 16)), errno.ENODEV),
        (hello(chunks=0), errno.ENOSPC),
        (hello(chunks=MAX_CHUNKS + 1), errno.ENOSPC),
        (hello(version=1), errno.EPROTONOSUPPORT),
        (old_hello(), errno.EPROTONOSUPPORT),
    ],
)
def test_what_is_no_greeting_ends_the_session_and_says_why(message: bytes, status: int) -> None:
    with pytest.raises(WireError) as caught:
        Session(Harvester(topology(), SETTINGS), 1, 0).receive(message, 0)
    assert caught.value.status == status


def test_the_tables_of_one_users_clients_have_a_bound_together() -> None:
    core = Harvester(topology(), SETTINGS)
    Session(core, 1, 1000).receive(hello(chunks=MAX_CHUNKS - 64), 0)
    Session(core, 2, 1000).receive(hello(chunks=64), 0)
    with pytest.raises(WireError, match="chunks"):
        Session(core, 3, 1000).receive(hello(chunks=1), 0)
    Session(core, 4, 2000).receive(hello(chunks=64), 0)


def test_records_of_chunks_that_do_not_exist_are_counted_and_dropped() -> None:
    core = Harvester(topology(), SETTINGS)
    session = Session(core, 1, 0)
    session.receive(hello(), 0)
    (state,) = wire.encode(Kind.STATE, np.array([(63, 1, 0, 0, 0, 0, 0)], wire.STATE))
    (use,) = wire.encode(Kind.USE, np.array([(1 << 30, 1, 0, 0)], wire.USE))
    session.receive(state, 0)
    session.receive(use, 0)
    assert core.counts["states_unknown"] == 1
    assert core.counts["uses_unknown"] == 1
    (outside,) = wire.encode(Kind.CHUNKS, np.array([(60, 5, 1, 0)], wire.CHUNKS))
    with pytest.raises(WireError):
        session.receive(outside, 0)
