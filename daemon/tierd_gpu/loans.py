# SPDX-License-Identifier: Apache-2.0
"""Loans: memory of a neighbour for programs that fill it themselves, as a cache.

A program says how much it wants on a GPU and how much it holds there; it is granted so much
of what the GPU can lend (`share.divide`, in `reclaim`). What is in a loan may be given up
without a copy, so taking it back costs the program a message and the cost of its misses. A
grant that falls below what is held starts a revocation, with a bound; while one is pending
the grant does not grow. A program that gives nothing back keeps nothing from the lender: its
blocks are managed memory, which the driver evicts.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from tierd_gpu.tuning import LOAN, RECLAIM


@dataclass(slots=True)
class Loan:
    """What one session has on one GPU, in chunks.

    Attributes:
        wanted, held: as the program says.
        granted: what it may hold.
        peak: what it may hold as far as it may know: the grant before it last fell.
        pending: revocations (granted, since_ns), the oldest first, each with less granted.
        late: the oldest of them has passed the bound.
        used_ns: when the program last said anything of it.
        changed_ns: when the grant last changed.
        news: the grant changed since it was last sent.
    """

    session: int
    uid: int
    gpu: int
    wanted: int = 0
    held: int = 0
    granted: int = 0
    peak: int = 0
    pending: list[tuple[int, int]] = field(default_factory=list)
    late: bool = False
    used_ns: int = 0
    changed_ns: int = 0
    news: bool = False

    @property
    def need(self) -> int:
        """What it would be granted at most; what it holds by right stays."""
        return max(self.wanted, min(self.held, self.granted))

    def weight(self, rate: float, now_ns: int) -> float:
        """Its weight against others: the rate of its way there, less if it is idle."""
        return rate * (LOAN.idle_weight if now_ns - self.used_ns > LOAN.idle_ns else 1.0)


class Loans:
    """All loans.

    Args:
        bound_ns: time in which what is taken back is to be given back.
        counts: events are counted there.

    Attributes:
        loans: by (session, gpu).
        returned_ns: how long the last revocations took that were obeyed.
    """

    def __init__(self, bound_ns: int, counts: Counter[str]) -> None:
        self.bound_ns = bound_ns
        self.counts = counts
        self.loans: dict[tuple[int, int], Loan] = {}
        self.returned_ns: deque[int] = deque(maxlen=RECLAIM.times_kept)

    def tell(self, loan: Loan, wanted: int, held: int, now_ns: int) -> None:
        """What a program says of its loan, in chunks."""
        loan.wanted, loan.held, loan.used_ns = wanted, held, now_ns
        while loan.pending and held <= loan.pending[0][0]:
            _, since = loan.pending.pop(0)
            self.counts["loan_revocations_obeyed" if not loan.late else "loan_returns_late"] += 1
            if not loan.late:
                self.returned_ns.append(now_ns - since)
            loan.late = False
        if held > loan.granted and not loan.pending:
            self._revoke(loan, now_ns)
        if not wanted and not held:
            self.loans.pop((loan.session, loan.gpu), None)

    def of(self, session: int, uid: int, gpu: int) -> Loan:
        """A session's loan on a GPU; a new one has nothing yet."""
        return self.loans.setdefault((session, gpu), Loan(session, uid, gpu))

    def leave(self, session: int) -> None:
        """A session ends, and the memory of its process goes with it."""
        for key in [key for key in self.loans if key[0] == session]:
            del self.loans[key]

    def on(self, gpu: int) -> list[Loan]:
        """The loans on a GPU."""
        return [loan for loan in self.loans.values() if loan.gpu == gpu]

    def lent(self, gpu: int) -> int:
        """Chunks that count as lent: those that are held, as far as they were ever granted."""
        return sum(min(loan.held, max(loan.granted, loan.peak)) for loan in self.on(gpu))

    def grant(self, loan: Loan, chunks: int, now_ns: int) -> None:
        """A loan's share is `chunks` now: it falls at once, and grows slowly."""
        if loan.pending and not loan.late and now_ns - loan.pending[0][1] > self.bound_ns:
            loan.late = True
            self.counts["loan_revocations_late"] += 1
        age_ns = now_ns - loan.changed_ns
        if chunks < loan.granted:
            loan.peak = max(loan.peak, loan.granted)
            self._set(loan, chunks, now_ns)
            if loan.held > chunks:
                self._revoke(loan, now_ns)
        elif loan.pending or (loan.granted and age_ns < LOAN.grow_ns):
            return
        else:
            loan.peak = loan.granted
            more = chunks - loan.granted
            least = min(LOAN.grow_chunks, max(1, loan.granted // LOAN.grow_divisor))
            if more >= least or (more > 0 and chunks == loan.need):
                self._set(loan, chunks, now_ns)

    def _set(self, loan: Loan, chunks: int, now_ns: int) -> None:
        loan.granted, loan.changed_ns, loan.news = chunks, now_ns, True

    def _revoke(self, loan: Loan, now_ns: int) -> None:
        """Less is granted than is held."""
        loan.news = True
        if len(loan.pending) == LOAN.pending:
            loan.pending[-1] = (loan.granted, loan.pending[-1][1])
            return
        loan.pending.append((loan.granted, now_ns))
        self.counts["loan_revocations"] += 1

    def news(self, session: int, now_ns: int) -> list[tuple[int, int, int]]:
        """Grants of a session to be sent: (gpu, ms until the rest must be gone, chunks)."""
        found = []
        for (owner, gpu), loan in self.loans.items():
            if owner == session and loan.news:
                loan.news = False
                due_ms = 0
                if loan.pending:
                    left_ns = loan.pending[-1][1] + LOAN.notice_ratio * self.bound_ns - now_ns
                    due_ms = max(1, int(left_ns / 1e6))
                found.append((gpu, due_ms, loan.granted))
        return found
