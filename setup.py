# SPDX-License-Identifier: Apache-2.0
"""Builds the native module; everything else about the project is in pyproject.toml."""

from setuptools import setup

setup(cffi_modules=["daemon/native/build_native.py:ffi"])
