#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds the modules, with all warnings as errors and sparse's as well, for the kernels that Debian's suites have headers for.
#
#   kmod/kernels.sh              every suite of the list below (make -C kmod kernels)
#   kmod/kernels.sh SUITE...     only these
#   KERNEL_IMAGES=1 ...          with the kernels themselves, so that they can be booted
#
# Packages come by apt from the mirror that this machine uses for its own suite, and are unpacked
# under build/kernels, with apt's lists beside them: nothing is installed, and the machine's own
# sources stay as they are. Each suite's newest kernel is built; a line a kernel says which.

set -euo pipefail
export LC_ALL=C.UTF-8

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$here/../build/kernels
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
suites=(bookworm bookworm-backports trixie trixie-backports sid experimental)

say() { printf 'kernels: %s\n' "$*" >&2; }

die() {
    say "$1"
    exit 1
}

find_mirror() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
    # shellcheck disable=SC2016  # the dollars are apt's
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Identifier: Packages' |
        awk -v codename="$codename" '$1 == codename && $2 == "main" { print $3; exit }'
}

# apt-get or apt-cache on the lists of one suite, in $folder, alone. A suite that holds only what is
# newer than another is read with that one, and comes first.
apt_of() {
    local program=$1
    shift
    "$program" -q -o Dir::Etc::sourcelist="$folder/apt.sources" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferencesparts=/dev/null -o Dir::Etc::preferences=/dev/null \
        -o Dir::State="$folder/apt" -o Dir::State::status=/dev/null -o Dir::Cache="$folder/apt" \
        -o APT::Default-Release="$suite" -o APT::Sandbox::User=root -o Acquire::Retries=3 "$@"
}

read_lists() {
    local below=''
    case $suite in
    experimental) below=sid ;;
    *-backports) below=${suite%-backports} ;;
    esac
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial"
    printf 'Types: deb\nURIs: %s\nSuites: %s %s\nComponents: main\n' "$mirror" "$suite" "$below" \
        >"$folder/apt.sources"
    [ ! -r "$keyring" ] || printf 'Signed-By: %s\n' "$keyring" >>"$folder/apt.sources"
    apt_of apt-get -o APT::Update::Error-Mode=any update >"$folder/log" 2>&1 ||
        die "the mirror has no suite $suite ($folder/log)"
}

# The packages of the suite's newest kernel: headers, and the tools that the build runs.
find_packages() {
    local wanted=(linux-headers-amd64)
    [ -z "${KERNEL_IMAGES:-}" ] || wanted+=(linux-image-amd64)
    apt_of apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances "${wanted[@]}" |
        grep -xE 'linux-((headers|image|binary|modules)-[0-9].*(-amd64|-common)|kbuild-[0-9].*)|libc6' | sort -u
}

# Tools that are linked to a newer C library than this machine's run with their suite's own.
wrap_tools() {
    local libraries=$folder/root/usr/lib/x86_64-linux-gnu tool
    [ -e "$libraries/libc.so.6" ] || libraries=$folder/root/lib/x86_64-linux-gnu
    find "$folder"/root/usr/lib/linux-kbuild-* -type f -perm -u+x | while read -r tool; do
        [[ $(ldd "$tool" 2>&1) == *"' not found"* ]] || continue
        mv "$tool" "$tool.newer"
        printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' \
            "$libraries/ld-linux-x86-64.so.2" "$libraries:/lib/x86_64-linux-gnu" "$tool.newer" >"$tool"
        chmod +x "$tool"
    done
}

# Unpacks what $folder/packages lists, and lets what names its place under / name the one here.
unpack() {
    rm -rf "$folder/root" "$folder/download"
    mkdir -p "$folder/root" "$folder/download"
    (cd "$folder/download" && xargs -r bash -c 'apt_of apt-get download "$@"' _ <../packages) \
        >>"$folder/log" 2>&1 || die "packages of $suite do not come ($folder/log)"
    local package
    for package in "$folder"/download/*.deb; do
        dpkg -x "$package" "$folder/root"
    done
    rm -rf "$folder/download"
    wrap_tools
    sed -i "s,/usr/src/,$folder/root/usr/src/,g" "$folder"/root/usr/src/linux-headers-*-amd64/Makefile
    # With it the build would add type information, for which pahole has to be installed.
    rm -f "$folder"/root/usr/src/linux-headers-*-amd64/vmlinux
    cp "$folder/packages" "$folder/unpacked"
}

# The compiler of this machine, which may be older than the one that a kernel was configured with:
# what it does not know of options and attributes that the configuration asks for is left out.
make_compiler() {
    local known=() option
    for option in -fmin-function-alignment=16 -fstrict-flex-arrays=3; do
        ! gcc "$option" -x c -c -o /dev/null /dev/null 2>/dev/null || known+=("$option")
    done
    cat >"$build/cc" <<EOF
#!/bin/bash
known=" ${known[*]} "
for argument; do
    shift
    case \$argument in
    -fmin-function-alignment=* | -fstrict-flex-arrays=*)
        [[ \$known == *" \$argument "* ]] || continue
        ;;
    esac
    set -- "\$@" "\$argument"
done
exec gcc "\$@" -Wno-attributes
EOF
    chmod +x "$build/cc"
}

build_for() {
    local headers release
    headers=$(echo "$folder"/root/usr/src/linux-headers-*-amd64)
    release=${headers##*/linux-headers-}
    make -s -j "$(nproc)" -C "$here" KERNEL="$release" KDIR="$headers" BUILD="$folder/module" CC="$build/cc" W=1 C=1 \
        >"$folder/log" 2>&1 || {
        cat "$folder/log" >&2
        die "it does not build for $release ($suite)"
    }
    # A pahole or compiler other than the kernel's own is no matter of ours.
    ! grep -v 'differs from the one used to build' "$folder/log" |
        grep -i -e warning -e undefined >&2 || die "warnings for $release ($suite)"
    printf '%s %s\n' "$suite" "$release"
}

export -f apt_of
mirror=$(find_mirror)
[ -n "$mirror" ] || die "apt has no source of this machine's own suite"
mkdir -p "$build"
build=$(cd "$build" && pwd)
command -v sparse >/dev/null || die "needs sparse, which root can install"
make_compiler
[ $# -eq 0 ] || suites=("$@")
for suite in "${suites[@]}"; do
    folder=$build/$suite${KERNEL_IMAGES:+-boot}
    export suite folder
    mkdir -p "$folder"
    read_lists
    find_packages >"$folder/packages"
    [ -s "$folder/packages" ] || die "$suite has no kernel headers"
    cmp -s "$folder/packages" "$folder/unpacked" || unpack
    build_for
done
