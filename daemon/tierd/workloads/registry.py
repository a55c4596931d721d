# SPDX-License-Identifier: Apache-2.0
"""Which processes are watched now, each with a number that page keys carry.

A process is watched when it matches, is not denied, is neither a kernel thread
nor tierd itself nor a child of tierd, and has enough resident memory. A held
pidfd and the start time make sure that a recycled process id is never taken for
the process it used to be.

The numbers of ended targets are handed out again only after `release`, when
whoever keeps page keys has dropped them.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tierd.config.model import TargetsConfig
from tierd.config.rules import RuleConfig
from tierd.core import bounds
from tierd.core.errors import TargetGoneError, UnavailableError, UnjudgeableError
from tierd.core.logfmt import logfmt
from tierd.core.tuning import INTERVAL
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.cgroupns import CgroupNamespace
from tierd.workloads.events import ProcessEvents, ProcessEventSocket
from tierd.workloads.procs import PROC, Process, Stat, read_stat, start_time
from tierd.workloads.readings import NewProcesses, Readings
from tierd.workloads.target import Matching, Numbers, Target, TargetChanges, descends

log = logging.getLogger(__name__)


def _path(process: Process) -> str:
    """A process's control group, for people: as far as it is known."""
    try:
        return process.cgroup
    except UnjudgeableError:
        return process.shown_cgroup


class TargetRegistry:
    """The watched processes; `refresh` looks again.

    Attributes:
        unjudged: processes left alone as it cannot be told whether a matcher matches them, and why.
        left_out: processes that matched at the last refresh but exceed the limit
            (or the numbers and descriptors that are left).
        events: the process event socket, or None where /proc is polled.
        events_refused: why there are no process events, or "".
    """

    def __init__(
        self,
        config: TargetsConfig,
        *,
        rules: Sequence[RuleConfig] = (),
        root: Path = PROC,
        own_pid: int | None = None,
        open_events: Callable[[], ProcessEventSocket] | None = ProcessEventSocket.open,
        pidfd_open: Callable[[int], int] = os.pidfd_open,
        clock: Callable[[], int] = time.monotonic_ns,
        reads: BoundedReads | None = None,
    ) -> None:
        """Start listening; nothing is watched before the first `refresh`.

        Args:
            own_pid: tierd's own process, never watched and nor are its children.
            open_events: opens process events; None polls /proc only.
        """
        self._clock = clock
        self._reads = reads
        self._namespace = CgroupNamespace.find(root)
        self._seen: set[int] = set()
        self._any = self._told_idle = self._told_unjudged = False
        self._idle_from_ns = 0
        self._config = config
        self._rules = tuple(rules)
        self._matching = Matching(config, rules)
        self._rule_of: dict[int, int] = {}
        self._root = root
        self._own = {os.getpid() if own_pid is None else own_pid}
        self._pidfd_open = pidfd_open
        self._by_pid: dict[int, Target] = {}
        self._by_number: dict[int, Target] = {}
        self._processes: dict[int, Process] = {}
        self.readings = Readings(root)
        self._pending = ProcessEvents(lost=True)
        self.numbers = Numbers()
        self.new_processes = NewProcesses()
        self.left_out = 0
        self.unjudged: dict[int, str] = {}
        self.events: ProcessEventSocket | None = None
        self.events_refused = "not asked for"
        if open_events is not None:
            try:
                self.events = open_events()
                self.events_refused = ""
            except UnavailableError as error:
                self.events_refused = str(error)

    @property
    def targets(self) -> Mapping[int, Target]:
        """Number → target, all that are watched now (a live view)."""
        return MappingProxyType(self._by_number)

    def configure(self, config: TargetsConfig, rules: Sequence[RuleConfig] = ()) -> None:
        """Use other rules from the next refresh on."""
        self._config = config
        self._rules = tuple(rules)
        self._matching = Matching(config, rules)
        self._processes.clear()
        self._seen, self._any, self._told_idle, self._idle_from_ns = set(), False, False, 0
        self.readings.wake()

    def collect(self) -> bool:
        """Take in waiting process events; True when a refresh would find something.

        That is when a target ended or executed a program, or when a process that began a
        moment ago has become large enough. Cheap: a loop may call it several times a second.
        """
        if self.events is None:
            return False
        found = self.events.drain()
        if not (found or self.new_processes):
            return False
        self._pending.add(found)
        now_ns = self._clock()
        self.new_processes.begin(found.started | found.executed, now_ns)
        self.new_processes.end(found.ended | self._by_pid.keys())
        grown = self.new_processes.grown(now_ns, self._would_be_watched)
        self._pending.changed |= grown  # nobody of these rests
        return bool(grown) or not self._by_pid.keys().isdisjoint(found.ended | found.executed)

    def refresh(self, now_ns: int) -> TargetChanges:
        """Look again which processes are watched."""
        self.collect()
        events, self._pending = self._pending, ProcessEvents()
        heard = None if self.events is None else events
        stats, rested = self.readings.read(heard, now_ns, self._by_pid, self._config.min_rss_bytes)
        exited = self._exited()
        matched = self._match(stats, exited, rested)
        chosen = self._choose(matched)
        ended = []
        for pid, target in list(self._by_pid.items()):
            process = chosen.get(pid)
            if process is None or pid in events.executed or not self._same(target, process):
                ended.append(self._end(target))
            else:
                self._update(target, process)
        begun = [self._start(p) for p in chosen.values() if p.pid not in self._by_pid]
        started = [target for target in begun if target is not None]
        self._processes = matched
        self._tell_idle(now_ns)
        return TargetChanges(tuple(started), tuple(ended))

    def release(self, number: int) -> None:
        """Allow the number of an ended target to be handed out again.

        Raises:
            KeyError: the number is not that of an ended target.
        """
        self.numbers.release(number)

    def close(self) -> None:
        """Let go of all processes and stop listening."""
        for target in list(self._by_number.values()):
            self._end(target)
        if self.events is not None:
            self.events.close()
            self.events = None

    def _exited(self) -> set[int]:
        """Processes whose pidfd says that they have ended."""
        poller = select.poll()
        by_descriptor = {target.pidfd: pid for pid, target in self._by_pid.items()}
        for descriptor in by_descriptor:
            poller.register(descriptor, select.POLLIN)
        return {by_descriptor[descriptor] for descriptor, _ in poller.poll(0)}

    def _match(
        self, stats: Mapping[int, Stat], exited: set[int], rested: set[int]
    ) -> dict[int, Process]:
        """Who is meant; of the processes in `rested`, what was found last holds."""
        self.unjudged = {pid: why for pid, why in self.unjudged.items() if pid in rested}
        resting = rested - exited
        matched = {pid: found for pid, found in self._processes.items() if pid in resting}
        self._rule_of = {pid: self._rule_of.get(pid, -1) for pid in matched}
        for pid, stat in stats.items():
            if pid in rested:
                continue
            watched = pid in self._by_pid
            least = self._config.min_rss_bytes / (INTERVAL.close_factor if watched else 1.0)
            if stat.rss_bytes < least or pid in exited or descends(pid, self._own, stats):
                continue
            process = self._process(stat, self._processes.get(pid))
            rule = self._meant(process)
            if rule is not None:
                matched[pid] = process
                self._rule_of[pid] = rule
        return matched

    def _meant(self, process: Process) -> int | None:
        """Index of the rule of a process that is to be watched, -1 for none; None if it is not."""
        try:
            return self._matching.rule_of(process)
        except UnjudgeableError as error:
            if not self._told_unjudged:
                self._told_unjudged = True
                log.warning(logfmt(event="cannot_judge", reason=error.message, hint=error.hint))
            self.unjudged[process.pid] = error.message
            return None
        except TargetGoneError:
            return None

    def _would_be_watched(self, pid: int) -> bool | None:
        """Whether a newcomer would be chosen as it is now; None if there is none."""
        try:
            stat = read_stat(pid, self._root)
        except TargetGoneError:
            return None
        if stat.kernel_thread or stat.ended or descends(pid, self._own, {pid: stat}):
            return None
        if stat.rss_bytes < self._config.min_rss_bytes:
            return False
        return self._meant(self._process(stat)) is not None

    @property
    def idle_matchers(self) -> list[str]:
        """Matchers that no process matched since they are in use, by their places."""
        rules = [
            f"rule {rule.name}"
            for index, rule in enumerate(self._rules)
            if index not in self._seen and not rule.deny
        ]
        # A deny that nobody is meant by is as it should be.
        return rules if self._any else ["targets.match", *rules]

    def _tell_idle(self, now_ns: int) -> None:
        """Log once which matchers have matched nothing for a while."""
        self._seen |= {rule for rule in self._rule_of.values() if rule >= 0}
        self._any = self._any or bool(self._by_pid)
        self._idle_from_ns = self._idle_from_ns or now_ns
        if self._told_idle or now_ns - self._idle_from_ns < bounds.FULL_POLL_NS:
            return
        self._told_idle = True
        for matcher in self.idle_matchers:
            log.warning(
                logfmt(event="matches_nothing", matcher=matcher, unjudged=len(self.unjudged))
            )

    def _process(self, stat: Stat, before: Process | None = None) -> Process:
        from_root = self._namespace.path
        return Process(stat, self._root, before, reads=self._reads, from_root=from_root)

    def _choose(self, matched: Mapping[int, Process]) -> dict[int, Process]:
        """The largest processes, as many as the limit allows."""

        def rank(process: Process) -> tuple[float, int]:
            bonus = INTERVAL.close_factor if process.pid in self._by_pid else 1.0
            return -process.rss_bytes * bonus, process.pid

        ordered = sorted(matched.values(), key=rank)
        self.left_out = max(0, len(ordered) - self._config.limit)
        return {process.pid: process for process in ordered[: self._config.limit]}

    def _same(self, target: Target, process: Process) -> bool:
        before = self._processes.get(target.pid)
        return target.start_time == process.stat.start_time and (
            before is None or before.same_program(process.stat)
        )

    def _start(self, process: Process) -> Target | None:
        number = self.numbers.take()
        if number is None:
            self.left_out += 1
            return None
        try:
            pidfd = self._pidfd_open(process.pid)
        except ProcessLookupError:
            self.numbers.give_back(number)
            return None
        except OSError:
            self.numbers.give_back(number)
            self.left_out += 1
            return None
        try:
            # The same start time after opening: the pidfd, and every fact read
            # before it, are of one process.
            if start_time(process.pid, self._root) != process.stat.start_time:
                raise TargetGoneError(f"process {process.pid} is another one now")
            target = Target(
                number=number,
                pid=process.pid,
                start_time=process.stat.start_time,
                pidfd=pidfd,
                comm=process.stat.comm,
                cgroup=_path(process),
                uid=process.uid,
                rss_bytes=process.rss_bytes,
                rule=self._rule_of.get(process.pid, -1),
                activity=process.stat.activity,
            )
        except TargetGoneError:
            os.close(pidfd)
            self.numbers.give_back(number)
            return None
        self._by_pid[target.pid] = target
        self._by_number[number] = target
        return target

    def _update(self, target: Target, process: Process) -> None:
        rule, activity = self._rule_of.get(process.pid, -1), process.stat.activity
        same = (target.activity, target.rule, target.comm) == (activity, rule, process.stat.comm)
        if same and activity:
            return
        try:
            renewed = dataclasses.replace(
                target,
                comm=process.stat.comm,
                cgroup=_path(process),
                uid=process.uid,
                rss_bytes=process.rss_bytes,
                rule=rule,
                activity=activity,
            )
        except TargetGoneError:
            return  # its pidfd tells at the next refresh
        self._by_pid[target.pid] = renewed
        self._by_number[target.number] = renewed

    def _end(self, target: Target) -> Target:
        del self._by_pid[target.pid]
        del self._by_number[target.number]
        os.close(target.pidfd)
        self.numbers.retire(target.number)
        return target
