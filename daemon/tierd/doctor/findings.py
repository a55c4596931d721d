# SPDX-License-Identifier: Apache-2.0
"""What a probe is, what it finds, and the list of all probes."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tierd.core.access import Availability
from tierd.doctor.host import Host


class Group(enum.Enum):
    """The headings of the report, in its order."""

    SOURCES = "Seeing accesses"
    MOVING = "Moving pages"
    PRIVILEGES = "Privileges"
    HOST = "Memory and processes"
    CONFLICTS = "Conflicts"


class Status(enum.StrEnum):
    """The answer to one question."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    """The probe could not tell; the reason says why."""
    CLEAR = "clear"
    """Of a conflict: there is none."""
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        id: stable name for scripts, "damon.vaddr".
        group: its heading.
        title: what was asked, for people.
        status: the answer.
        reason: why, one sentence.
        hint: what to install or enable, or an empty string.
    """

    id: str
    group: Group
    title: str
    status: Status
    reason: str
    hint: str = ""


class CannotTellError(Exception):
    """A probe found no way to answer; the message says why."""


Ask = Callable[[Host], Availability]


@dataclass(frozen=True, slots=True)
class Probe:
    """A question with the function that answers it.

    `ask` returns ok for "this can be used", in the group of conflicts for "no conflict".
    """

    id: str
    group: Group
    title: str
    ask: Ask


_PROBES: Final[dict[str, Probe]] = {}


def probe(id_: str, group: Group, title: str) -> Callable[[Ask], Ask]:
    """Put a function on the list of probes.

    Raises:
        ValueError: the name is taken.
    """

    def register(ask: Ask) -> Ask:
        if id_ in _PROBES:
            raise ValueError(f"two probes are called {id_!r}")
        _PROBES[id_] = Probe(id_, group, title, ask)
        return ask

    return register


def all_probes() -> list[Probe]:
    """All probes, by group, in the order of their registration."""
    order = list(Group)
    return sorted(_PROBES.values(), key=lambda item: order.index(item.group))


def ask_all(host: Host, probes: Iterable[Probe]) -> list[Finding]:
    """Ask each probe; whatever goes wrong in one becomes its own line."""
    return [_ask(host, one) for one in probes]


def _ask(host: Host, one: Probe) -> Finding:
    good, bad = Status.YES, Status.NO
    if one.group is Group.CONFLICTS:
        good, bad = Status.CLEAR, Status.CONFLICT
    try:
        answer = one.ask(host)
    except CannotTellError as error:
        return Finding(one.id, one.group, one.title, Status.UNKNOWN, f"could not tell: {error}")
    except Exception as error:  # one broken probe must not hide the others
        reason = f"could not tell: {type(error).__name__}: {error}"
        return Finding(one.id, one.group, one.title, Status.UNKNOWN, reason)
    status = good if answer.ok else bad
    return Finding(one.id, one.group, one.title, status, answer.reason, answer.hint)
