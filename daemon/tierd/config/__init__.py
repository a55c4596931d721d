# SPDX-License-Identifier: Apache-2.0
"""The configuration: TOML files to typed, validated dataclasses.

`load()` reads the files, `dumps()` writes a configuration back, and
`check_against()` compares it with the host's tiers.
"""

from tierd.config.files import DEFAULT_PATH, check_against, load, load_section, loads
from tierd.config.model import (
    Config,
    HeatConfig,
    LogConfig,
    LoopConfig,
    MigrationConfig,
    PolicyConfig,
    RecordConfig,
    TargetsConfig,
)
from tierd.config.rules import RuleConfig
from tierd.config.serving import ControlConfig, MetricsConfig
from tierd.config.watching import DamonConfig, NeoProfConfig, SourcesConfig
from tierd.config.write import (
    Difference,
    as_table,
    differences,
    dumps,
    parse_assignment,
    schema,
    toml_value,
    with_values,
)

__all__ = [
    "DEFAULT_PATH",
    "Config",
    "ControlConfig",
    "DamonConfig",
    "Difference",
    "HeatConfig",
    "LogConfig",
    "LoopConfig",
    "MetricsConfig",
    "MigrationConfig",
    "NeoProfConfig",
    "PolicyConfig",
    "RecordConfig",
    "RuleConfig",
    "SourcesConfig",
    "TargetsConfig",
    "as_table",
    "check_against",
    "differences",
    "dumps",
    "load",
    "load_section",
    "loads",
    "parse_assignment",
    "schema",
    "toml_value",
    "with_values",
]
