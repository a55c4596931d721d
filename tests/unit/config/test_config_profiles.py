# SPDX-License-Identifier: Apache-2.0
"""Profiles, rules, differences, and the schema for editors."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from tierd.cli import main
from tierd.config.files import PROFILES
from tierd.config.model import Config
from tierd.config.whole import as_table, differences, dumps, load, loads, schema
from tierd.core.errors import ConfigError, ExitCode

ROOT = Path(__file__).parents[3]
RULE = """
[[rule]]
name = "database"
match = { cgroup = "/system.slice/postgresql.service" }
fast_min = "30%"
fast_max = "80%"
rate_limit = "50MB/s"
[[rule]]
name = "batch"
match = { any = [{ exe = "/usr/bin/batch" }, { uid = 1000 }] }
deny = true
"""


def test_balanced_is_the_defaults() -> None:
    assert loads('profile = "balanced"') == Config() == loads("")


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_valid_and_prints_back_to_the_same(name: str) -> None:
    found = loads(f'profile = "{name}"')
    assert found.profile == name
    assert loads(dumps(found)) == found


def test_cautious_does_less_than_balanced_and_aggressive_more() -> None:
    cautious, balanced, aggressive = (loads(f'profile = "{n}"') for n in PROFILES)
    for read in (
        lambda c: c.migration.rate_limit_bytes_per_s,
        lambda c: c.migration.cpu_limit,
        lambda c: c.loop.cpu_limit,
        lambda c: c.sources.damon.cpu_limit,
        lambda c: -c.policy.hysteresis,
        lambda c: -c.policy.confidence_sigmas,
        lambda c: -c.policy.migration_cooldown_ns,
        lambda c: -c.heat.half_life_ns,
    ):
        assert read(cautious) < read(balanced) < read(aggressive)


def test_what_a_file_says_wins_over_the_profile(tmp_path: Path) -> None:
    (tmp_path / "tierd.toml").write_text('profile = "cautious"\n[migration]\nretries = 9\n')
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/1.toml").write_text('[migration]\nrate_limit = "9MB/s"\n')
    found = load(tmp_path / "tierd.toml")
    assert (found.migration.rate_limit_bytes_per_s, found.migration.retries) == (9_000_000, 9)
    assert found.migration.cpu_limit == 0.02
    (tmp_path / "conf.d/2.toml").write_text('profile = "aggressive"\n')
    found = load(tmp_path / "tierd.toml")
    assert (found.migration.rate_limit_bytes_per_s, found.migration.cpu_limit) == (9_000_000, 0.25)


def test_a_contradiction_with_the_profile_names_the_file_that_made_it(tmp_path: Path) -> None:
    file = tmp_path / "tierd.toml"
    file.write_text('profile = "cautious"\n[policy]\nlow_watermark = "9%"\n')
    with pytest.raises(ConfigError, match="must be smaller than high_watermark") as caught:
        load(file)
    assert caught.value.file == str(file)


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'cautious'"):
        loads('profile = "cautous"')


def test_profiles_do_not_share_what_a_file_changes() -> None:
    loads('profile = "cautious"\n[sources.scan]\ncpu_limit = "90%"\n')
    assert loads('profile = "cautious"').sources.scan.cpu_limit == 0.02


def test_rules_are_read_and_printed_back() -> None:
    found = loads(RULE)
    first, second = found.rules
    assert (first.name, first.fast_min, first.fast_max) == ("database", 0.3, 0.8)
    assert (first.rate_limit_bytes_per_s, first.deny) == (50_000_000, False)
    assert (second.deny, second.rate_limit_bytes_per_s) == (True, None)
    assert loads(dumps(found)) == found


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ('[[rule]]\nname = "a"\n', "rule[0].match", "is missing"),
        ("[[rule]]\nmatch = { pid = 1 }\n", "rule[0].name", "is missing"),
        ('[[rule]]\nname = "a"\nmatch = {}\n', "rule[0].match", "every process"),
        (RULE + RULE, "rule[2].name", "two rules are called 'database'"),
        (RULE.replace("80%", "20%"), "rule[0].fast_min", "larger than fast_max"),
        (RULE.replace("deny = true", 'fast_min = "71%"'), "rule", "add up to 101%"),
        (RULE.replace("fast_max", "fats_max"), "rule[0].fats_max", "did you mean 'fast_max'"),
        (RULE.replace("exe", "exec"), "rule[1].match.any[0].exec", "did you mean 'exe'"),
        ('rule = "x"', "rule", "must be a list"),
    ],
)
def test_a_mistake_in_a_rule_names_its_key(text: str, path: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text)
    assert caught.value.path == path
    assert said in str(caught.value)


def test_differences_are_told_key_by_key() -> None:
    old = loads("")
    new = loads(
        '[loop]\ninterval = "1s"\n[sources.damon]\nmin_regions = 600\n'
        '[topology.nodes.1]\nlatency = "9ns"\n[targets]\nmatch = { pid = 7 }\n'
    )
    assert [(d.key, d.old, d.new) for d in differences(old, new)] == [
        ("loop.interval", "500ms", "1s"),
        ("targets.match", {}, {"pid": 7}),
        ("sources.damon.min_regions", 500, 600),
        ("topology.nodes.1.latency", None, "9ns"),
    ]
    assert differences(new, new) == []


def test_the_command_shows_what_a_file_changes(tmp_path: Path, capsys) -> None:
    file = tmp_path / "tierd.toml"
    file.write_text('profile = "cautious"\n[migration]\nrate_limit = "9MB/s"\n')
    assert main(["config", "diff", "--config", str(file)]) == ExitCode.FAILURE
    assert capsys.readouterr().out == 'migration.rate_limit = "50MB/s" → "9MB/s"\n'
    other = tmp_path / "other.toml"
    other.write_text('profile = "cautious"\n')
    command = ["config", "diff", "--json", "--config", str(file), "--against", str(other)]
    assert main(command) == ExitCode.FAILURE
    assert json.loads(capsys.readouterr().out) == [
        {"key": "migration.rate_limit", "old": "50MB/s", "new": "9MB/s"}
    ]
    assert main(["config", "diff", "--config", str(other)]) == ExitCode.OK
    assert capsys.readouterr().out == ""


def test_the_committed_schema_is_the_models(capsys) -> None:
    assert main(["config", "schema"]) == ExitCode.OK
    committed = (ROOT / "config/tierd.schema.json").read_text()
    assert capsys.readouterr().out == committed, "tierd config schema >config/tierd.schema.json"


def test_the_schema_accepts_what_is_right_and_refuses_what_is_wrong() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    validator = jsonschema.Draft202012Validator(schema())
    default = tomllib.loads((ROOT / "config/tierd.toml").read_text())
    assert list(validator.iter_errors(default)) == []
    assert list(validator.iter_errors(tomllib.loads(RULE))) == []
    for name in PROFILES:
        table = json.loads(json.dumps(as_table(loads(f'profile = "{name}"'))))
        assert list(validator.iter_errors(table)) == []
    for wrong in (
        {"loop": {"tik": "1s"}},
        {"loop": {"tick": 5}},
        {"loop": {"tick": "5"}},
        {"migration": {"rate_limit": "5MB"}},
        {"migration": {"retries": 1000}},
        {"sources": {"order": []}},
        {"rule": [{"name": "x"}]},
        {"targets": {"match": {"exec": "x"}}},
        {"profile": "bold"},
    ):
        assert not validator.is_valid(wrong), wrong
