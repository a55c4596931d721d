#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what tierd's sources need on Debian 12 and 13: distribution packages, and
# the project itself in .venv, so that .venv/bin/tierd is the program.
#
#   config/setup.sh              install what is missing; a second run does nothing
#   config/setup.sh --check      say what is missing; exit status 1 if anything is
#   config/setup.sh --demo       install what `make demo` needs, and no more
#   config/setup.sh --with-6.1   install kernel 6.1 for the lab as well (Debian 12)
#
# Packages need root; .venv does not. docs/research/lab.md says what is installed and why.

set -euo pipefail
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PIP_ROOT_USER_ACTION=ignore

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
stamp=$venv/.tierd-setup
python=/usr/bin/python3
check=no
with_6_1=no
demo_only=no

# Debian 12 has these newer versions in its backports suite.
qemu_minimum=1:8.0
kernel_minimum=6.12
kernel_packages=(linux-image-amd64 linux-headers-amd64)
plain=(
    build-essential busybox-static file iproute2 kmod numactl python3 python3-dev python3-venv
    squashfs-tools udev util-linux
)
extras=gpu
packages_mib=1500
venv_mib=200
# What tests, benchmarks and the RTL need besides.
tests_plain=(
    clang cpio debootstrap e2fsprogs libbpf1 libsqlite3-dev openssl python3-bpfcc
    redis-tools scdoc shellcheck sparse
)
tests_extras=dev,rtl,bench
tests_packages_mib=1500
tests_venv_mib=500

say() { printf 'setup: %s\n' "$*" >&2; }

die() {
    say "$1"
    [ $# -lt 2 ] || printf '  %s\n' "${@:2}" >&2
    exit 1
}

usage() { sed -n '4,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

parse_arguments() {
    local argument
    for argument; do
        case $argument in
        --check) check=yes ;;
        --demo) demo_only=yes ;;
        --with-6.1) with_6_1=yes ;;
        -h | --help) usage && exit 0 ;;
        *) usage >&2 && die "unknown option: $argument" ;;
        esac
    done
    if [ "$demo_only" = no ]; then
        plain+=("${tests_plain[@]}")
        extras+=,$tests_extras
        packages_mib=$((packages_mib + tests_packages_mib))
        venv_mib=$((venv_mib + tests_venv_mib))
    fi
}

find_distribution() {
    local ID='' VERSION_ID='' VERSION_CODENAME='' PRETTY_NAME=''
    # shellcheck source=/dev/null
    [ ! -r /etc/os-release ] || . /etc/os-release
    release=$ID-$VERSION_ID codename=$VERSION_CODENAME
    case $release in
    debian-12 | debian-13) ;;
    *) die "this is ${PRETTY_NAME:-an unknown distribution}; the script knows Debian 12 and 13" \
        "elsewhere install the packages named in docs/research/lab.md by hand" ;;
    esac
    [ "$(dpkg --print-architecture)" = amd64 ] ||
        die "this is $(dpkg --print-architecture); the lab's machines are amd64"
}

# The version of an installed package, nothing if it is not installed.
installed_version() {
    { dpkg-query -W -f '${db:Status-Status} ${Version}\n' "$1" 2>/dev/null || true; } |
        sed -n 's/^installed //p'
}

# Sets `missing` (from any suite) and `missing_newer` (from backports on Debian 12).
find_missing() {
    local package version
    missing=() missing_newer=()
    for package in "${plain[@]}"; do
        [ -n "$(installed_version "$package")" ] || missing+=("$package")
    done
    version=$(installed_version qemu-system-x86)
    if [ -z "$version" ] || dpkg --compare-versions "$version" lt "$qemu_minimum"; then
        missing_newer+=(qemu-system-x86)
    fi
    has_kernel "$kernel_minimum" || missing_newer+=("${kernel_packages[@]}")
    if [ "$with_6_1" = yes ] && ! has_kernel 6.1 6.2; then
        missing+=(linux-image-6.1)
    fi
}

# Is there a kernel with modules and headers, from release $1 on (and before $2)?
has_kernel() {
    local image version
    for image in /boot/vmlinuz-*; do
        version=${image#/boot/vmlinuz-}
        if [ -e "/lib/modules/$version/modules.dep" ] && [ -e "/lib/modules/$version/build" ] &&
            dpkg --compare-versions "$version" ge "$1" &&
            dpkg --compare-versions "$version" lt "${2:-99}"; then
            return 0
        fi
    done
    return 1
}

need_space() {
    local folder=$1 wanted=$2 free
    free=$(df --output=avail -BM "$folder" | tail -n 1 | tr -dc 0-9)
    [ "$free" -ge "$wanted" ] ||
        die "$folder has $free MiB free, and $wanted MiB are needed"
}

apt_get() {
    apt-get -y -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
        -o Dpkg::Use-Pty=0 "$@" >&2
}

update_lists() {
    apt_get -o APT::Update::Error-Mode=any update || die "apt-get update failed" \
        "no network, or a source in /etc/apt that does not answer (its messages are above)"
}

# Adds the backports suite beside the machine's own sources, from the same mirror.
add_backports() {
    local file=/etc/apt/sources.list.d/tierd-backports.sources
    local keyring=/usr/share/keyrings/debian-archive-keyring.gpg mirror
    # apt tells of suites whose lists it has, so this comes after update_lists.
    # shellcheck disable=SC2016  # the dollars are apt's
    if apt-get indextargets --format '$(SUITE) $(RELEASE) $(CODENAME)' 'Identifier: Packages' |
        grep -q -e "$codename-backports"; then
        return
    fi
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' \
        'Identifier: Packages' | awk -v codename="$codename" \
        '$1 == codename && $2 == "main" { print $3; exit }')
    [ -n "$mirror" ] || die "no source of $codename main in /etc/apt" \
        "add the distribution's own sources first"
    say "adding the suite $codename-backports in $file"
    {
        printf 'Types: deb\nURIs: %s\nSuites: %s-backports\nComponents: main\n' \
            "$mirror" "$codename"
        [ ! -r "$keyring" ] || printf 'Signed-By: %s\n' "$keyring"
    } >"$file"
    if ! apt_get -o APT::Update::Error-Mode=any update; then
        rm -f "$file"
        die "the mirror has no suite $codename-backports" \
            "add that suite to /etc/apt yourself and run this again"
    fi
}

# Replaces the name linux-image-6.1 by the packages' real names.
name_kernel_6_1() {
    local image package names=()
    image=$(apt-cache search --names-only '^linux-image-6\.1\.0-[0-9]+-amd64$' |
        cut -d ' ' -f 1 | sort -V | tail -n 1)
    [ -n "$image" ] || die "no suite of this machine has a kernel 6.1 (Debian 12 has)"
    for package in "${missing[@]}"; do
        [ "$package" = linux-image-6.1 ] || names+=("$package")
    done
    missing=("${names[@]}" "$image" "${image/image/headers}")
}

install_packages() {
    find_missing
    [ $((${#missing[@]} + ${#missing_newer[@]})) -gt 0 ] || return 0
    say "missing packages: ${missing[*]} ${missing_newer[*]}"
    [ "$check" = no ] || { incomplete=yes && return 0; }
    [ "$(id -u)" -eq 0 ] || die "installing packages needs root" \
        "run this script once as root; later runs need root no more"
    need_space /usr "$packages_mib"
    need_space /boot 150
    update_lists
    case " ${missing[*]} " in *" linux-image-6.1 "*) name_kernel_6_1 ;; esac
    if [ ${#missing_newer[@]} -gt 0 ] && [ "$release" = debian-12 ]; then
        add_backports
        install_from "$codename-backports" "${missing_newer[@]}"
    else
        missing+=("${missing_newer[@]}")
    fi
    [ ${#missing[@]} -eq 0 ] || install_from "$codename" "${missing[@]}"
    find_missing
    [ $((${#missing[@]} + ${#missing_newer[@]})) -eq 0 ] ||
        die "still missing after the installation: ${missing[*]} ${missing_newer[*]}"
}

# Prometheus for the tests of the metrics. Unpacked, not installed: the package would start
# a server on this machine.
unpack_prometheus() {
    local folder=$root/build/prometheus
    [ ! -x "$folder/usr/bin/promtool" ] && ! command -v promtool >/dev/null || return 0
    say "prometheus is missing"
    [ "$check" = no ] || { incomplete=yes && return 0; }
    rm -rf "$folder"
    mkdir -p "$folder/download"
    [ -n "$(apt-cache policy prometheus)" ] || update_lists
    (cd "$folder/download" && apt_get download prometheus && dpkg -x prometheus_*.deb "$folder") ||
        die "apt-get could not download prometheus" "its messages are above"
    rm -rf "$folder/download"
}

install_from() {
    local suite=$1
    shift
    say "installing from $suite: $*"
    local target=()
    [ "$suite" = "$codename" ] || target=(-t "$suite")
    apt_get install --no-install-recommends "${target[@]}" "$@" ||
        die "apt-get could not install: $*" "its messages are above"
}

# What decides whether the installed project is up to date.
fingerprint() {
    (
        cd "$root"
        "$python" --version
        printf '%s\n' "$root"
        for file in pyproject.toml setup.py config/setup.sh tests/lab/pyproject.toml \
            fpga/python/pyproject.toml; do
            [ ! -e "$file" ] || sha256sum "$file"
        done
        find daemon -type f \( -name '*.[ch]' -o -name '*build*.py' \) ! -name '_native*' \
            -print0 | sort -z | xargs -0 -r sha256sum
    ) | sha256sum | cut -d ' ' -f 1
}

install_project() {
    local now
    [ -x "$python" ] || { incomplete=yes && return 0; }
    now=$(fingerprint)
    # One that has the tests' packages has the demo's.
    if [ -x "$venv/bin/tierd" ] &&
        grep -q -x -e "$now $extras" -e "$now gpu,$tests_extras" "$stamp" 2>/dev/null; then
        return 0
    fi
    # Packages that are there stay.
    ! grep -q ",$tests_extras\$" "$stamp" 2>/dev/null || extras=gpu,$tests_extras
    say ".venv is missing or older than the sources"
    [ "$check" = no ] || { incomplete=yes && return 0; }
    need_space "$root" "$venv_mib"
    # A folder that another Python made, that was made elsewhere or not finished, is made again.
    if ! "$venv/bin/python" -c "import sys; sys.exit(sys.base_prefix != '/usr')" 2>/dev/null ||
        [ ! -x "$venv/bin/pip" ] || [ "$(made_as)" != "$venv" ]; then
        rm -rf "$venv"
        [ "$demo_only" = no ] || extras=gpu
        "$python" -m venv "$venv" || die "cannot make $venv"
    fi
    see_distribution
    rm -f "$stamp"
    pip_install --prefer-binary 'setuptools>=70.1' 'cffi>=1.16'
    [ "$demo_only" = yes ] || pip_install --prefer-binary 'reuse>=4'
    pip_install --no-build-isolation --editable "${root}[$extras]" \
        --editable "$root/tests/lab" --editable "$root/fpga/python"
    printf '%s\n' "$now $extras" >"$stamp"
    say "installed: $venv/bin/tierd"
}

# The folder as which .venv was made.
made_as() {
    sed -n 's/^command = .* -m venv \(--[^ ]* \)*//p' "$venv/pyvenv.cfg" 2>/dev/null || true
}

# bcc is a package of the distribution only. Python is told where such packages are, and no more:
# with --system-site-packages it would also run their .pth files at every start, which takes time,
# most of all under emulation.
see_distribution() {
    local packages
    sed -i 's/^\(include-system-site-packages = \)true/\1false/' "$venv/pyvenv.cfg"
    packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' /usr/lib/python3/dist-packages >"$packages/distribution.pth"
}

pip_install() {
    "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@" >&2 ||
        die "pip could not install: $*" \
            "no network, or a package that does not build (its messages are above)"
}

parse_arguments "$@"
incomplete=no
find_distribution
install_packages
[ "$demo_only" = yes ] || unpack_prometheus
install_project
if [ "$incomplete" = yes ]; then
    say "run config/setup.sh to install what is missing"
    exit 1
fi
