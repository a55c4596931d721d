#!/bin/busybox sh
# shellcheck shell=dash
# SPDX-License-Identifier: Apache-2.0
# The first program of the benchmark's machine: mounts what a cell needs, sets what all cells
# share, runs one cell and switches the machine off.
# It is told where the tree lies, and which Python runs the cell, by the kernel's command line.

b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t debugfs debug /sys/kernel/debug
$b mount -t tracefs trace /sys/kernel/tracing
$b mount -t cgroup2 cgroup /sys/fs/cgroup
$b chmod 1777 /tmp
$b ifconfig lo 127.0.0.1 up
export PATH=/usr/local/bin:/usr/bin:/usr/sbin HOME=/root LANG=C.UTF-8 TIERD_LAB=bench
export PYTHONHASHSEED=0
exec </dev/null >/dev/console 2>&1
for word in $($b cat /proc/cmdline); do
	case $word in
	tierd.root=*) root=${word#*=} ;;
	tierd.python=*) python=${word#*=} ;;
	esac
done
cd "$root" || exit 1
$b stty -F /dev/ttyS1 raw
bash "$root/tests/bench/tiering/guest/settings.sh" &&
	numactl --preferred=1 "$python" "$root/tests/bench/tiering/guest/cell.py" >/dev/ttyS1
echo "status $?"
$b sync
$b poweroff -f
