# SPDX-License-Identifier: Apache-2.0
"""What tierd relies on, checked and measured on a real GPU: `python3 tests/bench/gpu`."""
