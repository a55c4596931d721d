# SPDX-License-Identifier: Apache-2.0
"""Loans in the client library on the stand-in."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
from puppet import Puppet
from standin import CHUNK, World

from tierd_gpu import wire
from tierd_gpu.wire import Kind


def loan(puppet: Puppet, gpu: int = 2) -> tuple[int, int, int, int, int]:
    """(wanted, granted, held) in chunks, ns until it is due, status."""
    out = puppet.lib.ffi.new("struct tg_loan *")
    status = puppet.lib.tg.tg_loan_state(puppet.client, gpu, out)
    due = int(out.due_ns) - int(puppet.lib.cu.fg_now()) if out.due_ns else 0
    return out.wanted // CHUNK, out.granted // CHUNK, out.held // CHUNK, due, status


def lend(puppet: Puppet, chunks: int, due_ms: int = 0, gpu: int = 2) -> None:
    puppet.say(Kind.GRANT, np.array([(gpu, due_ms, chunks * CHUNK)], wire.GRANT))


def borrow(puppet: Puppet, chunks: int = 1, gpu: int = 2) -> int:
    """The address of a block of a loan, or a negative errno."""
    out = puppet.lib.ffi.new("uint64_t *")
    puppet.use()
    status = puppet.lib.tg.tg_loan_alloc(puppet.client, gpu, chunks * CHUNK - 1, out)
    return status or int(out[0])


def said(puppet: Puppet) -> list[tuple[int, int, int]]:
    """What the client says of its loans: (gpu, wanted, held) in chunks."""
    buffer, found = puppet.lib.ffi.new("uint8_t[]", wire.MAX_BYTES), []
    puppet.use()
    while (size := puppet.lib.tg.tg_drain(puppet.client, buffer, wire.MAX_BYTES)) > 0:
        kind, records = wire.decode(bytes(puppet.lib.ffi.buffer(buffer, size)))
        if kind is Kind.LOAN:
            found += [(r[0], r[2] // CHUNK, r[3] // CHUNK) for r in records.tolist()]
    return found


def test_a_block_of_a_loan_is_on_the_neighbour_and_used_there(world: World) -> None:
    puppet = Puppet(world, 0, 8)
    tg = puppet.lib.tg
    assert tg.tg_loan_want(puppet.client, 2, 40 * CHUNK) == 0
    assert said(puppet) == [(2, 40, 0)]
    assert borrow(puppet) == -errno.ENOSPC
    lend(puppet, 3)
    at = borrow(puppet, 2)
    assert said(puppet) == [(2, 40, 2)]
    assert loan(puppet) == (40, 3, 2, 0, 0)
    assert borrow(puppet, 2) == -errno.ENOSPC
    assert loan(puppet)[2] == 2
    world.kernel(0, at, write=5)
    assert world.kernel(0, at) == world.lib.cu.fg_hash_of(5)
    assert world.lib.cu.fg_residency(at) == 1 << 2
    assert tg.tg_loan_free(puppet.client, at + CHUNK) == -errno.ENOENT
    assert tg.tg_loan_free(puppet.client, at) == 0
    assert (loan(puppet)[2], said(puppet)) == (0, [(2, 40, 0)])
    for wrong in (-1, 0, world.gpus):
        assert borrow(puppet, gpu=wrong) == -errno.EINVAL


def test_a_grant_that_falls_wakes_the_program_and_says_when_it_is_due(world: World) -> None:
    world.lib.cu.fg_set_manual(1)
    puppet = Puppet(world, 0, 8)
    fd = puppet.lib.tg.tg_loan_fd(puppet.client)
    lend(puppet, 8)
    assert os.read(fd, 8)
    blocks = [borrow(puppet) for _ in range(8)]
    lend(puppet, 6, 40)
    assert os.read(fd, 8)
    world.advance(10_000_000)
    lend(puppet, 3, 40)
    assert loan(puppet)[1:3] == (3, 8)
    assert loan(puppet)[3] == pytest.approx(30e6, abs=1e6)
    for at in blocks[:2]:
        assert puppet.lib.tg.tg_loan_free(puppet.client, at) == 0
    assert loan(puppet)[3] == pytest.approx(40e6, abs=1e6)
    lend(puppet, 6)
    assert loan(puppet)[3] == 0


def test_what_is_not_given_back_in_time_keeps_its_bytes_and_loses_its_place(world: World) -> None:
    world.lib.cu.fg_set_manual(1)
    puppet = Puppet(world, 0, 8)
    lend(puppet, 8)
    blocks = [borrow(puppet) for _ in range(8)]
    for value, at in enumerate(blocks):
        world.kernel(0, at, write=value)
    lend(puppet, 5, 40)
    for ms, unplaced in ((39, 0), (2, 3)):
        world.advance(ms * 1_000_000)
        puppet.turn()
        found = world.lib.ffi.new("int *")
        places = []
        for at in blocks:
            world.lib.cu.cuMemRangeGetAttribute(found, 4, 2, at, CHUNK)
            places.append(int(found[0]))
        assert places == [-2] * unplaced + [2] * (8 - unplaced)
    for value, at in enumerate(blocks):
        assert world.kernel(0, at) == world.lib.cu.fg_hash_of(value)
        assert world.lib.cu.fg_residency(at) == 1 << (0 if value < 3 else 2)


def test_without_a_daemon_nothing_is_granted_and_what_is_held_is_due(world: World) -> None:
    world.lib.cu.fg_set_manual(1)
    puppet = Puppet(world, 0, 8)
    tg = puppet.lib.tg
    tg.tg_loan_want(puppet.client, 2, 9 * CHUNK)
    lend(puppet, 8)
    at = borrow(puppet, 4)
    puppet.use()
    tg.tg_detach(puppet.client)
    assert loan(puppet)[:3] == (9, 0, 4)
    assert loan(puppet)[3:] == (pytest.approx(40e6, abs=1e6), -errno.ENOTCONN)
    assert borrow(puppet) == -errno.ENOTCONN
    assert tg.tg_loan_want(puppet.client, 2, 7 * CHUNK) == -errno.ENOTCONN
    assert tg.tg_loan_free(puppet.client, at) == 0
    assert loan(puppet)[2:] == (0, 0, -errno.ENOTCONN)
    tg.tg_attach(puppet.client)
    puppet.number_gpus(world.gpus)
    assert said(puppet) == [(2, 7, 0)]
