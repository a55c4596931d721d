# SPDX-License-Identifier: Apache-2.0
"""How many of a pass' accesses went to pages that were not hot, counted again of replayed heat.

The loop advances heat, asks sources, has the detector judge what they told, and ingests it then:
so a judgement is of the batches between one advance and the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tierd.core.access import AccessBatch
from tierd.observe.recording.calls import nonsense, number
from tierd.observe.recording.records import Advance, Call, HeatOp, Ingest
from tierd.observe.recording.world import World


class Novel:
    """Feeds heat, and counts on the way."""

    def __init__(self) -> None:
        self._enabled, self._least = False, 0.0
        self._source = ""

    def feed(
        self, ops: Sequence[HeatOp], calls: Sequence[Call], world: World
    ) -> Iterator[tuple[Call, float]]:
        """Tell heat of all of `ops`; judgements among `calls`, and what is counted for them now.

        Raises:
            RecordingError: a call says what no recorder writes, or an operation cannot be.
        """
        judged = self._judged(calls)
        call: Call | None = None
        for index, op in enumerate(ops):
            if isinstance(op, Advance):
                call = next(judged, None)
            elif isinstance(op, Ingest) and call is not None:
                yield call, self._fresh(call, _pass(ops[index:]), world)
                call = None
            world.apply(op)

    def _judged(self, calls: Sequence[Call]) -> Iterator[Call | None]:
        """One for each pass over the sources; None where nothing can be said of it."""
        for index, call in enumerate(calls):
            if call.kind == "phase.new":
                if len(call.given) < 4:
                    raise nonsense(call, IndexError())
                self._enabled = bool(call.given[0])
                self._least = float(number(call.given[3], 0, 1e9))
            if call.kind != "phase.judge":
                continue
            if len(call.given) != 5:
                raise nonsense(call, IndexError())
            known, self._source = self._source == call.given[0], call.given[0]
            # A changed hot set has heat told of more before the batches.
            yield call if known and self._enabled and not _cleared(calls[index:]) else None

    def _fresh(self, call: Call, batches: Sequence[AccessBatch], world: World) -> float:
        own = [batch for batch in batches if batch.source == call.given[0] and len(batch)]
        return float(sum(world.heat.novel(batch, self._least) for batch in own))


def _pass(ops: Sequence[HeatOp]) -> list[AccessBatch]:
    """The batches until the next pass."""
    end = next((i for i, op in enumerate(ops) if isinstance(op, Advance)), len(ops))
    return [op.batch for op in ops[:end] if isinstance(op, Ingest)]


def _cleared(calls: Sequence[Call]) -> bool:
    """Whether the judgement that comes first, or signs beside it, ended the cards' epochs."""
    after = next((i for i, call in enumerate(calls[1:], 1) if call.kind == "phase.judge"), None)
    return calls[0].decided[:1] == [True] or any(
        call.kind == "phase.take" for call in calls[1:after]
    )
