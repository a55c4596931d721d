# SPDX-License-Identifier: Apache-2.0
"""The words of a machine file about simulated cards and the cache in front of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tierd_lab._fields import Table
from tierd_lab.ram import PhysicalRange, pieces

MIB: Final = 2**20
DECODER_GRANULE: Final = 256 * MIB
"""Base and size of an HDM decoder are multiples of it (CXL r3.1, 8.2.4.20)."""
KINDS: Final = ("model", "rtl", "table")
MAX_CARDS: Final = 8
"""NPW_CARDS_MAX of fpga/include/neoprof_window.h."""


@dataclass(frozen=True, slots=True)
class CardSpec:
    """A simulated NeoProf card in front of a part of a node.

    Attributes:
        kind: "model" (the reference model), "rtl" (the Verilated card) or "table" (the model of
            the card that counts in a tagged table).
        node: whose memory.
        offset_bytes, size_bytes: which part of the node's memory.
        log2_width: log2 of the counters in a row of the sketch; 0: the full-size card's.
        ring: slots of the hot list; 0: the full-size card's.
    """

    kind: str
    node: int
    offset_bytes: int
    size_bytes: int
    log2_width: int = 0
    ring: int = 0


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """The last-level cache that decides what memory and cards see."""

    size_bytes: int = 2 * MIB
    ways: int = 16
    line_bytes: int = 64


def decoders(card: CardSpec, node_sizes: Sequence[int]) -> tuple[PhysicalRange, ...]:
    """Host-physical ranges of the card's HDM decoders, ascending."""
    begin = sum(node_sizes[: card.node]) + card.offset_bytes
    return pieces(begin, card.size_bytes, sum(node_sizes))


def parse_cache(top: Table) -> CacheSpec | None:
    """The `[cache]` table; None if there is none.

    Raises:
        ConfigError: no such cache can be built.
    """
    table = top.table("cache")
    if table is None:
        return None
    default = CacheSpec()
    size = table.size("size") if table.has("size") else default.size_bytes
    ways = table.number("ways", default.ways) or 0
    line = table.number("line", default.line_bytes) or 0
    table.finish()
    if not 1 <= ways <= 64:
        raise table.error("ways", "must be between 1 and 64")
    if not 8 <= line <= 4096 or line & (line - 1):
        raise table.error("line", "must be a power of 2 between 8 and 4096 (bytes)")
    sets, rest = divmod(size, ways * line)
    if rest or sets < 1 or sets & (sets - 1):
        raise table.error("size", f"must be {ways} ways x {line} bytes x a power of 2")
    return CacheSpec(size, ways, line)


def parse_cards(
    tables: Sequence[Table], nodes: Sequence[Table], sizes: Sequence[int]
) -> tuple[CardSpec, ...]:
    """The machine's cards: `card` of a node first, then the `[[card]]` tables.

    Raises:
        ConfigError: a mistake, or two cards in front of the same memory.
    """
    found: list[tuple[CardSpec, Table, str]] = []
    for number, table in enumerate(nodes):
        if table.has("card"):
            kind = table.choice("card", KINDS)
            found.append((CardSpec(kind, number, 0, sizes[number]), table, "card"))
    found += [(_parse_card(table, sizes), table, "offset") for table in tables]
    if len(found) > MAX_CARDS:
        _, table, key = found[MAX_CARDS]
        raise table.error(key, f"a machine has at most {MAX_CARDS} cards")
    for position, (card, table, key) in enumerate(found):
        for piece in decoders(card, sizes):
            if piece.base % DECODER_GRANULE or piece.size % DECODER_GRANULE:
                raise table.error(
                    key,
                    f"the card's memory at {piece.base:#x} (+{piece.size // MIB} MiB) is not in "
                    "whole 256 MiB, which its decoders need",
                )
        for other, *_ in found[:position]:
            if other.node == card.node and (
                other.offset_bytes < card.offset_bytes + card.size_bytes
                and card.offset_bytes < other.offset_bytes + other.size_bytes
            ):
                raise table.error(key, f"another card has this memory of node {card.node}")
    return tuple(card for card, *_ in found)


def _parse_card(table: Table, sizes: Sequence[int]) -> CardSpec:
    kind = table.choice("kind", KINDS)
    node = table.number("node", None)
    if node is None or not 0 <= node < len(sizes):
        raise table.error("node", f"must be a node; there are {len(sizes)} nodes")
    offset = table.size("offset") if table.has("offset") else 0
    size = table.size("size") if table.has("size") else sizes[node] - offset
    width = table.number("log2_width", 0) or 0
    ring = table.number("ring", 0) or 0
    table.finish()
    if offset < 0 or size <= 0 or offset + size > sizes[node]:
        raise table.error("size", f"reaches beyond node {node}")
    if kind == "rtl" and (width or ring):
        raise table.error(
            "log2_width" if width else "ring", "the RTL is built with one geometry; leave it out"
        )
    if width and not 5 <= width <= 24:
        raise table.error("log2_width", "must be between 5 and 24")
    if ring and (not 4 <= ring <= 4096 or ring & (ring - 1)):
        raise table.error("ring", "must be a power of 2 between 4 and 4096")
    return CardSpec(kind, node, offset, size, width, ring)
