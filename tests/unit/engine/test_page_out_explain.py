# SPDX-License-Identifier: Apache-2.0
"""What is told of a page that may be paged out."""

from __future__ import annotations

from page_out_host import AGE_S, PAGES, Host, run

from tierd.config.whole import loads
from tierd.core.errors import UnavailableError
from tierd.core.pagekey import VPN_BITS
from tierd.engine.build import build
from tierd.engine.page_out import PageOut
from tierd.policy.page_out import IN_SWAP, steps


def told(made: PageOut, page: int, second: int, target: int = 3) -> str:
    return made._visits.explain(target << VPN_BITS | page, second * 10**9)


def test_what_is_known_of_a_page_is_told() -> None:
    host = Host(hot={20})
    made = host.made()
    assert told(made, 10, 0).startswith("it is not among the memory")
    run(host, made, 1, 2)
    visits = steps(AGE_S, host.half_life_s) + 1
    assert told(made, 10, 3).startswith(f"it was cold at 1 of the {visits} visits after which")
    assert told(made, 20, 3).startswith("it stays: it, or much near it, was in use")
    run(host, made, 12)
    assert told(made, 10, 13) == IN_SWAP
    assert told(made, 20, 13).startswith("it stays: it, or much near it, was in use")
    assert told(made, 20, 13).endswith("again in 9 s")
    assert told(made, 20, 99).endswith("its visit is due")
    assert told(made, 10, 13, target=4).startswith("it is not among the memory")
    host.hot, host.out = set(range(10, PAGES + 10)), {}
    run(host, made, 23)
    assert told(made, 10, 24).startswith("it stays: it, or much near it, was in use")


def test_why_pages_stay_that_do_not_compress_or_cannot_go() -> None:
    host = Host(kept=0.9)
    made = host.made()
    run(host, made, 1, 2, 12)
    assert "do not compress" in told(made, 10, 13)
    host = Host(stuck={11})
    made = host.made()
    run(host, made, 1, 2, 12)
    assert told(made, 11, 13).startswith("it was cold for long enough, and did not go")
    host = Host()
    host.failing = {77: UnavailableError("input/output error")}
    made = host.made()
    run(host, made, 1, 2)
    assert told(made, 10, 3).startswith("it could not be looked at")


def test_what_stops_page_outs_is_told_of_each_page() -> None:
    host = Host(space=(0, "there is no swap"))
    made = host.made()
    run(host, made, 1, 2)
    assert made.explain(3 << VPN_BITS | 10).endswith("nothing is paged out now: there is no swap")


def test_explanations_tell_of_page_outs_where_they_are_configured() -> None:
    service, _ = build(loads("[page_out]\nenabled = true\n"))
    assert service.components.fast_path is not None
    known = service.components.fast_path.explainer.page_out(3 << VPN_BITS | 10)
    assert known is not None
    assert known.startswith("it is not among the memory")
    service, _ = build(loads(""))
    assert service.components.fast_path is not None
    assert service.components.fast_path.explainer.page_out(3 << VPN_BITS | 10) is None
