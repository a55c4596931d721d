# SPDX-License-Identifier: Apache-2.0
"""Prints the completion of `tierd` for a shell: completion.py bash|zsh|tcsh."""

from __future__ import annotations

import sys

import shtab

from tierd.cli import build_parser

print(shtab.complete(build_parser(), shell=sys.argv[1]))
