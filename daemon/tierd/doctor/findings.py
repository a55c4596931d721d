# SPDX-License-Identifier: Apache-2.0
"""The host as probes see it, what a probe is, what all of them find, the verdict and the report."""

from __future__ import annotations

import enum
import errno
import gzip
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tierd import topology
from tierd.core.access import Availability
from tierd.core.errors import ExitCode, UnavailableError
from tierd.core.process import NUMBERS
from tierd.core.tiermap import TierMap
from tierd.topology.sysfs import SysTree

NEEDED_FOR: Final = {
    "CAP_SYS_PTRACE": "move and inspect the pages of other users' processes",
    "CAP_SYS_NICE": "move shared pages, advise other processes",
    "CAP_NET_ADMIN": "process events",
    "CAP_BPF": "BPF programs",
    "CAP_PERFMON": "perf events with addresses",
    "CAP_SYS_ADMIN": "physical addresses of pages (physical sources only)",
}
"""Capability → what tierd needs it for."""
TRACEFS: Final = ("sys/kernel/tracing", "sys/kernel/debug/tracing")

_CONFIG_LINE: Final = re.compile(r"^(CONFIG_[A-Z0-9_]+)=(.*)$", re.MULTILINE)


class Host:
    """A host to examine.

    Args:
        root: "/" for the running host; anything else is a captured tree, on which
            no system call is tried.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.tree = SysTree(root)
        self.live = root == Path("/")

    @cached_property
    def release(self) -> str:
        """The kernel's release (uname -r), or an empty string."""
        return self.tree.text("proc/sys/kernel/osrelease") or ""

    @cached_property
    def topology(self) -> TierMap:
        """The memory tiers. Raises TierdError: as `tierd.topology.read`."""
        return topology.read(self.root)

    @cached_property
    def kernel_config(self) -> dict[str, str] | None:
        """Options that are set, from wherever this kernel's configuration is kept; else None."""
        places = (
            "proc/config.gz",
            f"boot/config-{self.release}",
            f"lib/modules/{self.release}/config",
            f"lib/modules/{self.release}/build/.config",
        )
        for place in places:
            try:
                raw = self.tree.path(place).read_bytes()
                text = (gzip.decompress(raw) if place.endswith(".gz") else raw).decode()
            except (OSError, EOFError, UnicodeDecodeError):
                continue
            return {match[1]: match[2] for match in _CONFIG_LINE.finditer(text)}
        return None

    @cached_property
    def symbols(self) -> str:
        """/proc/kallsyms as one text; empty if it cannot be read."""
        return self.tree.text("proc/kallsyms") or ""

    @cached_property
    def capabilities(self) -> frozenset[str] | None:
        """Names of this process's effective capabilities among those tierd needs, or None."""
        text = self.tree.text("proc/self/status") or ""
        match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)$", text, re.MULTILINE)
        if match is None:
            return None
        mask = int(match[1], 16)
        held = {name for name in NEEDED_FOR if mask >> NUMBERS[name] & 1}
        if "CAP_SYS_ADMIN" in held:  # the kernel lets it stand for the two younger ones
            held |= {"CAP_BPF", "CAP_PERFMON"}
        return frozenset(held)

    @cached_property
    def processes(self) -> dict[int, str]:
        """Number → name (comm, at most 15 characters) of all processes and kernel threads."""
        found: dict[int, str] = {}
        for name in self.tree.names("proc"):
            if name.isdigit():
                comm = self.tree.text(f"proc/{name}/comm")
                if comm is not None:
                    found[int(name)] = comm
        return found

    def tracefs(self) -> tuple[str, str]:
        """(place, problem): where tracefs is, or an empty place and what is wrong."""
        problem = "it is not mounted"
        for place in TRACEFS:
            try:
                names = [entry.name for entry in self.tree.path(place).iterdir()]
            except PermissionError:
                problem = f"/{place} may not be read by this user"
                continue
            except OSError:
                continue
            if "events" in names:
                return place, ""
        return "", problem

    def write_refusal(self, relative: str) -> str:
        """Why a file cannot be opened for writing, as the service does; "" if it can.

        A security module refuses what files' permissions promise, so it is tried; nothing is
        written.
        """
        try:
            os.close(os.open(self.tree.path(relative), os.O_WRONLY | os.O_CLOEXEC))
        except OSError as error:
            return f"/{relative} cannot be opened for writing: {self.who_refuses(error)}"
        return ""

    def who_refuses(self, error: OSError) -> str:
        """The error's text, and what on this host may be behind it."""
        said = error.strerror or str(error)
        if error.errno == errno.EROFS:
            return f"{said} (mounted read-only: a container runtime does that)"
        if error.errno not in (errno.EPERM, errno.EACCES):
            return said
        found = [*self._confinement()]
        return f"{said} ({'; '.join(found) or 'nothing that could be found out refuses it'})"

    def _confinement(self) -> Iterator[str]:
        """What keeps this process from doing what root may."""
        profile = (self.tree.text("proc/self/attr/current") or "").strip("\0")
        if profile and not profile.startswith(("unconfined", "kernel")):
            yield f"this process is confined by a security module as {profile}"
        lockdown = re.search(r"\[(\w+)\]", self.tree.text("sys/kernel/security/lockdown") or "")
        if lockdown is not None and lockdown[1] != "none":
            yield f"the kernel is locked down ({lockdown[1]})"
        users = (self.tree.text("proc/self/uid_map") or "").split()
        if users and users[:3] != ["0", "0", str(2**32 - 1)]:
            yield "it runs in a user namespace"
        if self.capabilities is not None and not self.capabilities >= NEEDED_FOR.keys():
            lacking = ", ".join(sorted(NEEDED_FOR.keys() - self.capabilities))
            yield f"it has not got {lacking}"


SCHEMA_VERSION: Final = 1
"""Raised when a key of the JSON changes its meaning or goes; new keys do not raise it."""

SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "damon": ("damon.sysfs", "damon.vaddr", "damon.free", "damon.tracepoint"),
    "scan": ("module.loaded",),
    "idlepage": ("idlepage.kernel", "idlepage.files"),
    "pmu": ("bpf.pmu",),
    "neoprof": ("neoprof.card",),
}
"""Source → the probes that must say yes for it. Faults alone do not tell what is hot."""
MOVER: Final = "move_pages"
PEER: Final = "peer"
TIERS: Final = "tiers"


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
        title: what was asked, for people.
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

    `ask` returns ok for "this can be used", in the group of conflicts for "no conflict". It is
    not asked of a captured tree if it is `live`: it tries a system call, or this process.
    """

    id: str
    group: Group
    title: str
    ask: Ask
    live: bool = False


_PROBES: Final[dict[str, Probe]] = {}


def probe(id_: str, group: Group, title: str, *, live: bool = False) -> Callable[[Ask], Ask]:
    """Put a function on the list of probes; see `Probe`. Raises ValueError: the name is taken."""

    def register(ask: Ask) -> Ask:
        if id_ in _PROBES:
            raise ValueError(f"two probes are called {id_!r}")
        _PROBES[id_] = Probe(id_, group, title, ask, live)
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
        if one.live and not host.live:
            raise CannotTellError("not tried on a captured tree")
        answer = one.ask(host)
    except (CannotTellError, UnavailableError) as error:
        return Finding(one.id, one.group, one.title, Status.UNKNOWN, f"could not tell: {error}")
    except Exception as error:  # one broken probe must not hide the others
        reason = f"could not tell: {type(error).__name__}: {error}"
        return Finding(one.id, one.group, one.title, Status.UNKNOWN, reason)
    status = good if answer.ok else bad
    return Finding(one.id, one.group, one.title, status, answer.reason, answer.hint)


@dataclass(frozen=True, slots=True)
class Report:
    """All findings and what follows from them.

    Attributes:
        exit_code: OK, NOTHING_TO_DO or UNAVAILABLE.
        sources: names of the sources that could run.
    """

    findings: tuple[Finding, ...]
    exit_code: ExitCode
    summary: str
    sources: tuple[str, ...]


def judge(findings: Sequence[Finding]) -> Report:
    """What the findings mean: tierd runs with a source, a mover and two tiers."""
    status = {finding.id: finding.status for finding in findings}
    sources = tuple(
        name
        for name, needs in SOURCES.items()
        if all(status.get(need) is Status.YES for need in needs)
    )
    conflicts = sum(finding.status is Status.CONFLICT for finding in findings)
    also = f"; {conflicts} conflict{'' if conflicts == 1 else 's'}" if conflicts else ""
    if status.get(TIERS) is Status.NO:
        code, summary = (
            ExitCode.NOTHING_TO_DO,
            "there is nothing to do here: all memory is one tier",
        )
    else:
        missing = [] if sources else ["no source can see accesses"]
        if status.get(MOVER) is not Status.YES:
            missing.append("move_pages cannot be used")
        if status.get(PEER) is Status.NO:
            missing.append("pages of other processes cannot be looked at")
        if status.get(TIERS) is not Status.YES:
            missing.append("the memory tiers are not known")
        code, summary = ExitCode.OK, f"tierd can run here, with {', '.join(sources)}"
        if missing:
            code, summary = ExitCode.UNAVAILABLE, f"tierd cannot run here: {'; '.join(missing)}"
    return Report(tuple(findings), code, summary + also, sources)


def as_text(report: Report) -> str:
    """The report for people."""
    lines = [report.summary]
    words = max(len(status.value) for status in Status)
    width = max((len(finding.title) for finding in report.findings), default=0)
    for group in Group:
        members = [finding for finding in report.findings if finding.group is group]
        if not members:
            continue
        lines += ["", group.value]
        for finding in members:
            lines.append(
                f"  {finding.status.value:{words}}  {finding.title:{width}}  {finding.reason}"
            )
            if finding.hint and finding.status in (Status.NO, Status.CONFLICT):
                lines.append(f"  {'':{words}}  {'':{width}}  → {finding.hint}")
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> dict[str, Any]:
    """The report for scripts, ready for json.dumps."""
    return {
        "schema": SCHEMA_VERSION,
        "exit_code": int(report.exit_code),
        "summary": report.summary,
        "sources": list(report.sources),
        "findings": [
            {**asdict(finding), "group": finding.group.name.lower()} for finding in report.findings
        ],
    }
