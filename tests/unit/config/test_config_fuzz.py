# SPDX-License-Identifier: Apache-2.0
"""Configurations with mistakes that nobody thought of: one ConfigError each, or a configuration."""

from __future__ import annotations

import random
from pathlib import Path

from fuzz import inputs, mutated

from tierd.config.model import Config
from tierd.config.whole import load, loads
from tierd.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
MISTAKES = inputs(250_000)
MATCHERS = b"""
[targets]
match = { any = [ { exe = "redis", min_rss = "1GiB" }, { not = { cgroup = "/a/*" } } ] }
deny = [ { cmdline = "x+" }, { uid = "root" }, { all = [ { pid = 2 }, { pid = 3 } ] } ]
"""
GROUPS = b"""
[[rule]]
name = "first"
match = { cgroup = "/kubepods.slice/*" }
fast_min = "50%"
rate_limit = "20MB/s"
[[rule]]
name = "second"
match = { uid = 1000 }
deny = true
"""
PLACES = b"""
[[topology.tiers]]
name = "a"
nodes = [0, 2]
kind = "hbm"
[topology.nodes.1]
latency = "430ns"
bandwidth = "16.4GiB/s"
"""


def seeds() -> list[bytes]:
    """Small valid texts: each section of the commented default, and what it leaves out."""
    found: list[bytes] = [MATCHERS, GROUPS, PLACES]
    section: list[str] = []
    for line in [*(ROOT / "config/tierd.toml").read_text().splitlines(), "["]:
        if line.startswith("[") and section:
            found.append("\n".join(section).encode())
            section = []
        if line and not line.startswith("#"):
            section.append(line)
    return [text for text in found if b"=" in text]


def exchanged(text: bytes, texts: list[bytes], draw: random.Random) -> bytes:
    """`text` with the value of one key replaced by that of another, perhaps changed as well."""
    lines = text.splitlines()
    donors = [line for line in draw.choice(texts).splitlines() if b"=" in line]
    at = draw.choice([index for index, line in enumerate(lines) if b"=" in line])
    value = draw.choice(donors).partition(b"=")[2]
    if draw.random() < 0.3:
        value = draw.choice((b"0", b"-1", b'""', b'"9e9GiB"', b"[]", b"{}", b"nan", b"1e999"))
    lines[at] = lines[at].partition(b"=")[0] + b"=" + value
    return b"\n".join(lines)


def test_every_seed_is_a_configuration() -> None:
    assert len(seeds()) > 10
    for text in seeds():
        loads(text.decode())


def test_mistakes_end_in_one_error_with_a_reason(tmp_path: Path) -> None:
    draw, taken, refused = random.Random(20_260_101), 0, 0
    texts, file = seeds(), tmp_path / "tierd.toml"
    for number in range(MISTAKES):
        raw = draw.choice(texts)
        if draw.random() < 0.5:
            raw = exchanged(raw, texts, draw)
        if draw.random() < 0.6:
            raw = mutated(raw, draw)
        try:
            if number % 10:
                loaded = loads(raw.decode("utf-8", "surrogateescape"))
            else:  # as bytes, from a file
                file.write_bytes(raw)
                loaded = load(file)
            assert isinstance(loaded, Config)
            taken += 1
        except ConfigError as error:
            assert str(error)
            refused += 1
    print(f"config: {MISTAKES} inputs, {taken} taken, {refused} refused")
    assert taken + refused == MISTAKES
    assert min(taken, refused) > MISTAKES / 50
