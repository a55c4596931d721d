# SPDX-License-Identifier: Apache-2.0
"""`tierd config check --live`: what the matchers mean on this host, as text and as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tierd.cli._client import connect
from tierd.config.model import Config
from tierd.config.whole import toml_value
from tierd.core.errors import TierdError
from tierd.core.logfmt import printable
from tierd.core.units import format_size, size_text
from tierd.workloads.bounded_reads import BoundedReads
from tierd.workloads.survey import Example, Matched, Survey, survey

_WIDTH: Final = 100
"""Characters of a matcher that are shown."""
_SHOWN: Final = 5
"""Processes of one kind that are named in a warning."""


def examine(config: Config, path: Path | None) -> Survey:
    """Ask this host; `path`: of the configuration, which says where the service listens."""
    own = {os.getpid()}
    try:
        with connect(argparse.Namespace(config=path, socket=None)) as client:
            own.add(int(client.ask("version")["pid"]))
    except (TierdError, OSError):
        pass  # none runs here, or this user may not ask it
    reads = BoundedReads()
    try:
        return survey(config.targets, config.rules, reads, own=own)
    finally:
        reads.close()


def as_json(found: Survey, config: Config) -> dict[str, Any]:
    """For scripts (docs/operate/targets.md)."""
    told = dataclasses.asdict(found)
    for matcher in told["matchers"]:
        del matcher["rule"]
    told["left_alone"] = [{"pid": pid, "why": why} for pid, why in found.left_alone.items()]
    told["min_rss_bytes"] = config.targets.min_rss_bytes
    told["warnings"] = list(warnings(found, config))
    return told


def as_text(found: Survey, config: Config) -> str:
    """For people."""
    least = size_text(config.targets.min_rss_bytes)
    lines = [
        f"{_processes(found.processes)} here, {found.large} with at least {least} resident; "
        f"the service would watch {found.watched}"
    ]
    for matched in found.matchers:
        lines += _matcher_lines(matched, least)
    if told := list(warnings(found, config)):
        lines += ["", *(f"warning: {each}" for each in told)]
    return "\n".join(lines)


def _matcher_lines(matched: Matched, least: str) -> Iterator[str]:
    indent = "    " if matched.use == "part" else ""
    table = printable(toml_value(matched.table))
    if len(table) > _WIDTH:
        table = table[: _WIDTH - 3] + "..."
    denies = " (denies)" if matched.use == "deny" else ""
    yield f"{'' if indent else chr(10)}{indent}{printable(matched.place)}{denies}: {table}"
    counts = [_processes(matched.processes)]
    if matched.watched is not None:
        counts.append(f"{matched.watched} watched")
    if matched.small:
        counts.append(f"{matched.small} more below {least}")
    if matched.unjudged:
        counts.append(f"of {matched.unjudged} it cannot be told")
    yield f"{indent}    {', '.join(counts)}"
    if matched.use != "part":
        yield from (f"        {_words(each)}" for each in matched.examples)


def _words(process: Example) -> str:
    return f"{process.pid} {printable(process.name)}, {format_size(process.rss_bytes)}"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def warnings(found: Survey, config: Config) -> Iterator[str]:
    """What is probably not meant so, or cannot be told, a sentence each."""
    least = size_text(config.targets.min_rss_bytes)
    for matched in found.matchers:
        place = printable(matched.place)
        yield from _idle(matched, place, least)
        for group in matched.groups:
            if group.exists is None:
                yield (
                    f"{place}: whether the control group {printable(group.path)} exists cannot be "
                    "told from here: it may belong to another cgroup namespace"
                )
            elif not group.exists:
                yield f"{place}: there is no control group {printable(group.path)} here"
        if matched.unjudged:
            which = ", and so denies" if matched.use == "deny" else ""
            yield (
                f"{place}: for {_processes(matched.unjudged)} tierd cannot tell whether it matches"
                f"{which} ({printable(matched.why)})"
            )
    yield from _unseen(found)


def _idle(matched: Matched, place: str, least: str) -> Iterator[str]:
    """A matcher that lets nobody in. That a deny is meant for nobody is as it should be."""
    if matched.use == "deny" or matched.unjudged:
        return
    if not matched.processes:
        small = f", but {matched.small} with less than {least}" if matched.small else ""
        yield f"{place}: matches no process{small}"
    elif matched.watched == 0:
        why = "another matcher denies them, or may deny them"
        if matched.use == "rule":
            why += ", or targets.match does not mean them, or an earlier rule does"
        yield f"{place}: none of its {_processes(matched.processes)} would be watched: {why}"


def _unseen(found: Survey) -> Iterator[str]:
    if found.over_limit:
        yield f"{_processes(found.over_limit)} would be left out: targets.limit allows no more"
    if found.left_alone:
        pids = ", ".join(map(str, list(found.left_alone)[:_SHOWN]))
        more = ", ..." if len(found.left_alone) > _SHOWN else ""
        yield (
            f"{_processes(len(found.left_alone))} would be left alone, as a deny or a rule cannot "
            f"be judged of them: {pids}{more}"
        )
    for process in found.not_answering:
        yield (
            f"process {_words(process)}, does not answer: its memory maps are locked, and it would "
            "be left out until it answers"
        )
    if found.not_read:
        yield f"{_processes(found.not_read)} were not asked, as too many do not answer"
    named = any(matched.groups for matched in found.matchers)
    if named and found.host_groups is False:
        yield (
            "this is a cgroup namespace of its own: control groups are named from the host's root "
            "in matchers, wherever the service runs (docs/operate/targets.md)"
        )
    if found.unseen or found.hidden:
        what = _processes(found.unseen) if found.unseen else "processes of other users"
        yield f"{what} cannot be seen by this user (hidepid); try as root"
    if found.hidden_programs:
        yield (
            f"the programs of {_processes(found.hidden_programs)} are hidden from this user: it "
            "takes CAP_SYS_PTRACE, which the unit has, and no security module that refuses it"
        )
