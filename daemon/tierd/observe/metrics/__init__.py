# SPDX-License-Identifier: Apache-2.0
"""Figures for Prometheus: what is counted, and the HTTP endpoint that serves it.

The loop publishes a snapshot at the end of each tick; a scrape reads the latest one. So
neither ever waits for the other.
"""
