# SPDX-License-Identifier: Apache-2.0
"""The control socket: what an operator may ask of a running tierd, and who may.

Owns: the protocol, the socket, the commands, the pause that survives a restart.
Must not touch: decisions; what a command changes it has the loop do, between two ticks.
"""
