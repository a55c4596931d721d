# SPDX-License-Identifier: Apache-2.0
"""What the matchers of a configuration match on this host now: `tierd config check --live`.

The service would watch the same processes, as the same code judges them (`matching`), and a process
that does not answer stops nothing here either (`bounded_reads`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tierd.config.matchers import Combined, Fact, Matcher
from tierd.config.model import TargetsConfig
from tierd.config.rules import RuleConfig
from tierd.core import bounds
from tierd.core.errors import (
    HiddenProgramError,
    NotAnsweringError,
    TargetGoneError,
    TierdError,
    UnavailableError,
    UnjudgeableError,
)
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.cgroupns import CgroupNamespace, in_hosts_namespace
from tierd.workloads.procs import PROC, Process, Stat, list_pids, read_bytes, read_stat
from tierd.workloads.target import Matching, descends

_INVISIBLE: Final = r"\bhidepid=(2|invisible|4|ptraceable)\b"


@dataclass(frozen=True, slots=True)
class Example:
    """A process, for people."""

    pid: int
    name: str
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class GroupPath:
    """A control group that a matcher names; `exists` is None where that cannot be told."""

    path: str
    exists: bool | None


@dataclass(slots=True)
class Matched:
    """One matcher, and whom it matches.

    Attributes:
        place: its path in the configuration.
        use: "match", "deny" or "rule"; "part" of an `any` that stands before it.
        groups: control groups that it names.
        processes: those it matches of at least `targets.min_rss`.
        small: those it matches of less.
        watched: those that would be watched because of it; None for denies and parts.
        unjudged: processes of at least `targets.min_rss` of which it cannot be told.
        why: of one of them.
        examples: the largest that it matches.
        rule: index of a rule that is no deny; -1 for all else.
    """

    place: str
    use: str
    table: Mapping[str, Any]
    groups: tuple[GroupPath, ...] = ()
    processes: int = 0
    small: int = 0
    watched: int | None = None
    unjudged: int = 0
    why: str = ""
    examples: list[Example] = field(default_factory=list)
    rule: int = -1


@dataclass(frozen=True, slots=True)
class Survey:
    """What a configuration means on a host.

    Attributes:
        processes: user processes that were seen, without those of tierd.
        large: of at least `targets.min_rss`.
        watched: those the service would watch.
        over_limit: those that it would leave out, as `targets.limit` allows no more.
        left_alone: those it would not touch, as a matcher's answer about them is not known → why.
        not_answering: those whose files the kernel does not give out for now.
        not_read: those that were not asked, as too many did not answer.
        unseen: those of which this user sees the number only.
        hidden: whether /proc does not list others' processes for this user (proc(5), hidepid).
        hidden_programs: those whose program a matcher asks for and this user does not see.
        host_groups: whether control groups are seen from the host's root; None: not known.
        matchers: in the order of the configuration.
    """

    processes: int
    large: int
    watched: int
    over_limit: int
    left_alone: Mapping[int, str]
    not_answering: Sequence[Example]
    not_read: int
    unseen: int
    hidden: bool
    hidden_programs: int
    host_groups: bool | None
    matchers: Sequence[Matched]


def survey(
    config: TargetsConfig,
    rules: Sequence[RuleConfig],
    reads: BoundedReads,
    *,
    proc: Path = PROC,
    root: Path = Path("/"),
    own: Collection[int] = (),
) -> Survey:
    """Ask each matcher of a configuration about each process.

    Args:
        own: processes of tierd, which are left out with their children.

    Raises:
        UnavailableError: there is no /proc.
    """
    namespace = CgroupNamespace.find(proc, root)
    stats, unseen = _stats(proc)
    made = _Asking(config, rules)
    made.name_groups(namespace, proc, root)
    # Small ones last: those that the service does not look at take nothing from the others.
    mine = sorted(
        (stat for pid, stat in stats.items() if not descends(pid, own, stats)),
        key=lambda stat: (-stat.rss_bytes, stat.pid),
    )
    for stat in mine:
        made.ask(Process(stat, proc, reads=reads, from_root=namespace.path))
    watched = made.count_watched(config.limit)
    silent = made.refused if len(made.refused) < bounds.READERS else made.refused & reads.late
    return Survey(
        processes=len(mine),
        large=sum(stat.rss_bytes >= config.min_rss_bytes for stat in mine),
        watched=watched,
        over_limit=len(made.meant) - watched,
        left_alone=made.left_alone,
        not_answering=[_example(stats[pid]) for pid in sorted(silent)],
        not_read=len(made.refused - silent),
        unseen=unseen,
        hidden=_hidden(proc),
        hidden_programs=len(made.hidden),
        host_groups=in_hosts_namespace(proc),
        matchers=[matched for matched, _ in made.asked],
    )


def _stats(proc: Path) -> tuple[dict[int, Stat], int]:
    """Every user process, and how many are hidden."""
    stats, unseen = {}, 0
    try:
        pids = list_pids(proc)
    except OSError as error:
        raise UnavailableError(f"cannot read {proc}: {error.strerror}") from None
    for pid in pids:
        try:
            stat = read_stat(pid, proc)
        except TargetGoneError:
            # One that went meanwhile has no folder, a hidden one has (hidepid=1).
            folder = proc / str(pid)
            unseen += folder.exists() and not os.access(folder / "stat", os.R_OK)
            continue
        if not (stat.kernel_thread or stat.ended):
            stats[pid] = stat
    return stats, unseen


def _hidden(proc: Path) -> bool:
    """Whether others' processes are not listed, but to root."""
    try:
        mounts = read_bytes(f"{proc}/self/mounts", bounds.MAPS_BYTES).decode("utf-8", "replace")
    except TargetGoneError:
        return False
    options = (line.split(" ")[3] for line in mounts.splitlines() if f" {proc} proc " in line)
    return os.geteuid() != 0 and any(re.search(_INVISIBLE, each) for each in options)


def _example(stat: Stat) -> Example:
    return Example(stat.pid, stat.comm, stat.rss_bytes)


class _Asking:
    """The matchers, and what they have answered so far.

    Attributes:
        asked: what is known of each, and the matcher.
        meant: processes that are to be watched, with the index of their rule.
        left_alone: as `Survey.left_alone`.
        refused: processes that were not answered about.
        hidden: processes whose program this user does not see.
    """

    def __init__(self, config: TargetsConfig, rules: Sequence[RuleConfig]) -> None:
        self._least = config.min_rss_bytes
        self._matching = Matching(config, rules)
        self.asked = list(_matchers(config, rules))
        self.meant: list[tuple[Process, int]] = []
        self.left_alone: dict[int, str] = {}
        self.refused: set[int] = set()
        self.hidden: set[int] = set()

    def name_groups(self, namespace: CgroupNamespace, proc: Path, root: Path) -> None:
        """Find out which control groups there are."""
        for matched, matcher in self.asked:
            if not _parts(matcher):  # else its parts say it
                matched.groups = tuple(
                    GroupPath(path, namespace.exists(path, proc, root))
                    for path in dict.fromkeys(_group_paths(matcher))
                )

    def ask(self, process: Process) -> None:
        """Ask every matcher about a process; larger ones come first."""
        large = process.rss_bytes >= self._least
        for matched, matcher in self.asked:
            try:
                if matcher.matches(process):
                    _count(matched, process, large)
            except NotAnsweringError as error:
                self.refused.add(process.pid)
                _count_unjudged(matched, error, large)
            except UnjudgeableError as error:
                if large and isinstance(error, HiddenProgramError):
                    self.hidden.add(process.pid)
                _count_unjudged(matched, error, large)
            except TargetGoneError:
                return
        if large:
            self._judge(process)

    def _judge(self, process: Process) -> None:
        """All matchers together, as the service does."""
        try:
            rule = self._matching.rule_of(process)
        except UnjudgeableError as error:
            self.left_alone[process.pid] = error.message
        except TargetGoneError:
            return
        else:
            if rule is not None:
                self.meant.append((process, rule))

    def count_watched(self, most: int) -> int:
        """Say which matchers let in the `most` largest; how many these are."""
        watched = self.meant[:most]
        self.asked[0][0].watched = len(watched)
        rules = [matched for matched, _ in self.asked if matched.rule >= 0]
        for matched in rules:
            matched.watched = sum(rule == matched.rule for _, rule in watched)
        return len(watched)


def _count(matched: Matched, process: Process, large: bool) -> None:
    if not large:
        matched.small += 1
        return
    matched.processes += 1
    if len(matched.examples) < bounds.EXAMPLES:
        matched.examples.append(_example(process.stat))


def _count_unjudged(matched: Matched, error: TierdError, large: bool) -> None:
    if large:
        matched.unjudged += 1
        matched.why = matched.why or error.message


def _matchers(
    config: TargetsConfig, rules: Sequence[RuleConfig]
) -> Iterator[tuple[Matched, Matcher]]:
    """`targets.match`, which is the first, the denies and the rules, each with its parts."""
    yield from _with_parts("targets.match", "match", config.match)
    for index, deny in enumerate(config.deny):
        yield from _with_parts(f"targets.deny[{index}]", "deny", deny)
    for index, rule in enumerate(rules):
        yield from _with_parts(
            f"rule {rule.name}", "deny" if rule.deny else "rule", rule.match, index
        )


def _with_parts(
    place: str, use: str, matcher: Matcher, rule: int = -1
) -> Iterator[tuple[Matched, Matcher]]:
    """A matcher, and of an `any` each part: one of them may be what is spelt wrong."""
    yield Matched(place, use, matcher.table(), rule=-1 if use == "deny" else rule), matcher
    for index, part in enumerate(_parts(matcher)):
        yield Matched(f"{place} any[{index}]", "part", part.table()), part


def _parts(matcher: Matcher) -> tuple[Matcher, ...]:
    """The parts of an `any`; none of all else."""
    return matcher.parts if isinstance(matcher, Combined) and matcher.key == "any" else ()


def _group_paths(matcher: Matcher) -> Iterator[str]:
    """The control groups that a matcher names, also below `not`."""
    if isinstance(matcher, Combined):
        for part in matcher.parts:
            yield from _group_paths(part)
    elif isinstance(matcher, Fact) and matcher.key == "cgroup":
        yield str(matcher.value)
