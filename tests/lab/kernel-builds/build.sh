#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds kernels for the lab from Debian's source package, in build/lab-kernels (make lab-kernels):
#
#   tests/lab/kernel-builds/build.sh [debug] [idle]     both by default
#
#   debug   KASAN, lockdep, PROVE_RCU and DEBUG_ATOMIC_SLEEP
#   idle    idle page tracking
#
# A kernel is allnoconfig with common.config and NAME.config. Where these, and the version of the
# source, are as they were, nothing is built again. Modules go to /lib/modules, as the lab's guests have
# the host's root. Needs root, 4 GiB of disk, and half an hour of two CPUs for each kernel.

set -euo pipefail
export LC_ALL=C.UTF-8

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=$root/build/lab-kernels
series=6.12
archive=/usr/src/linux-source-$series.tar.xz
packages=("linux-source-$series" bc bison flex kmod libelf-dev libssl-dev rsync xz-utils)

# What it has started ends with it.
trap 'trap - TERM; kill 0' INT TERM HUP

say() { printf 'lab-kernels: %s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

install_packages() {
    local package missing=()
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || die "needs these packages, which root can install: ${missing[*]}"
    apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}

# The source, unpacked once for each version of the package.
unpack() {
    local version
    version=$(dpkg-query -W -f '${Version}' "linux-source-$series")
    source=$out/linux-$version
    if [ ! -e "$source/Makefile" ]; then
        say "unpacking linux-source-$series $version"
        rm -rf "$out"/linux-* "$source.part"
        mkdir -p "$source.part"
        tar -xf "$archive" -C "$source.part" --strip-components=1
        mv "$source.part" "$source"
    fi
}

# Whether every line of a fragment is in the configuration: what it depends on may be missing.
check_config() {
    local line wrong=()
    while read -r line; do
        case $line in
        CONFIG_*=n) ! grep -q "^${line%=n}=" "$1/.config" || wrong+=("$line") ;;
        CONFIG_*) grep -qxF "$line" "$1/.config" || wrong+=("$line") ;;
        esac
    done <"$2"
    [ ${#wrong[@]} -eq 0 ] || die "the configuration of $1 has not: ${wrong[*]}"
}

# Modules are built by way of /lib/modules, in a folder that names its source: either may have moved.
place() {
    local release
    release=$(cat "$1/include/config/kernel.release")
    printf 'include %s/Makefile\n' "$source" >"$1/Makefile"
    ln -sfn "$source" "$1/source"
    ln -sfn "$1" "/lib/modules/$release/build"
    say "$release is $1/vmlinuz"
}

build() {
    local name=$1 folder=$out/$1 state
    state=$(cat "$here/common.config" "$here/$name.config" | sha256sum)
    state="${source##*/} $state"
    if [ "$(cat "$folder/tierd-state" 2>/dev/null)" = "$state" ] &&
        [ -e "/lib/modules/$(cat "$folder/include/config/kernel.release")/modules.dep" ]; then
        place "$folder"
        return
    fi
    mkdir -p "$folder"
    rm -f "$folder/tierd-state"
    say "building $name; $folder/build.log tells what"
    {
        make -s -C "$source" "O=$folder" allnoconfig
        "$source/scripts/kconfig/merge_config.sh" -m -O "$folder" "$folder/.config" \
            "$here/common.config" "$here/$name.config"
        make -s -C "$source" "O=$folder" olddefconfig
    } >"$folder/build.log" 2>&1 || die "no configuration: see $folder/build.log"
    check_config "$folder" "$here/common.config"
    check_config "$folder" "$here/$name.config"
    {
        make -s -C "$source" "O=$folder" "-j$(nproc)" bzImage modules
        make -s -C "$source" "O=$folder" INSTALL_MOD_STRIP=1 modules_install
    } >>"$folder/build.log" 2>&1 || die "it does not build: see $folder/build.log"
    # virtme-ng takes a bzImage at its own place for a whole build tree, with modules of its own.
    cp "$folder/arch/x86/boot/bzImage" "$folder/vmlinuz"
    printf '%s\n' "$state" >"$folder/tierd-state"
    place "$folder"
}

[ "$(id -u)" = 0 ] || die "needs root: modules go to /lib/modules"
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(debug idle)
for name in "${names[@]}"; do
    if [ "$name" = common ] || [ ! -e "$here/$name.config" ]; then
        die "there is no $here/$name.config"
    fi
done
mkdir -p "$out"
install_packages
unpack
for name in "${names[@]}"; do
    build "$name"
done
