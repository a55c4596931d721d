# SPDX-License-Identifier: Apache-2.0
"""Events of the module's netlink family, which the service does not listen to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tierd.sources.kmod import genl
from tierd.sources.kmod.genl import Answer, Family
from tierd.sources.kmod.uapi import EVENTS, FAMILY, Event

SOL_NETLINK, ADD_MEMBERSHIP = 270, 1
ACK = 0x4
KNOWN = frozenset(Event)


def subscribe(connection: Family) -> None:
    """Join the events' multicast group; use a connection of its own for it.

    Raises:
        OSError: the kernel refused.
    """
    from pyroute2.netlink import CTRL_CMD_GETFAMILY, GENL_ID_CTRL, ctrlmsg

    asked = (("CTRL_ATTR_FAMILY_NAME", FAMILY),)
    (answer,) = connection._ask(ctrlmsg, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, ACK, asked)
    (group,) = (
        each.get_attr("CTRL_ATTR_MCAST_GRP_ID")
        for each in answer.get_attr("CTRL_ATTR_MCAST_GROUPS")
        if each.get_attr("CTRL_ATTR_MCAST_GRP_NAME") == EVENTS
    )
    connection._socket.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, group)
    connection._socket.setblocking(False)


def _messages(connection: Family) -> Iterator[Answer]:
    with contextlib.suppress(BlockingIOError):
        while True:
            for kind, _, part in genl._messages(connection._socket.recv(1 << 17)):
                if kind == connection._family:
                    yield connection._decoded(genl._unnumbered(part), genl._message_class())


def events(connection: Family, of: str = "TIERD_A_TARGET") -> list[tuple[Event, int | None]]:
    """Events since the last call with the target of each, or the card (`of` "TIERD_A_CARD").

    Those that tell of no such thing are left out; never blocks.
    """
    found = ((each.get_attr("TIERD_A_EVENT"), each.get_attr(of)) for each in _messages(connection))
    return [(Event(code), number) for code, number in found if code in KNOWN and number is not None]
