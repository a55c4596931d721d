# SPDX-License-Identifier: Apache-2.0
"""Recordings decide again: the policy, the phase detectors, the scan controller, the fast path."""
