# SPDX-License-Identifier: Apache-2.0
"""Reading and merging configuration files, and where each mistake is reported."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tierd.config import matchers
from tierd.config.files import load_section
from tierd.config.model import Config
from tierd.config.serving import ControlConfig
from tierd.config.whole import as_table, load
from tierd.core.errors import ConfigError, ExitCode
from tierd.core.overrides import NodeOverride
from tierd.core.tiermap import MemoryKind

DEFAULT_FILE = Path(__file__).parents[3] / "config" / "tierd.toml"


def write(folder: Path, text: str | bytes, **drop_ins: str) -> Path:
    main = folder / "tierd.toml"
    main.write_bytes(text.encode() if isinstance(text, str) else text)
    for name, inner in drop_ins.items():
        (folder / "conf.d").mkdir(exist_ok=True)
        (folder / "conf.d" / f"{name}.toml").write_text(inner)
    return main


def error(folder: Path, text: str | bytes, **drop_ins: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text, **drop_ins))
    return caught.value


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, ""))
    assert loaded == Config()
    assert loaded.loop.interval_ns == 500_000_000
    assert loaded.targets.refresh_interval_ns == 5_000_000_000
    assert loaded.targets.min_rss_bytes == 16 << 20
    assert loaded.targets.match == matchers.Combined("all")
    assert loaded.sources.order == ("neoprof", "scan", "idlepage", "pmu", "damon")
    assert loaded.sources.damon.aggregation_interval_ns == 400_000_000
    assert loaded.heat.memory_bytes is None
    assert loaded.policy.low_watermark == 0.02
    assert loaded.policy.migration_cooldown_ns == 10_000_000_000
    assert loaded.migration.rate_limit_bytes_per_s == 200_000_000
    assert loaded.migration.cpu_limit == 0.05
    assert loaded.migration.max_failure_ratio == 0.2
    assert loaded.log.level == "info"


def test_the_default_file_is_the_defaults_and_names_every_key() -> None:
    shipped = load(DEFAULT_FILE)
    assert shipped == Config()
    table = tomllib.loads(DEFAULT_FILE.read_text())
    assert table == as_table(Config())


def test_drop_ins_are_merged_in_name_order_key_by_key(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        '[migration]\nrate_limit = "1MB/s"\nretries = 1\n[topology.nodes.1]\nlatency = "400ns"',
        b='[migration]\nrate_limit = "3MB/s"',
        a='[migration]\nrate_limit = "2MB/s"\ncpu_limit = "7%"\n[topology.nodes.1]\nkind = "cxl"',
    )
    loaded = load(main)
    assert loaded.migration.rate_limit_bytes_per_s == 3_000_000
    assert loaded.migration.cpu_limit == 0.07
    assert loaded.migration.retries == 1
    assert loaded.topology.nodes[1] == NodeOverride(latency_ns=400, kind=MemoryKind.CXL)
    assert [Path(file).name for file in loaded.files] == ["tierd.toml", "a.toml", "b.toml"]


def test_a_later_matcher_replaces_an_earlier_one_whole(tmp_path: Path) -> None:
    main = write(tmp_path, '[targets]\nmatch = { exe = "a" }', z="[targets]\nmatch = { uid = 0 }")
    assert load(main).targets.match == matchers.Fact("uid", 0, 0)


def test_files_that_are_not_toml_or_hidden_are_left_alone(tmp_path: Path) -> None:
    main = write(tmp_path, "", a="")
    (tmp_path / "conf.d" / "b.toml.bak").write_text("nonsense")
    (tmp_path / "conf.d" / ".c.toml").write_text("nonsense")
    assert load(main) == Config()


def test_without_a_file_the_built_in_defaults_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierd.config.whole.DEFAULT_PATH", tmp_path / "tierd.toml")
    assert load() == Config()
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.toml").write_text("[migration]\nretries = 9")
    assert load().migration.retries == 9


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("[loop]\ninterva = 1", "loop.interva", "did you mean 'interval'"),
        ("[lop]\n", "lop", "did you mean 'loop'"),
        ("xyz = 1", "xyz", "known keys here: control, "),
        ("[loop]\ninterval = 5", "loop.interval", "duration with its unit in quotes, not 5"),
        ('[loop]\ninterval = "5"', "loop.interval", "unit of time"),
        ('[loop]\ninterval = "5MB"', "loop.interval", "unit of time"),
        ('[loop]\ninterval = "1h"', "loop.interval", "not between 10ms and 1min"),
        ("loop = 3", "loop", "must be a table, not 3"),
        ('[migration]\nrate_limit = "200MB"', "migration.rate_limit", 'a size and "/s"'),
        ('[migration]\ncpu_limit = "500%"', "migration.cpu_limit", "between 0 and 1"),
        ("[migration]\ncpu_limit = 5", "migration.cpu_limit", "between 0 and 1"),
        ("[migration]\nretries = 3.5", "migration.retries", "whole number"),
        ("[migration]\nretries = true", "migration.retries", "not true"),
        ("[migration]\nretries = -1", "migration.retries", "not between 0 and 100"),
        ("[policy]\nhysteresis = nan", "policy.hysteresis", "not between"),
        ('[policy]\nname = "watermrak"', "policy.name", "did you mean 'watermark'"),
        ('[policy]\nlow_watermark = "4%"', "policy.low_watermark", "smaller than high_watermark"),
        ('[sources]\norder = "damon"', "sources.order", "list in square brackets"),
        ("[sources]\norder = []", "sources.order", "0 entries"),
        ('[sources]\norder = ["damn"]', "sources.order[0]", "did you mean 'damon'"),
        ('[sources]\norder = ["damon", "damon"]', "sources.order[1]", "there twice"),
        ("[sources.damon]\nmin_regions = 3000", "sources.damon.min_regions", "max_regions"),
        (
            '[sources.damon]\nsampling_interval = "1s"',
            "sources.damon.aggregation_interval",
            "shorter than sampling_interval",
        ),
        ('[log]\nlevel = ""', "log.level", "text in quotes"),
        ("[targets]\nmatch = 'redis'", "targets.match", "table such as"),
        ("[targets]\nmatch = { any = [{ cgrup = '/x' }] }", "targets.match.any[0].cgrup", "cgroup"),
        ("[targets]\ndeny = [{}]", "targets.deny[0]", "every process"),
        ("[topology.nodes.x]\n", "topology.nodes.x", "number from 0 to"),
        ("[topology.nodes.01]\n", "topology.nodes.01", "number from 0 to"),
        ("[topology.nodes.1]\nlatency = 430", "topology.nodes.1.latency", "duration"),
        ("[topology.nodes.1]\nkind = 'sram'", "topology.nodes.1.kind", "one of dram"),
        ("[[topology.tiers]]\nname = 'a'", "topology.tiers[0].nodes", "missing"),
        ("[[topology.tiers]]\nname = 'a'\nnodes = [-1]", "topology.tiers[0].nodes[0]", "between"),
        ('"odd key\\n" = 1', "'odd key\\n'", "unknown key"),
    ],
)
def test_a_mistake_names_the_key_and_what_is_wrong(
    tmp_path: Path, text: str, path: str, words: str
) -> None:
    found = error(tmp_path, text)
    assert found.path == path
    assert words in str(found)
    assert "\n" not in str(found)
    assert found.file == str(tmp_path / "tierd.toml")
    assert str(found).startswith(f"{found.file}: {path}: ")
    assert found.exit_code is ExitCode.CONFIG


def test_a_node_belongs_to_one_tier(tmp_path: Path) -> None:
    tiers = "[[topology.tiers]]\nname = '{}'\nnodes = {}\n"
    found = error(tmp_path, tiers.format("a", [0, 1]) + tiers.format("b", [2, 1]))
    assert found.path == "topology.tiers[1].nodes[1]"
    assert "node 1 is in tier 'a' already" in str(found)


def test_a_tier_name_is_given_once(tmp_path: Path) -> None:
    tiers = "[[topology.tiers]]\nname = 'a'\nnodes = [{}]\n"
    found = error(tmp_path, tiers.format(0) + tiers.format(1))
    assert found.path == "topology.tiers[1].name"
    assert "topology.tiers[0] is called 'a' already" in str(found)


def test_a_mistake_in_a_drop_in_names_the_drop_in(tmp_path: Path) -> None:
    found = error(tmp_path, "[migration]\nretries = 1", x='[migration]\nrate_limit = "fast"')
    assert (found.path, Path(found.file).name) == ("migration.rate_limit", "x.toml")


def test_a_contradiction_between_files_names_the_file_that_gave_the_key(tmp_path: Path) -> None:
    found = error(tmp_path, '[policy]\nhigh_watermark = "3%"', x='[policy]\nlow_watermark = "5%"')
    assert (found.path, Path(found.file).name) == ("policy.low_watermark", "x.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[loop\ntick = 1", "line 1, column 6"),
        ('[loop]\ninterval = "1s"\ninterval = "2s"', "line 3"),
        (b"[loop]\n# \xff\n", "not UTF-8 text (line 2)"),
        ("a = " + "[" * 100_000, "TOML"),
        ("[migration]\nretries = " + "9" * 5000, "TOML"),
        ("a = 2026-13-45", "TOML"),
        ("#" * (1 << 20) + "\n", "larger than"),
    ],
)
def test_text_that_is_not_toml_is_one_error_with_its_place(
    tmp_path: Path, text: str | bytes, words: str
) -> None:
    found = error(tmp_path, text)
    assert words in str(found)
    assert str(tmp_path / "tierd.toml") in str(found)


def test_a_missing_file_and_a_folder_are_errors_with_the_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml: cannot read it: No such file"):
        load(tmp_path / "nothing.toml")
    with pytest.raises(ConfigError, match="cannot read it: Is a directory"):
        load(tmp_path)


def test_a_path_that_is_no_path_is_an_error() -> None:
    with pytest.raises(ConfigError, match="cannot read it"):
        load(Path("a\0b"))


def test_one_section_is_read_whatever_is_wrong_elsewhere(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        "[migration]\nrat = 1\n[control]\nsocket = '/a'\ntimeout = '1s'",
        b="[control]\nsocket = '/b'",
        c="this is no TOML",
    )
    found = load_section(ControlConfig, "control", main)
    assert (found.socket, found.timeout_ns) == ("/b", 10**9)
    with pytest.raises(ConfigError, match=r"control\.sockt"):
        load_section(ControlConfig, "control", write(tmp_path, "[control]\nsockt = '/a'"))
    with pytest.raises(ConfigError, match="no such file"):
        load_section(ControlConfig, "control", tmp_path / "nothing")
