# SPDX-License-Identifier: Apache-2.0
"""Reload: replaces the configuration of a running service, all of it or nothing.

`prepare` makes and checks all new parts, and changes nothing. Only when that has worked are the
parts swapped, so a broken file leaves the service as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tierd.config.model import Config
from tierd.config.schema import options_of
from tierd.config.whole import check_against, differences
from tierd.core.errors import TierdError, UnavailableError
from tierd.core.logfmt import logfmt
from tierd.core.tiermap import TierMap
from tierd.engine.components import ComponentFactory, Components
from tierd.sources.selection import SourceSelector

log = logging.getLogger(__name__)

RESTART: Final = (
    "control",
    "heat.memory",
    "metrics",
    "page_out",
    "policy.cost.weighted_interleave",
    "tier_health",
)
"""Keys, and tables of keys, that take effect only at the next start."""
PRIVILEGED: Final = ("migration_tracing", "sources")
"""Tables that need a restart if they need a capability which the loop has dropped."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a new configuration.

    Attributes:
        changed: keys whose new values are in force.
        restart: keys whose new values take effect at the next start.
    """

    changed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """A reload, successful or not; `reason` is empty when it was."""

    ok: bool
    reason: str
    applied: Applied = Applied()


class ReloadListener(Protocol):
    """Called after every reload, in the loop's thread."""

    def reload_result(self, ok: bool, reason: str) -> None:
        """A reload ended; `reason` says why it failed."""
        ...


@dataclass(frozen=True)
class Change:
    """A checked configuration with its parts, ready to be swapped in.

    Attributes:
        config: the configuration that will be in force; keys that need a restart keep their
            old values.
        tiers: the new tiers, or None where they stay.
    """

    config: Config
    components: Components
    tiers: TierMap | None
    applied: Applied

    def apply(self, old: Components) -> None:
        """Configure the parts that stay, and close those that go."""
        config = self.config
        if "heat.half_life" in self.applied.changed:
            old.heat.set_half_life(config.heat.half_life_ns / 1e9)
        if self.components.loads is not None:
            self.components.loads.set_half_life(config.heat.half_life_ns / 1e9)
        old.mover.set_rate(config.migration.rate_limit_bytes_per_s)
        old.mover.set_limits(
            busy_retries=config.migration.retries, cpu_share=config.migration.cpu_limit
        )
        old.tracking.configure(config.targets, config.rules, config.residency.interval_ns)
        if old.sources is not self.components.sources:
            # The old sources close first: two may need the same facility of the kernel.
            with contextlib.suppress(UnavailableError):
                old.sources.close()
        if "log.level" in self.applied.changed:
            logging.getLogger("tierd").setLevel(config.log.level.upper())


def prepare(
    old: Config, new: Config, components: Components, factory: ComponentFactory, *, wait: bool
) -> Change:
    """Check `new` against the host and make its parts; changes nothing.

    Args:
        wait: one tier is enough (the service waits for a second).

    Raises:
        TierdError: `new` cannot be used here; the message says why.
    """
    keys = [difference.key for difference in differences(old, new)]
    waiting: tuple[str, ...] = RESTART
    lacking = factory.lacking(new) - factory.lacking(old)
    if lacking:
        waiting = (*RESTART, *PRIVILEGED)
        log.warning(logfmt(event="reload_lacks_privileges", lacking=",".join(sorted(lacking))))
    restart = tuple(key for key in keys if _under(key, waiting))
    config: Config = _keep(new, old, waiting)
    changed = tuple(key for key in keys if key not in restart)
    tiers = None
    fresh: dict[str, Any] = {}
    if config.topology != old.topology:
        fresh["read_tiers"] = factory.read_tiers(config)
        tiers = fresh["read_tiers"]()
        if not wait:
            check_against(config, tiers)
            if len(tiers.tiers) < 2:
                raise TierdError("the new [topology] leaves one tier: nothing to move between")
    if config.policy != old.policy:
        fresh["policy"] = factory.policy(config)
        if config.policy.name != old.policy.name:
            fresh["loads"] = factory.loads(config, components.heat)
    # Where it is not configured, the weight of a card's request depends on the policy.
    by_policy = not config.sources.neoprof.lines_per_access and "neoprof" in config.sources.order
    if config.sources != old.sources or (by_policy and config.policy.name != old.policy.name):
        fresh["sources"] = _usable(factory.sources(config), components.sources)
    return Change(
        config=config,
        components=dataclasses.replace(components, **fresh),
        tiers=tiers,
        applied=Applied(changed, restart),
    )


def _usable(sources: Sequence[Any], now: SourceSelector) -> SourceSelector:
    """A selector of these sources, at least one of which works here."""
    reasons = []
    for source in sources:
        if now.active is not None and now.active.name == source.name:
            break
        state = source.available()
        if state.ok:
            break
        reasons.append(f"{source.name}: {state.reason}")
    else:
        raise UnavailableError(f"none of the new sources.order works here: {'; '.join(reasons)}")
    return SourceSelector(sources)


def _under(key: str, tables: Sequence[str]) -> bool:
    return any(key == table or key.startswith(f"{table}.") for table in tables)


def _keep(new: Any, old: Any, keys: Sequence[str]) -> Any:
    """`new` with the values that `old` has for `keys`."""
    for key in keys:
        head, _, rest = key.partition(".")
        attribute, _ = options_of(type(new))[head]
        value = getattr(old, attribute)
        if rest:
            value = _keep(getattr(new, attribute), value, [rest])
        new = dataclasses.replace(new, **{attribute: value})
    return new


class Reloader:
    """Reads the configuration again and applies it.

    Args:
        load: reads and checks the files; raises a TierdError if they are wrong.
    """

    def __init__(
        self, load: Callable[[], Config], reconfigure: Callable[[Config], Applied]
    ) -> None:
        self._load = load
        self._reconfigure = reconfigure
        self.listeners: list[ReloadListener] = []
        self.last: ReloadResult | None = None
        """The latest result; None before the first reload."""

    def reload(self) -> ReloadResult:
        """Apply the files, or keep the configuration in force; never raises.

        In the loop's thread, between two ticks.
        """
        try:
            result = ReloadResult(True, "", self._reconfigure(self._load()))
        except TierdError as error:
            result = ReloadResult(False, str(error))
        except Exception as error:  # a defect must not end the service
            log.exception(logfmt(event="reload_defect"))
            result = ReloadResult(False, f"{type(error).__name__}: {error}")
        self._tell(result)
        return result

    def _tell(self, result: ReloadResult) -> None:
        self.last = result
        if result.ok:
            log.info(
                logfmt(
                    event="reloaded",
                    changed=",".join(result.applied.changed) or "nothing",
                    after_restart=",".join(result.applied.restart) or "nothing",
                )
            )
        else:
            log.error(
                logfmt(
                    event="reload_failed",
                    reason=result.reason,
                    hint="the configuration from before stays in force",
                )
            )
        for listener in self.listeners:
            listener.reload_result(result.ok, result.reason)
