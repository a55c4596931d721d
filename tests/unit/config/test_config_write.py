# SPDX-License-Identifier: Apache-2.0
"""What is printed reads back to the same; whatever is read ends in a ConfigError at worst."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tierd.cli import main
from tierd.config.model import Config
from tierd.config.schema import options_of
from tierd.config.whole import as_table, check_against, dumps, load, loads, toml_value
from tierd.core import units
from tierd.core.errors import ConfigError, ExitCode
from tierd.core.tiermap import MemoryKind, MemoryNode, Provenance, Quantity, TierMap

EXAMPLE = """
[targets]
match = { any = [ { exe = "redis-server", min_rss = "1GiB" }, { not = { cgroup = "/a b/*" } } ] }
deny = [ { cmdline = "x\\\\d+" }, { uid = "root" }, { all = [ { pid = 2 }, { pid = 3 } ] } ]
[policy]
low_watermark = 0.0123456789012345
[[topology.tiers]]
name = 'quote " and \\ and é'
nodes = [0, 2]
kind = "hbm"
[[topology.tiers]]
name = "b"
nodes = [1]
[topology.nodes.1]
latency = "430ns"
bandwidth = "16.4GiB/s"
"""


def test_what_is_printed_reads_back_to_the_same() -> None:
    loaded = loads(EXAMPLE)
    assert loads(dumps(loaded)) == loaded


def test_json_and_toml_show_the_same() -> None:
    loaded = loads(EXAMPLE)
    again = loads("\n".join(f"{k} = {toml_value(v)}" for k, v in _table(loaded).items()))
    assert again == loaded


def _table(loaded: Config) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(json.dumps(as_table(loaded)))
    return table


def test_every_key_has_a_purpose_and_a_range() -> None:
    def walk(cls: type[Any]) -> None:
        for _, made in options_of(cls).values():
            assert made.doc.endswith(".")
            assert made.kind.about
            inner = getattr(made.kind, "cls", None)
            if inner is not None:
                walk(inner)

    walk(Config)


WORDS = """loop interval targets match deny any all not exe pid uid cmdline cgroup min_rss limit
sources order damon heat policy hysteresis migration rate_limit cpu_limit topology tiers nodes 1
name kind log"""
KEYS = st.sampled_from(WORDS.split()) | st.text(max_size=5)
LEAVES = (
    st.none().map(lambda _: {})
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["5s", "5%", "1MB/s", "64MiB", "9" * 400 + "h", "damon", "(a|b)*", "/x/*"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
@settings(max_examples=400, deadline=None)
def test_any_toml_is_either_a_configuration_or_a_config_error(table: dict[str, Any]) -> None:
    text = "\n".join(f"{toml_value(k)} = {toml_value(v)}" for k, v in table.items())
    with contextlib.suppress(ConfigError):
        loaded = loads(text)
        assert loads(dumps(loaded)) == loaded


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(max_examples=400, deadline=None)
def test_any_bytes_are_either_a_configuration_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.toml"
    file.write_bytes(raw)
    with contextlib.suppress(ConfigError):
        load(file)


TABLES = sorted(k for k, v in as_table(Config()).items() if isinstance(v, dict))


@given(st.sampled_from(TABLES), st.data())
@settings(max_examples=400, deadline=None)
def test_any_value_of_a_real_key_is_either_accepted_or_refused_by_its_path(
    name: str, data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(as_table(Config())[name])))
    value = data.draw(VALUES)
    try:
        loads(f"[{name}]\n{key} = {toml_value(value)}")
    except ConfigError as error:
        assert error.path.startswith(f"{name}.")


def tier_map(*nodes: int) -> TierMap:
    number = Quantity(1.0, Provenance.DEFAULT)
    return TierMap(
        (), {n: MemoryNode(n, 1, frozenset(), MemoryKind.DRAM, number, number) for n in nodes}
    )


def test_a_node_that_the_host_lacks_is_named_with_its_key() -> None:
    loaded = loads("[[topology.tiers]]\nname = 'a'\nnodes = [0, 3]")
    with pytest.raises(ConfigError, match=r"no memory node 3 .*here: 0, 1") as caught:
        check_against(loaded, tier_map(0, 1))
    assert caught.value.path == "topology.tiers[0].nodes[1]"
    check_against(loaded, tier_map(0, 3))

    loaded = loads("[topology.nodes.7]\nlatency = '1us'")
    with pytest.raises(ConfigError, match="no memory node 7") as caught:
        check_against(loaded, tier_map(0))
    assert caught.value.path == "topology.nodes.7"


def test_the_command_checks_and_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tierd.toml"
    file.write_text(EXAMPLE)
    assert main(["config", "check", "--config", str(file)]) == ExitCode.OK
    assert str(file) in capsys.readouterr().out
    assert main(["config", "show", "--config", str(file)]) == ExitCode.OK
    assert loads(capsys.readouterr().out) == loads(EXAMPLE)
    assert main(["config", "show", "--json", "--config", str(file)]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == as_table(loads(EXAMPLE))


def test_the_command_tells_a_mistake_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tierd.toml"
    file.write_text("[loop]\ninterval = 5")
    assert main(["config", "check", "--config", str(file)]) == ExitCode.CONFIG
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[0].startswith(f"tierd config: {file}: loop.interval: must be")


@given(st.integers(0, (1 << 53) - 1))
def test_sizes_and_durations_are_printed_exactly(number: int) -> None:
    assert units.parse_size(units.size_text(number)) == number
    assert units.parse_rate(units.rate_text(number)) == number
    assert units.parse_duration_ns(units.duration_text(number)) == number


def test_the_manual_describes_every_key() -> None:
    manual = (Path(__file__).parents[3] / "docs/reference/config.md").read_text()

    def walk(cls: type[Any]) -> None:
        for key, (_, made) in options_of(cls).items():
            kind = getattr(made.kind, "item", made.kind)
            inner = getattr(kind, "cls", None)
            if inner is not None:
                walk(inner)
            if not hasattr(made.kind, "cls"):
                assert f"| `{key}` | " in manual
                assert made.doc in manual

    walk(Config)
