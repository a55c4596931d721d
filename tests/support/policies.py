# SPDX-License-Identifier: Apache-2.0
"""Policies' settings as a host without a configuration file has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tierd.config.model import Config
from tierd.engine.build import make_policy
from tierd.policy.cost import CostPolicy
from tierd.policy.cost_decision import CostSettings
from tierd.policy.watermark import WatermarkPolicy, WatermarkSettings


def watermarks(**changes: Any) -> WatermarkSettings:
    """Those of the policy `watermark`, but for `changes`."""
    policy = make_policy(Config())
    assert isinstance(policy, WatermarkPolicy)
    return replace(policy.settings, **changes)


def cost_settings(**changes: Any) -> CostSettings:
    """Those of the policy `cost`, but for `changes`."""
    config = Config()
    policy = make_policy(replace(config, policy=replace(config.policy, name=CostPolicy.name)))
    assert isinstance(policy, CostPolicy)
    return replace(policy.settings, **changes)
