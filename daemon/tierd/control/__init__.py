# SPDX-License-Identifier: Apache-2.0
"""The control socket: what an operator may ask of a running tierd, and who may."""
