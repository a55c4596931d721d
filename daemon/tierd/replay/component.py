# SPDX-License-Identifier: Apache-2.0
"""Components that decide: their calls are recorded, and made again in a replay.

A `Component` says once how each call becomes plain values and how plain values become a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from tierd.core.tiermap import NodeUsage, TierMap
from tierd.hotness.view import HeatView
from tierd.observe.recording import RecordingError
from tierd.observe.recording.codec import MISSHAPEN
from tierd.observe.recording.records import Call
from tierd.policy.limits import Groups

T = TypeVar("T")

Journal = Callable[[str, Sequence[object], Sequence[object]], None]
"""Called with the kind of call, what it was given, and what it decided."""
MOST: Final = float(1 << 62)
"""No component is given a number beyond this."""
MISSING: Final = "ticks are missing from here on"
DROPPED: Final = "the recorder had no room for some of what it was given"


@dataclass(frozen=True, slots=True)
class Surrounding:
    """What a call in a replay may use besides what it was given: all as of the tick."""

    heat: HeatView
    tiers: TierMap
    usage: Mapping[int, NodeUsage]
    groups: Groups | None


def _same(_component: Any, *values: Any) -> Any:
    return values


@dataclass(frozen=True, slots=True)
class Method:
    """How one method's calls are recorded and made again; each hook is given the component first.

    Attributes:
        keywords: names of its arguments that have no place.
        wrap: arguments → those to call it with, which note what they are asked.
        given: arguments → plain values, before the call; None: this call is not recorded.
        asked: arguments and result → plain values that the call found out by itself.
        decided: result and arguments → plain values of the decision.
        arguments: the plain values of `given` and `asked` → arguments, in a replay.
    """

    keywords: tuple[str, ...] = ()
    wrap: Callable[..., Sequence[Any]] = _same
    given: Callable[..., Sequence[Any] | None] = _same
    asked: Callable[..., Sequence[Any]] = lambda *_: ()
    decided: Callable[..., Sequence[Any]] = lambda component, result, *_: [result]
    arguments: Callable[..., Sequence[Any]] = _same

    def call(self, method: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Call it with all arguments in their order."""
        places = len(arguments) - len(self.keywords)
        named = dict(zip(self.keywords, arguments[places:], strict=True))
        return method(*arguments[:places], **named)


@dataclass(frozen=True, slots=True)
class Component(Generic[T]):
    """How a component is recorded and replayed.

    Attributes:
        name: the first part of its calls' kinds.
        make: makes one, in the service.
        given: arguments of `make` → plain values.
        remake: plain values → one, in a replay.
        prepare: gives one its surrounding before a call, in a replay.
        state: plain values of a new one's state, and of that after each call.
        many: there may be several, each with a name of its own.
    """

    name: str
    make: Callable[..., T]
    methods: Mapping[str, Method]
    given: Callable[..., Sequence[Any]] = lambda *arguments, **named: ()
    remake: Callable[..., T] | None = None
    prepare: Callable[[Any, Surrounding], None] | None = None
    state: Callable[[Any], Sequence[Any]] = lambda component: ()
    many: bool = False

    def recorded(self, journal: Journal, name: str = "") -> Callable[..., T]:
        """Makes components, called as `make`, whose calls are written into a journal."""
        own = [name] if self.many else []

        def make(*arguments: Any, **named: Any) -> T:
            component = self.make(*arguments, **named)
            given = [*own, *self.given(*arguments, **named)]
            journal(f"{self.name}.new", given, self.state(component))
            self._note(component, journal, own)
            return component

        return make

    def _note(self, component: T, journal: Journal, own: Sequence[str]) -> None:
        """Have calls written into a journal; those that a call makes itself are part of it."""
        running: list[str] = []

        def noting(name: str, how: Method) -> Callable[..., Any]:
            method = getattr(component, name)

            def call(*places: Any, **named: Any) -> Any:
                if running:
                    return method(*places, **named)
                arguments = [*places, *(named[keyword] for keyword in how.keywords)]
                arguments = [*how.wrap(component, *arguments)]
                given = how.given(component, *arguments)
                running.append(name)
                try:
                    result = how.call(method, arguments)
                finally:
                    running.clear()
                if given is not None:
                    given = [*own, *given, *how.asked(component, result, *arguments)]
                    decided = how.decided(component, result, *arguments)
                    journal(f"{self.name}.{name}", given, [*decided, *self.state(component)])
                return result

            return call

        for name, how in self.methods.items():
            setattr(component, name, noting(name, how))


class Replayed:
    """Makes the recorded calls of components again.

    Args:
        others: makes calls of further kinds again, of the surrounding and what they were given.
    """

    def __init__(
        self,
        components: Sequence[Component[Any]],
        others: Mapping[str, Callable[..., Sequence[Any]]],
    ) -> None:
        self._components = {each.name: each for each in components}
        self._others = others
        self._made: dict[tuple[str, str], Any] = {}

    def decide(self, call: Call, around: Surrounding) -> Sequence[Any]:
        """What this call decides now.

        Raises:
            RecordingError: it is no call that a recorder writes.
        """
        try:
            _bounded(call.given)
            return self._decide(call, around)
        except MISSHAPEN as error:
            raise RecordingError(
                f"a call of kind {call.kind:.40} makes no sense: {type(error).__name__}"
            ) from None

    def _decide(self, call: Call, around: Surrounding) -> Sequence[Any]:
        if (other := self._others.get(call.kind)) is not None:
            return other(around, *call.given)
        name, _, method = call.kind.partition(".")
        component, given = self._components[name], list(call.given)
        key = name, str(given.pop(0)) if component.many else ""
        if method == "new":
            made = self._made[key] = (component.remake or component.make)(*given)
            return component.state(made)
        made, how = self._made[key], component.methods[method]
        if component.prepare is not None:
            component.prepare(made, around)
        arguments = how.arguments(made, *given)
        result = how.call(getattr(made, method), arguments)
        return [*how.decided(made, result, *arguments), *component.state(made)]


def _bounded(values: Sequence[Any]) -> None:
    """Whether each number of a call is one that components are given."""
    for value in values:
        if isinstance(value, list):
            _bounded(value)
        elif isinstance(value, int | float) and not -MOST <= value <= MOST:
            raise ValueError("a number that is too large, or none")


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that is not the recorded one: the tick, what was decided, and both values."""

    tick: int
    what: str
    recorded: Any
    replayed: Any


@dataclass
class Part:
    """How far one part of the service decides again as it did.

    Attributes:
        differing: of those, that are not the recorded ones.
        ended: why decisions were not made again to the end, "" where they were.
    """

    name: str
    decisions: int = 0
    differing: int = 0
    first: Difference | None = field(default=None)
    ended: str = ""

    def count(self, tick: int, what: str, recorded: Any, replayed: Any) -> bool:
        """One decision; true if it is the recorded one. Both values are plain."""
        self.decisions += 1
        # As text: not a number is the same as itself here, and 1 is not 1.0.
        if recorded is replayed or repr(recorded) == repr(replayed):
            return True
        self.differing += 1
        self.first = self.first or Difference(tick, what, recorded, replayed)
        return False

    def end(self, reason: str) -> None:
        """No more decisions can be made again."""
        self.ended = self.ended or reason
