# SPDX-License-Identifier: Apache-2.0
"""What `tierd status` tells of the source in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from desk import make_desk
from loopbench import interrupt_at

from tierd.cli.doctor import of_service
from tierd.cli.status import head, moves
from tierd.config.serving import PageOutConfig, TierHealthConfig
from tierd.control.status import status
from tierd.core.access import Seen
from tierd.core.quantiles import Quantiles
from tierd.engine.page_out import PageOut
from tierd.engine.page_out_known import known_of
from tierd.engine.tier_health import TierHealth
from tierd.policy.page_out import PageOutState
from tierd.topology.error_report import ErrorReport, ErrorTotals, Kind
from tierd.topology.errors import MemoryErrors
from tierd.topology.health import Health, Symptom
from tierd.topology.probe import Probed


def near(value_ns: float) -> Any:
    return pytest.approx(value_ns, rel=0.0101)


def told_of(folder: Path, seen: Seen | None) -> dict[str, Any]:
    """The status after two passes with a source that looks like this."""
    bench, desk = make_desk(folder)
    bench.source.seen = seen
    bench.source.on_poll = interrupt_at(2)
    bench.service.run()
    return {**status(bench.service, desk.state, hottest=False), "paused": None}


@pytest.mark.parametrize(
    ("sampling_interval_s", "line"),
    [
        (0.0253, "scanned every 400 ms; the sampling interval is 25.3 ms"),
        (0.4, "scanned every 400 ms; the sampling interval is the same"),
    ],
)
def test_the_exposure_of_looks_is_told(tmp_path: Path, sampling_interval_s: float, line: str):
    told = told_of(tmp_path, Seen(0.3, sampling_interval_s, 0.4))
    assert told["source"]["scan"] == {
        "sampling_interval_seconds": sampling_interval_s,
        "interval_seconds": 0.4,
    }
    lines = head(told)
    place = next(index for index, each in enumerate(lines) if each.startswith("source"))
    assert lines[place + 1] == f"         a page is {line}"


def test_one_tier_alone_is_told(tmp_path: Path):
    told = told_of(tmp_path, None)
    assert told["memory_errors"] == {"errors": []}
    assert "WAITS" not in "\n".join(head(told))
    assert "WAITS: all memory is one tier" in "\n".join(head({**told, "tiers": told["tiers"][:1]}))


def test_a_slow_node_is_told(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    watch = TierHealth(TierHealthConfig(enabled=True), lambda tiers: {})
    slow = Health(
        frozenset([Symptom.STALLS, Symptom.LATENCY]),
        2.0,
        1.0,
        Probed(860, 871.2, 1, 7e9),
        430,
        8e9,
        9,
    )
    well = Health(frozenset(), 1.0, 1.0, Probed(118, 118, 0, 16e9), 118, 16e9, 9)
    watch.health = {0: well, 1: slow}
    bench.service.background = (watch,)
    bench.source.on_poll = interrupt_at(2)
    bench.service.run()
    told = {**status(bench.service, desk.state, hottest=False), "paused": None}
    assert [each["node"] for each in told["slow_nodes"]] == [1]
    assert (
        "SLOW: node 1 (latency, stalls): a read takes 871 ns (usually 430), "
        "a stream gets 7 GB/s (8)"
    ) in head(told)


def test_memory_errors_are_told_by_status(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    errors = MemoryErrors(tmp_path)
    watch = TierHealth(TierHealthConfig(enabled=True), lambda tiers: {}, errors=errors)
    poison = ErrorReport(Kind.POISON, 0x150001000, "mem0", 0x1000, "Internal", node=1)
    replaced = ErrorReport(Kind.SOFT_OFFLINE)
    latest = {(1, poison.kind): poison, (None, replaced.kind): replaced}
    errors.totals = ErrorTotals(dict(zip(latest, (3, 1), strict=True)), latest, lost=2)
    bench.service.background = (watch,)
    bench.source.on_poll = interrupt_at(2)
    bench.service.run()
    told = {**status(bench.service, desk.state, hottest=False), "paused": None}
    assert told["memory_errors"]["lost"] == 2
    lines = head(told)
    assert (
        "ERRORS: node 1: 3 poison, last: address 0x150001000, device mem0, "
        "device address 0x1000, detail Internal"
    ) in lines
    assert "ERRORS: node not known: 1 soft_offline" in lines


def test_page_outs_are_told_and_what_stands_against_them(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    page_out = PageOut(PageOutConfig(enabled=True))
    bench.service.background = (page_out,)
    bench.source.on_poll = interrupt_at(2)
    bench.service.run()
    page_out.state = PageOutState("", {"out": 2048, "back": 512}, 0, 120.0, 0.0004, 1e-5)
    told = {**status(bench.service, desk.state, hottest=False), "paused": None}
    assert told["page_out"]["pages"] == {"out": 2048, "back": 512}
    assert told["page_out"]["why_not"] is None
    line = (
        "paged out 8.0 MiB, of which 2.0 MiB came back; a page goes after 0:02:00, and faults cost "
        "0.04% of a CPU"
    )
    assert head(told)[-1] == line
    page_out.state = PageOutState("there is no swap")
    told = {**status(bench.service, desk.state, hottest=False), "paused": None}
    assert head(told)[-1] == "         nothing is paged out now: there is no swap"
    assert told_of(tmp_path, None)["page_out"] is None


def test_page_outs_need_a_source_that_checks_each_page(tmp_path: Path):
    bench, _ = make_desk(tmp_path)
    stop, told = interrupt_at(3), []

    def on_poll(*args: Any) -> None:
        bench.service.work.paused = len(told) == 2
        told.append(known_of(bench.service))
        bench.source.seen = Seen(0.3, 0.1, 0.4)
        stop(*args)

    bench.source.on_poll = on_poll
    bench.service.run()
    assert [each.why_not for each in told] == [
        f"the source {bench.source.name} does not check each page for accesses, or not yet",
        "",
        "the service moves nothing: it is paused, undoes moves, or stands down",
    ]
    known = told[1]
    assert known.started == {0: 1}
    # Three folios were evicted, and each poll lost two samples.
    assert known.unknown == 3 + 2
    assert known.heat_of(np.array([1], np.uint64))[1] == 2.5
    bench.service.work.paused = False
    assert known_of(bench.service).why_not == "there is no source of page accesses"


def test_times_are_told_by_quantiles(tmp_path: Path):
    bench, desk = make_desk(tmp_path)
    watch = TierHealth(TierHealthConfig(enabled=True), lambda tiers: {})
    watch.probe_cpu_ns = {0: Quantiles(), 1: Quantiles()}
    watch.probe_cpu_ns[1].add([2e6, 2e6, 9e6])
    bench.service.background = (watch,)
    bench.source.on_poll = interrupt_at(2)
    bench.service.run()
    told = {**status(bench.service, desk.state, hottest=False), "paused": None}
    assert told["probe_cpu_ns"]["1"] == {"count": 3, "p50": near(2e6), "p99": near(2e6), "max": 9e6}
    assert told["totals"]["move_page_ns"] == {
        "count": told["totals"]["promoted_pages"] + told["totals"]["demoted_pages"],
        "p50": near(2000),
        "p99": near(2000),
        "max": 2000.0,
    }
    assert told["totals"]["tick_ns"]["count"] == 2
    lines = [line for line in moves(told) if line.startswith("times")]
    assert [line.split(":")[0] for line in lines] == [
        "times    a tick",
        "times    a moved page",
        "times    CPU to probe node 1",
    ]
    assert lines[2].endswith("median 2 ms, 99 % below 2 ms, longest 9 ms")


def test_what_was_not_timed_is_not_told(tmp_path: Path):
    told = told_of(tmp_path, None)
    told["totals"]["move_page_ns"] = Quantiles().as_json()
    assert not [line for line in moves(told) if "a moved page" in line]


def test_a_source_that_does_not_look_says_nothing_of_it(tmp_path: Path):
    told = told_of(tmp_path, None)
    assert told["source"]["scan"] is None
    assert "looked at" not in "".join(head(told))


def test_memory_that_refuses_is_told_by_status_and_by_doctor(tmp_path: Path):
    told = told_of(tmp_path, None)
    assert not [line for line in moves(told) if line.startswith(("refused", "limited"))]
    assert list(of_service(told)) == list(of_service({})) == []
    told["totals"]["left_alone"] = {
        "pages": {"refused": 512, "busy": 3, "failed": 0},
        "retried": {"moved": 2, "refused": 70},
        "dropped": 0,
        "limited": {"4711": 1 / 64},
    }
    lines = moves(told)
    assert (
        "refused  515 pages, or their mappings, refuse to move and are left alone; of 72 tried "
        "again 2 moved"
    ) in lines
    assert "limited  process 4711 to 1.6% of the limit: its moves failed" in lines
    (found,) = of_service(told)
    assert found.reason == (
        "the service leaves 515 pages alone (512 refused, 3 busy), of process 4711"
    )
    assert "tierd explain" in found.hint
