# SPDX-License-Identifier: Apache-2.0
"""The small frames of a recording, in JSON: where it was made, tiers, targets, its end."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from tierd.core.tiermap import MemoryKind, MemoryNode, Provenance, Quantity, Tier, TierMap
from tierd.observe.recording.errors import RecordingError
from tierd.observe.recording.records import Meta, RecordedTarget

T = TypeVar("T")

_MISSHAPEN: Final = (
    AttributeError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What taking a JSON value of another shape apart can raise."""


def encode_json(value: Any) -> bytes:
    """Compact JSON; what is no text is escaped."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()


def decode_json(data: bytes, make: Callable[[Any], T]) -> T:
    """What `make` makes of a JSON text.

    Raises:
        RecordingError: no JSON, or not of the shape that `make` expects.
    """
    try:
        return make(json.loads(data))
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise RecordingError(
            f"a table of the recording is not as it should be: {type(error).__name__}"
        ) from None


def encode_meta(meta: Meta) -> bytes:
    """A META frame."""
    return encode_json({**dataclasses.asdict(meta), "host": dict(meta.host)})


def decode_meta(data: bytes) -> Meta:
    """The inverse of `encode_meta`."""
    return decode_json(
        data,
        lambda table: Meta(
            version=_typed(table["version"], str),
            started=_typed(table["started"], str),
            clock_ns=_typed(table["clock_ns"], int),
            dry_run=_typed(table["dry_run"], bool),
            host={str(k): _typed(v, str) for k, v in table["host"].items()},
        ),
    )


def encode_targets(targets: Iterable[RecordedTarget]) -> bytes:
    """A TARGETS frame: all that are watched now."""
    return encode_json([dataclasses.asdict(each) for each in targets])


def decode_targets(data: bytes) -> dict[int, RecordedTarget]:
    """Target number → target."""
    return decode_json(
        data,
        lambda table: {
            _typed(each["number"], int): RecordedTarget(
                each["number"],
                _typed(each["pid"], int),
                _typed(each["comm"], str),
                _typed(each["cgroup"], str),
            )
            for each in table
        },
    )


def encode_exchanged(nodes: Iterable[int]) -> bytes:
    """An EXCHANGED frame: nodes with an exchange of their own, from the next tick on."""
    return encode_json(sorted(nodes))


def decode_exchanged(data: bytes) -> frozenset[int]:
    """The nodes."""
    return decode_json(data, lambda table: frozenset(map(_node_number, table)))


def encode_tiers(tiers: TierMap) -> bytes:
    """A TIERS frame; reading it back gives an equal map."""
    return encode_json(
        {
            "tiers": [_tier(each) for each in tiers.tiers],
            "nodes": [_node(each) for each in tiers.nodes.values()],
            "differences": list(tiers.differences),
            "notes": list(tiers.notes),
        }
    )


def decode_tiers(data: bytes) -> TierMap:
    """The inverse of `encode_tiers`."""
    return decode_json(data, _make_tiers)


def _make_tiers(table: Any) -> TierMap:
    nodes = [_make_node(each) for each in table["nodes"]]
    tiers = tuple(_make_tier(each) for each in table["tiers"])
    if [tier.rank for tier in tiers] != list(range(len(tiers))):
        raise ValueError
    return TierMap(
        tiers,
        {each.node: each for each in nodes},
        tuple(_typed(each, str) for each in table["differences"]),
        tuple(_typed(each, str) for each in table["notes"]),
    )


def _typed(value: Any, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _node_number(value: Any) -> int:
    if not 0 <= _typed(value, int) < 1 << 15:
        raise ValueError
    return int(value)


def _quantity(figure: Quantity | None) -> list[Any] | None:
    return None if figure is None else [float(figure.value), str(figure.provenance)]


def _make_quantity(pair: Any) -> Quantity:
    value, provenance = pair
    return Quantity(_typed(value, float), Provenance(provenance))


def _tier(tier: Tier) -> Mapping[str, Any]:
    return {
        "rank": tier.rank,
        "name": tier.name,
        "kind": str(tier.kind),
        "nodes": list(tier.nodes),
        "capacity_bytes": tier.capacity_bytes,
        "latency_ns": _quantity(tier.latency_ns),
        "bandwidth_bytes_per_s": _quantity(tier.bandwidth_bytes_per_s),
    }


def _make_tier(table: Any) -> Tier:
    return Tier(
        rank=_typed(table["rank"], int),
        name=_typed(table["name"], str),
        kind=MemoryKind(table["kind"]),
        nodes=tuple(_node_number(each) for each in table["nodes"]),
        capacity_bytes=_typed(table["capacity_bytes"], int),
        latency_ns=_make_quantity(table["latency_ns"]),
        bandwidth_bytes_per_s=_make_quantity(table["bandwidth_bytes_per_s"]),
    )


def _node(node: MemoryNode) -> Mapping[str, Any]:
    return {
        "node": node.node,
        "size_bytes": node.size_bytes,
        "cpus": sorted(node.cpus),
        "kind": str(node.kind),
        "latency_ns": _quantity(node.latency_ns),
        "bandwidth_bytes_per_s": _quantity(node.bandwidth_bytes_per_s),
        "distances": {str(other): distance for other, distance in node.distances.items()},
        "kernel_tier": node.kernel_tier,
        "devices": list(node.devices),
        "initiators": list(node.initiators),
        "write_latency_ns": _quantity(node.write_latency_ns),
        "write_bandwidth_bytes_per_s": _quantity(node.write_bandwidth_bytes_per_s),
    }


def _make_node(table: Any) -> MemoryNode:
    def optional(value: Any) -> Quantity | None:
        return None if value is None else _make_quantity(value)

    kernel_tier = table["kernel_tier"]
    return MemoryNode(
        node=_node_number(table["node"]),
        size_bytes=_typed(table["size_bytes"], int),
        cpus=frozenset(_typed(each, int) for each in table["cpus"]),
        kind=MemoryKind(table["kind"]),
        latency_ns=_make_quantity(table["latency_ns"]),
        bandwidth_bytes_per_s=_make_quantity(table["bandwidth_bytes_per_s"]),
        distances={int(k): _typed(v, int) for k, v in table["distances"].items()},
        kernel_tier=None if kernel_tier is None else _typed(kernel_tier, int),
        devices=tuple(_typed(each, str) for each in table["devices"]),
        initiators=tuple(_typed(each, int) for each in table["initiators"]),
        write_latency_ns=optional(table["write_latency_ns"]),
        write_bandwidth_bytes_per_s=optional(table["write_bandwidth_bytes_per_s"]),
    )
