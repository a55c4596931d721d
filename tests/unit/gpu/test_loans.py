# SPDX-License-Identifier: Apache-2.0
"""Loans: who is granted how much, how it is taken back, and what programs may say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from gpu_host import MS, SETTINGS, TOTAL, Host

from tierd_gpu import wire
from tierd_gpu.links import CHUNK_BYTES, HOST
from tierd_gpu.loans import Loans
from tierd_gpu.metrics import samples
from tierd_gpu.session import Session
from tierd_gpu.tenant import TenantSpec
from tierd_gpu.tuning import LOAN
from tierd_gpu.wire import Kind, WireError

BOUND = 50 * MS


def test_a_loan_is_what_the_gpu_can_lend_and_no_more_than_is_wanted() -> None:
    host = Host()
    host.join_loans(1)
    loan = host.say(1, 1000, 0)
    host.own[1] = 100
    host.tick()
    assert loan.granted == TOTAL - 100 - 16
    host.say(1, 50, 0)
    host.tick()
    assert loan.granted == 50
    told = {(each.name, each.labels.get("gpu")): each.value for each in samples(host.core)}
    assert told["tierd_gpu_leased_bytes", "1"] == 50 * CHUNK_BYTES


def test_nothing_is_lent_at_home_nor_where_the_program_cannot_go() -> None:
    host = Host()
    host.core.join(TenantSpec(1, 0, 0, max_chunks=64, visible=frozenset({2})))
    loans = [host.say(1, 100, 0, gpu) for gpu in range(3)]
    host.tick()
    assert [loan.granted for loan in loans] == [0, 0, 100]


def test_a_context_that_is_to_be_made_is_taken_off_the_grant() -> None:
    host = Host(replace(SETTINGS, context_bytes=40 * CHUNK_BYTES))
    host.join_loans(1)
    loan = host.say(1, 1000, 0)
    host.tick()
    assert loan.granted == TOTAL - 16 - 40
    host.own[1] = 40
    host.say(1, 1000, 10)
    host.tick(LOAN.grow_ns / MS)
    assert loan.granted == TOTAL - 16 - 40


def test_users_share_alike_however_many_programs_they_have() -> None:
    host = Host()
    for session in range(1, 5):
        host.join_loans(session, uid=session // 4)
    loans = [host.say(session, 1000, 0) for session in range(1, 5)]
    host.tick()
    granted = [loan.granted for loan in loans]
    assert sum(granted) == TOTAL - 16
    assert sum(granted[:3]) == granted[3] == (TOTAL - 16) // 2
    assert max(granted[:3]) - min(granted[:3]) <= 2


def test_a_user_gets_no_more_than_the_quota_with_any_number_of_programs() -> None:
    host = Host(replace(SETTINGS, quota_share=0.25))
    for session in range(1, 4):
        host.join_loans(session)
    loans = [host.say(session, 1000, 0) for session in range(1, 4)]
    host.tick()
    assert sum(loan.granted for loan in loans) == TOTAL // 4


def test_the_largest_loan_gives_back_first_and_of_equal_ones_the_idle_one() -> None:
    host = Host()
    for session, held in ((1, 300), (2, 100)):
        host.join_loans(session, uid=session)
        host.say(session, held, 0)
    host.tick()
    large, small = host.say(1, 300, 300), host.say(2, 100, 100)
    host.own[1] = 200  # more than is free: the driver evicts
    host.tick()
    assert (large.granted, small.granted) == (TOTAL - 200 - 16 - 100, 100)
    assert [len(loan.pending) for loan in (large, small)] == [1, 0]

    host = Host()
    for session in (1, 2):
        host.join_loans(session, uid=session)
        host.say(session, 240, 0)
    host.tick()
    idle = host.say(1, 240, 240)
    host.tick(1 + LOAN.idle_ns / MS)
    used = host.say(2, 240, 240)
    host.own[1] = 200
    host.tick()
    assert 2 * idle.granted < used.granted > 200


def test_a_revocation_is_told_with_its_bound_and_is_over_when_obeyed() -> None:
    host = Host()
    host.join_loans(1)
    host.say(1, 400, 0)
    host.tick()
    assert host.core.loans.news(1, host.now) == [(1, 0, 400)]
    loan = host.say(1, 400, 400)
    host.tick()
    assert host.core.loans.news(1, host.now) == []
    host.own[1] = 200
    host.tick()
    assert host.core.loans.news(1, host.now + 5 * MS) == [(1, 35, TOTAL - 200 - 16)]
    host.now += 20 * MS
    host.say(1, 400, loan.granted)
    assert list(host.core.loans.returned_ns) == [20 * MS]
    assert not loan.pending
    assert host.core.counts["loan_revocations_obeyed"] == 1


def test_each_fall_of_a_grant_has_its_own_bound() -> None:
    counts: Counter[str] = Counter()
    loans = Loans(BOUND, counts)
    loan = loans.of(1, 0, 1)
    loans.tell(loan, 100, 0, 0)
    loans.grant(loan, 100, 0)
    loans.tell(loan, 100, 100, 0)
    for turn in range(5):
        loans.grant(loan, 90 - 10 * turn, turn * 10 * MS)
    assert len(loan.pending) == 5
    loans.grant(loan, 50, 49 * MS)
    assert loan.late is False
    loans.tell(loan, 100, 85, 49 * MS)
    loans.grant(loan, 50, 55 * MS)
    assert loan.late is False
    loans.grant(loan, 50, 61 * MS)
    assert loan.late is True
    loans.tell(loan, 100, 50, 62 * MS)
    assert counts == {
        "loan_revocations": 5,
        "loan_revocations_obeyed": 4,
        "loan_revocations_late": 1,
        "loan_returns_late": 1,
    }
    for chunks in range(1000, 0, -1):
        loans.tell(loan, 2000, 1001, 70 * MS)
        loans.grant(loan, chunks, 70 * MS)
    assert len(loan.pending) <= LOAN.pending


def test_a_grant_falls_at_once_and_grows_slowly_and_never_while_something_is_owed() -> None:
    loans = Loans(BOUND, Counter())
    loan = loans.of(1, 0, 1)
    loans.tell(loan, 400, 0, 0)
    loans.grant(loan, 100, 0)
    loans.grant(loan, 200, LOAN.grow_ns - 1)
    assert loan.granted == 100
    loans.grant(loan, 110, LOAN.grow_ns)
    assert loan.granted == 100
    loans.grant(loan, 116, LOAN.grow_ns)
    assert loan.granted == 116
    loans.tell(loan, 400, 116, LOAN.grow_ns)
    loans.grant(loan, 60, LOAN.grow_ns + 1)
    assert loan.granted == 60
    loans.grant(loan, 400, 3 * LOAN.grow_ns)
    assert loan.granted == 60
    loans.tell(loan, 400, 60, 3 * LOAN.grow_ns)
    loans.grant(loan, 400, 3 * LOAN.grow_ns + 1)
    assert loan.granted == 400


def test_loans_are_taken_back_before_chunks_that_have_to_be_copied() -> None:
    host = Host(replace(SETTINGS, durable=False))
    host.join(1, 0, 150)
    for chunk in range(150):
        host.park(1, chunk, 1)
    host.join_loans(2)
    host.say(2, 300, 0)
    host.tick()
    loan = host.say(2, 300, 280)
    for own in range(0, 220, 10):
        host.own[1] = own
        host.tick()
        host.say(2, 300, min(loan.held, loan.granted))
    kept = int(host.core.tenants[1].lease[1])
    assert kept + loan.granted == TOTAL - 210 - 16
    assert kept == 150


def test_what_is_held_counts_as_lent_only_as_far_as_it_was_granted() -> None:
    host = Host()
    host.join_loans(1)
    host.say(1, 100, 0)
    host.tick()
    host.say(1, 100, 10**6)
    assert host.core.gpus[1].loaned == 100
    host.tick()
    assert host.core.gpus[1].borrowed_bytes == 100 * CHUNK_BYTES
    # Evicted by the driver: the lender has the memory for itself now.
    host.own[1] = TOTAL - 30
    host.tick()
    assert host.core.gpus[1].borrowed_bytes == 30 * CHUNK_BYTES


def test_a_program_that_lies_changes_nothing_that_another_is_granted() -> None:
    granted = []
    for said in (0, 200, 10**9):
        host = Host()
        for session in (1, 2):
            host.join_loans(session, uid=session)
            host.say(session, 200, 0)
        for turn in range(200):
            host.now = turn * MS
            host.core.set_memory(1, TOTAL * CHUNK_BYTES, 0)  # it holds nothing
            host.core.tick(host.now)
            host.say(1, 200, said)
        granted.append(host.core.loans.of(2, 2, 1).granted)
    assert granted == [200, 200, 200]


def test_a_session_that_ends_gives_everything_back() -> None:
    host = Host()
    host.join_loans(1)
    host.say(1, 100, 0)
    host.tick()
    host.say(1, 100, 100)
    assert host.core.gpus[1].loaned == 100
    host.core.leave(1)
    assert (host.core.gpus[1].loaned, host.core.loans.loans) == (0, {})


def test_a_loan_that_is_not_wanted_any_more_is_forgotten_when_it_is_returned() -> None:
    host = Host()
    host.join_loans(1)
    host.say(1, 100, 0)
    host.tick()
    host.say(1, 0, 40)
    host.tick()
    assert host.core.loans.loans[1, 1].granted == 40
    host.say(1, 0, 0)
    assert host.core.loans.loans == {}
    assert host.core.gpus[1].loaned == 0


def test_messages_of_loans_go_through_a_session_and_wrong_ones_end_it() -> None:
    host = Host()
    session = Session(host.core, 7, 0)
    hello = np.zeros(1, wire.HELLO)
    hello["version"], hello["max_chunks"], hello["visible"] = wire.VERSION, 64, 3
    for gpu in range(3):
        hello["visible_uuid"][0][gpu] = gpu
    (message,) = wire.encode(Kind.HELLO, hello)
    session.receive(message, 0)
    want = wire.encode(Kind.LOAN, np.array([(2, 0, 5 * CHUNK_BYTES - 1, 0)], wire.LOAN))
    assert session.receive(want[0], 0) == 1
    host.tick()
    kinds = dict(wire.decode(each) for each in session.send())
    assert kinds[Kind.GRANT].tolist() == [(2, 0, 5 * CHUNK_BYTES)]
    assert not any(wire.decode(each)[0] is Kind.GRANT for each in session.send())
    wrong = wire.encode(Kind.LOAN, np.array([(3, 0, 1, 0)], wire.LOAN))
    with pytest.raises(WireError, match="no GPU 3"):
        session.receive(wrong[0], 0)
    assert host.core.tenants[7].count[HOST] == 0
