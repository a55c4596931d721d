# SPDX-License-Identifier: Apache-2.0
"""One client's conversation, without its socket: bytes in, bytes out.

A client is known by its session alone: chunk numbers count within it, so that no
message can name another tenant's memory.
"""

from __future__ import annotations

import errno
from collections import deque

import numpy as np

from tierd_gpu import wire
from tierd_gpu.harvest import Harvester
from tierd_gpu.links import CHUNK_BYTES
from tierd_gpu.tenant import Said, TenantSpec
from tierd_gpu.wire import Kind, Role, WireError

MAX_CHUNKS = 1 << 22
"""In the tables of one user's clients together: 8 TiB, and 214 MB of the daemon's memory."""
HEARTBEAT_MS = 200
CHUNKS_AT_ONCE = 1 << 18
"""Chunks that come or go of one client before others have their turn: 2 ms."""
CHUNKS_A_RECORD = 64
"""Chunks that come or go in the time that another record takes."""
RANGE_COST = 1024
"""Chunks that come or go in the time that a range takes beside its chunks."""


class Session:
    """One client.

    Attributes:
        number: the server's number for it.
        uid: its user, from the socket's credentials.
        greeted: whether it has said who it is.
    """

    def __init__(self, core: Harvester, number: int, uid: int) -> None:
        self._core = core
        self.number = number
        self.uid = uid
        self.greeted = False
        self.waiting: deque[tuple[int, int, int]] = deque()
        """Ranges (first, count, live) that came or went and are not in the table yet."""
        self._leases: bytes = b""
        self._first: list[bytes] = []

    def receive(self, message: bytes, now_ns: int) -> int:
        """Take one message; `answer` has what follows from it.

        Nothing is received before `go_on` has left nothing waiting.

        Returns:
            What it cost, in records.

        Raises:
            WireError: the client does not keep to the protocol; end the connection.
        """
        kind, records = wire.decode(message)
        if kind is Kind.HELLO:
            self._hello(records)
            return 1
        if kind is Kind.SHOW:
            self._first += tenants(self._core)
            return len(self._core.tenants)
        if not self.greeted:
            raise WireError(f"{kind.name} before HELLO")
        core, me = self._core, self.number
        if kind is Kind.CHUNKS:
            ends = records["first"].astype(np.int64) + records["count"]
            if (ends > core.tenants[me].spec.max_chunks).any():
                raise WireError("chunks outside the table")
            self.waiting += [(first, count, live) for first, count, live, _ in records.tolist()]
            return len(records) + self.go_on()
        elif kind is Kind.USE:
            core.use(me, records)
        elif kind is Kind.STATE:
            core.state(me, records, now_ns)
        elif kind is Kind.LOAN:
            self._loan(records, now_ns)
        elif kind is Kind.ALIVE:
            if len(records):
                self._alive(records[-1])
        else:
            raise WireError(f"{kind.name} from a client")
        return len(records)

    def go_on(self) -> int:
        """Take in waiting ranges, up to `CHUNKS_AT_ONCE`; returns the cost, in records."""
        left = CHUNKS_AT_ONCE
        while self.waiting and left > 0:
            first, count, live = self.waiting.popleft()
            now = min(count, left)
            if now < count:
                self.waiting.appendleft((first + now, count - now, live))
            part = np.array([(first, now, live, 0)], wire.CHUNKS)
            self._core.chunks(self.number, part)
            left -= max(now, RANGE_COST)
        return (CHUNKS_AT_ONCE - left) // CHUNKS_A_RECORD

    def answer(self, now_ns: int) -> list[bytes]:
        """Decide on what was received, and say so."""
        if self.greeted:
            self._core.plan(self.number, now_ns)
        return self.send()

    def _hello(self, records: wire.Records) -> None:
        if self.greeted or len(records) != 1:
            raise WireError("a second HELLO")
        hello = records[0]
        home = self._core.topology.index_of(hello["uuid"].tobytes())
        if home is None:
            raise WireError("a GPU that is not served here", errno.ENODEV)
        others = (t.spec for t in self._core.tenants.values() if t.spec.uid == self.uid)
        taken = sum(spec.max_chunks for spec in others)
        if not 0 < hello["max_chunks"] <= MAX_CHUNKS - taken:
            raise WireError(f"{hello['max_chunks']} chunks, and the user has {taken}", errno.ENOSPC)
        role = int(hello["role"])
        self._core.join(
            TenantSpec(
                session=self.number,
                uid=self.uid,
                home=home,
                borrows=role & Role.BORROW != 0,
                lends=role & Role.LEND != 0,
                max_chunks=int(hello["max_chunks"]),
                visible=self._visible(hello),
                name=bytes(hello["name"]).decode("ascii", "replace"),
            )
        )
        self.greeted = True
        gpus = np.zeros(len(self._core.topology.gpus), wire.GPU)
        for gpu in self._core.topology.gpus:
            gpus["uuid"][gpu.index] = np.frombuffer(gpu.uuid, np.uint8)
        welcome = np.array([(wire.VERSION, self.number, HEARTBEAT_MS, 0)], wire.WELCOME)
        self._first = wire.encode(Kind.WELCOME, welcome) + wire.encode(Kind.GPUS, gpus)

    def _loan(self, records: wire.Records, now_ns: int) -> None:
        try:
            self._core.loan(self.number, records, now_ns)
        except ValueError as error:
            raise WireError(str(error)) from None

    def _alive(self, said: np.void) -> None:
        lost = ("uses_dropped", "states_dropped", "moves_dropped", "spans_dropped")
        self._core.tenants[self.number].said = Said(
            int(said["launches"]),
            int(said["launches_untold"]),
            sum(int(said[name]) for name in lost),
        )

    def _visible(self, hello: np.void) -> frozenset[int]:
        """The numbers of the GPUs that the client says it can see."""
        if hello["visible"] > wire.MAX_GPUS:
            raise WireError(f"{hello['visible']} visible GPUs")
        uuids = (bytes(each) for each in hello["visible_uuid"][: hello["visible"]])
        found = (self._core.topology.index_of(uuid) for uuid in uuids)
        return frozenset(number for number in found if number is not None)

    def send(self) -> list[bytes]:
        """What the core has decided for this client since the last call."""
        messages, self._first = self._first, []
        tenant = self._core.tenants.get(self.number)
        if tenant is None:
            return messages
        messages += self._lease_messages()
        news = self._core.loans.news(self.number, self._core.now_ns)
        rows = [(gpu, due_ms, chunks * CHUNK_BYTES) for gpu, due_ms, chunks in news]
        messages += wire.encode(Kind.GRANT, np.array(rows, wire.GRANT))
        return messages + wire.encode(Kind.MOVE, tenant.take_orders())

    def _lease_messages(self) -> list[bytes]:
        """The leases, when they are not what was last sent."""
        tenant = self._core.tenants[self.number]
        records = np.zeros(len(self._core.gpus), wire.LEASE)
        for index, gpu in enumerate(self._core.gpus):
            own = tenant.spec.home == index
            borrowed = gpu.borrowed_bytes if own else 0
            records[index] = (index, int(tenant.lease[index]), borrowed)
        now = records.tobytes()
        if now == self._leases:
            return []
        self._leases = now
        return wire.encode(Kind.LEASE, records)

    def close(self) -> None:
        """The client is gone."""
        self._core.leave(self.number)


def tenants(core: Harvester) -> list[bytes]:
    """What is known of every client, as messages; the last of them is not full."""
    rows = np.zeros(len(core.tenants), wire.TENANT)
    for row, tenant in zip(rows, core.tenants.values(), strict=True):
        spec, count = tenant.spec, tenant.count
        row["session"], row["uid"], row["home"] = spec.session, spec.uid, spec.home
        row["role"] = Role.BORROW * spec.borrows | Role.LEND * spec.lends
        row["chunks"] = int(np.count_nonzero(tenant.live[: tenant.end]))
        row["at_home"], row["on_host"] = int(count[spec.home]), int(count[-1])
        row["on_peers"] = int(count.sum()) - int(count[spec.home]) - int(count[-1])
        row["uses"], row["launches"] = tenant.uses, tenant.said.launches
        row["launches_untold"], row["dropped"] = tenant.said.untold, tenant.said.dropped
        row["moves"], row["name"] = tenant.sequence, spec.name.encode()
    messages = wire.encode(Kind.TENANTS, rows)
    return messages if len(rows) % wire.most(Kind.TENANTS) else [*messages, wire.bare(Kind.TENANTS)]
