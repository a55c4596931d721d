# SPDX-License-Identifier: Apache-2.0
"""What only listens to the loop: metrics, recordings, decisions, explanations."""
