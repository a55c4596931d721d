# SPDX-License-Identifier: Apache-2.0
"""`tierd status`: what the running service sees and does."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

from tierd.cli._client import add_arguments as add_common
from tierd.cli._client import connect, share, table
from tierd.core.errors import ExitCode
from tierd.core.logfmt import printable
from tierd.core.units import format_ns, format_size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tierd status`."""
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Print the status once."""
    with connect(args) as client:
        told = client.ask("status", hottest=True)
    print(json.dumps(told, indent=2) if args.json else "\n".join(text(told)))
    return ExitCode.OK


def text(told: Mapping[str, Any]) -> list[str]:
    """The status for people."""
    return [
        *head(told),
        "",
        *tiers(told),
        "",
        *moves(told),
        *_notes(told),
    ]


def head(told: Mapping[str, Any]) -> list[str]:
    """Who runs, since when, and whether it moves anything."""
    loop, source = told["loop"], told["source"]
    since = format_age(told["time"] - told["start_time"])
    mode = " (dry run)" if told["dry_run"] else ""
    lines = [f"tierd {told['version']}, process {told['pid']}, running for {since}{mode}"]
    if told["paused"]:
        paused = told["paused"]
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(paused["since"]))
        why = f": {printable(paused['reason'])}" if paused["reason"] else ""
        lines.append(f"PAUSED since {when}{why} (tierd resume ends it)")
    if len(told["tiers"]) == 1:
        lines.append("WAITS: all memory is one tier, so that there is nowhere to move a page")
    account = told["totals"]["account"]
    if account["stands_down"]:
        again = format_age(account["again_in_s"])
        lines.append(f"STANDS DOWN for {again}: moving does not pay (tierd resume ends it)")
    lines += map(_slow, told["slow_nodes"])
    lines += map(_memory_error, told["memory_errors"]["errors"])
    if told["undo"]["active"]:
        lines.append(f"UNDOING, {told['undo']['pages_left']} pages are to be put back")
    ago = loop["last_tick_seconds_ago"]
    last = "none yet" if ago is None else f"last {ago:.1f} s ago"
    lines.append(f"ticks    {loop['ticks']}, one every {loop['interval_seconds']:g} s, {last}")
    lines.append(f"source   {source['active'] or 'none'}, {_samples(source)}")
    if source["scan"]:
        lines.append(f"         {_scan_intervals(source['scan'])}")
    lines += [
        f"         {printable(name)} is not used: {printable(reason)}"
        for name, reason in source["unavailable"].items()
    ]
    targets = told["targets"]
    left = f", {targets['left_out']} more exceed the limit" if targets["left_out"] else ""
    lines.append(f"targets  {targets['watched']} processes{left}")
    if silent := targets["not_answering"]:
        pids = ", ".join(map(str, silent))
        lines.append(f"         left out, as the kernel gives no answer about them: {pids}")
    if targets["unjudged"]:
        lines.append(
            f"         {targets['unjudged']} processes are left alone, as whether they are meant "
            "cannot be told: tierd config check --live says why"
        )
    if targets["idle_matchers"]:
        matchers = ", ".join(map(printable, targets["idle_matchers"]))
        lines.append(f"         no process was matched so far by {matchers}")
    heat = told["heat"]
    lines.append(
        f"heat     {heat['tracked']} of at most {heat['capacity']} folios tracked, "
        f"{format_size(heat['memory_bytes'])}"
    )
    return [*lines, *_page_out(told["page_out"])]


def _page_out(told: Mapping[str, Any] | None) -> list[str]:
    """Page-outs, where they are configured."""
    if told is None:
        return []
    out, back = (format_size(told["bytes"].get(each, 0)) for each in ("out", "back"))
    lines = [
        f"paged out {out}, of which {back} came back; a page goes after "
        f"{format_age(told['age_seconds'])}, and faults cost {told['lost_share']:.2%} of a CPU"
    ]
    if told["why_not"]:
        lines.append(f"         nothing is paged out now: {told['why_not']}")
    return lines


def _slow(node: Mapping[str, Any]) -> str:
    now, usual = node["stream_bytes_per_second"], node["usual_stream_bytes_per_second"]
    return (
        f"SLOW: node {node['node']} ({', '.join(node['symptoms'])}): a read takes "
        f"{node['latency_ns']:.0f} ns (usually {node['usual_latency_ns']:.0f}), a stream gets "
        f"{now / 1e9:.3g} GB/s ({usual / 1e9:.3g})"
    )


def _memory_error(error: Mapping[str, Any]) -> str:
    where = f"node {error['node']}" if error["node"] != "unknown" else "node not known"
    last = ", ".join(
        f"{name.replace('_', ' ')} {printable(error[name])}"
        for name in ("address", "device", "device_address", "detail")
        if name in error
    )
    return f"ERRORS: {where}: {error['count']} {error['kind']}{f', last: {last}' * bool(last)}"


def _scan_intervals(scan: Mapping[str, float]) -> str:
    sampling_interval_s, interval_s = (
        scan["sampling_interval_seconds"],
        scan["interval_seconds"],
    )
    if sampling_interval_s >= interval_s:
        counted = "the sampling interval is the same"
    else:
        counted = f"the sampling interval is {1e3 * sampling_interval_s:.3g} ms"
    return f"a page is scanned every {1e3 * interval_s:.0f} ms; {counted}"


def _samples(source: Mapping[str, Any]) -> str:
    samples, lost = sum(source["samples"].values()), sum(source["lost"].values())
    return f"{samples} records, {lost} lost ({share(lost, samples + lost)})"


def tiers(told: Mapping[str, Any]) -> list[str]:
    """The tiers, fastest first."""
    rows: list[list[Any]] = [["TIER", "NODES", "CAPACITY", "USED", "FREE", "LATENCY"]]
    for tier in told["tiers"]:
        capacity, free = tier["capacity_bytes"], tier["free_bytes"]
        rows.append(
            [
                tier["name"],
                ",".join(map(str, tier["nodes"])),
                format_size(capacity),
                share(None if free is None else capacity - free, capacity),
                "-" if free is None else format_size(free),
                f"{tier['latency_ns']:.0f} ns",
            ]
        )
    return table(rows, frozenset({2, 3, 4, 5}))


def moves(told: Mapping[str, Any]) -> list[str]:
    """What was moved since the start."""
    totals, limits = told["totals"], told["migration"]
    lines = [
        f"moved    {format_size(totals['moved_bytes'])}: {totals['promoted_pages']} pages up, "
        f"{totals['demoted_pages']} down",
        f"limit    {format_size(limits['bytes_per_second'])}/s, "
        f"{share(limits['share'], 1)} of it in force",
        *_times(told),
    ]
    lines += [
        f"         {flow['direction']} {printable(flow['source'])} > {printable(flow['dest'])}: "
        f"{flow['pages']} pages"
        for flow in told["migrated_pages"]
    ]
    shown_as = {
        "migration_results": "results",
        "errors": "errors",
        "splits": "splits",
        "rejected": "rejected",
    }
    for name, what in shown_as.items():
        if totals.get(name):
            shown = ", ".join(f"{printable(key)} {count}" for key, count in totals[name].items())
            lines.append(f"{what:<8} {shown}")
    alone = totals["left_alone"]
    if count := sum(alone["pages"].values()):
        again = alone["retried"]
        lines.append(
            f"refused  {count} pages, or their mappings, refuse to move and are left alone; of "
            f"{sum(again.values())} tried again {again['moved']} moved"
        )
    lines += [
        f"limited  process {pid} to {share(part, 1)} of the limit: its moves failed"
        for pid, part in alone["limited"].items()
    ]
    return lines


def _times(told: Mapping[str, Any]) -> list[str]:
    """How long a tick, a page's move and a node's measurement take: the middle and the tail."""
    totals = told["totals"]
    times = {"a tick": totals["tick_ns"], "a moved page": totals["move_page_ns"]}
    times |= {f"CPU to probe node {n}": each for n, each in told["probe_cpu_ns"].items()}
    return [
        f"times    {what}: median {format_ns(each['p50'])}, 99 % below {format_ns(each['p99'])}, "
        f"longest {format_ns(each['max'])}"
        for what, each in times.items()
        if each["count"]
    ]


def _notes(told: Mapping[str, Any]) -> list[str]:
    lines = [
        f"conflict {printable(one['conflict'])}: {printable(one['reason'])}"
        + (f" ({printable(one['hint'])})" if one["hint"] else "")
        for one in told["conflicts"]
    ]
    if not told["config"]["last_reload_ok"]:
        lines.append("config   the last reload was refused; what was before it is in force")
    lines.append(f"config   {', '.join(map(printable, told['config']['files'])) or 'defaults'}")
    if told["metrics"]:
        lines.append(f"metrics  {printable(told['metrics'])}")
    return lines


def format_age(seconds: float) -> str:
    """A time span for people."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    clock = f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
    return f"{days} d {clock}" if days else clock
