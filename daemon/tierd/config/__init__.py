# SPDX-License-Identifier: Apache-2.0
"""The configuration: TOML files to typed, validated dataclasses."""
