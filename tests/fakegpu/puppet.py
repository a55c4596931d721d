# SPDX-License-Identifier: Apache-2.0
"""A daemon on a string: tells one client exactly what to do, and hears its reports."""

from __future__ import annotations

from typing import Any

import numpy as np
from standin import CHUNK, World

from tierd_gpu import wire
from tierd_gpu.wire import Kind, StateFlag


def greeting(world: World, client: Any) -> np.void:
    """What a client says first."""
    buffer = world.lib.ffi.new("uint8_t[]", wire.MAX_BYTES)
    world.lib.tg.tg_attach(client)
    size = world.lib.tg.tg_drain(client, buffer, wire.MAX_BYTES)
    kind, (hello,) = wire.decode(bytes(world.lib.ffi.buffer(buffer, size)))
    assert kind is Kind.HELLO
    return hello


class Puppet:
    """One client with one range of `chunks`, driven without a socket.

    Attributes:
        states: the last STATE record of each sequence number.
        place: chunk → where the client says it is.
    """

    def __init__(
        self, world: World, gpu: int, chunks: int, *, slot: int = -1,
        inflight: int = 4, lease: int = 1 << 20,
    ) -> None:  # fmt: skip
        self.world, self.gpu, self.chunks, self.slot = world, gpu, chunks, slot
        self.lib = world.lib
        self.client = world.client(gpu, slot, chunks=chunks, inflight=inflight)
        out = self.lib.ffi.new("uint64_t *")
        self.use()
        status = self.lib.tg.tg_alloc(self.client, chunks * CHUNK, out)
        if status:
            raise OSError(-status, "tg_alloc")
        self.base = int(out[0])
        self.sequence = 0
        self.states: dict[int, Any] = {}
        self.place: dict[int, int] = {}
        self.lib.tg.tg_attach(self.client)
        self.hear()
        self.say(Kind.WELCOME, np.array([(1, 1, 100, 0)], wire.WELCOME))
        self.number_gpus(world.gpus)
        self.lease(lease)

    def use(self) -> None:
        """Calls to the driver are this tenant's from now on."""
        self.lib.cu.fg_tenant_use(self.slot)

    def number_gpus(self, count: int) -> None:
        """Say how the daemon numbers the stand-in's GPUs."""
        gpus = np.zeros(count, wire.GPU)
        gpus["uuid"] = 0xFA
        gpus["uuid"][:, -1] = np.arange(count)
        self.say(Kind.GPUS, gpus)

    def lease(self, chunks: int) -> None:
        """The same lease on every GPU."""
        rows = [(gpu, chunks, 0) for gpu in range(self.world.gpus)]
        self.say(Kind.LEASE, np.array(rows, wire.LEASE))

    def say(self, kind: Kind, records: wire.Records) -> None:
        """A message to the client."""
        self.use()
        for message in wire.encode(kind, records):
            status = self.lib.tg.tg_feed(self.client, message, len(message))
            assert status == 0, status

    def order(self, moves: list[tuple[int, int]], flags: int = 0) -> list[int]:
        """Commands (chunk, place); returns their sequence numbers."""
        rows = []
        for chunk, dest in moves:
            self.sequence += 1
            rows.append((chunk, dest, flags, self.sequence))
        self.say(Kind.MOVE, np.array(rows, wire.MOVE))
        return [row[3] for row in rows]

    def hear(self) -> None:
        """Take the client's messages."""
        self.use()
        buffer = self.lib.ffi.new("uint8_t[]", wire.MAX_BYTES)
        while (size := self.lib.tg.tg_drain(self.client, buffer, wire.MAX_BYTES)) > 0:
            kind, records = wire.decode(bytes(self.lib.ffi.buffer(buffer, size)))
            if kind is Kind.STATE:
                for record in records:
                    self.states[int(record["sequence"])] = record
                    self.place[int(record["chunk"])] = int(record["place"])

    def turn(self) -> None:
        """One turn of moves, from any thread."""
        self.use()
        self.lib.tg.tg_pump(self.client)

    def settle(self, step_ns: int = 100_000, turns: int = 100_000) -> None:
        """Pump until nothing is queued or under way."""
        stats = self.lib.ffi.new("struct tg_stats *")
        for _ in range(turns):
            self.use()
            moving = self.lib.tg.tg_pump(self.client)
            self.lib.tg.tg_stats_get(self.client, stats)
            if not moving and not stats.queued:
                break
            self.world.advance(step_ns)
        else:
            raise AssertionError("moves do not end")
        self.hear()

    def do(self, chunk: int, dest: int, flags: int = 0) -> int:
        """One command until it is answered; returns its status (errno)."""
        (sequence,) = self.order([(chunk, dest)], flags)
        self.settle()
        return int(self.states[sequence]["status"])

    def flags(self, sequence: int) -> StateFlag:
        """The flags of an answer."""
        return StateFlag(int(self.states[sequence]["flags"]))

    def address(self, chunk: int) -> int:
        """Where the chunk's bytes are for the application."""
        return self.base + chunk * CHUNK

    def write(self, chunk: int, value: int) -> None:
        """The application's kernel fills a chunk."""
        self._access(chunk, value)

    def read(self, chunk: int) -> int:
        """The hash of what the application's kernel reads."""
        return self._access(chunk, None)

    def _access(self, chunk: int, value: int | None) -> int:
        addr = self.address(chunk)
        self.use()
        assert self.lib.tg.tg_acquire(self.client, addr, CHUNK) == 0
        try:
            return self.world.kernel(self.gpu, addr, write=value, slot=self.slot)
        finally:
            assert self.lib.tg.tg_release(self.client, addr, CHUNK) == 0

    def stats(self) -> Any:
        """`struct tg_stats`."""
        out = self.lib.ffi.new("struct tg_stats *")
        self.lib.tg.tg_stats_get(self.client, out)
        return out
