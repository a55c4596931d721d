#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the packages tierd and tierd-dkms into build/deb (`make deb`).
#
#   config/debian/build.sh [--no-lint] [FOLDER]
#
# Needs .venv (config/setup.sh), clang, scdoc and dpkg-deb; no root. What Debian has in a
# version that is new enough becomes a dependency; of the two pure Python libraries
# that Debian 12 has too old, a copy goes into the package (`bundled`, docs/operate/packages.md).

set -euo pipefail
export LC_ALL=C.UTF-8

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/config/debian
lint=yes
if [ "${1:-}" = --no-lint ]; then
    lint=no
    shift
fi
out=${1:-$root/build/deb}
python=$root/.venv/bin/python
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/pyproject.toml")
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/pyproject.toml")}
export SOURCE_DATE_EPOCH=$epoch
architecture=$(dpkg --print-architecture)
# Whoever hands packages out answers for them: without an address they say so.
maintainer="${DEBFULLNAME:-The tierd authors} <${DEBEMAIL:-tierd@localhost}>"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

say() { printf 'deb: %s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

# put MODE SOURCE DESTINATION: one file into the package being made.
put() { install -D -m "$1" "$2" "$tree/$3"; }

# Whether Debian's package $1 here is at least version $2.
debian_has() {
    local candidate
    candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p')
    [ -n "$candidate" ] && [ "$candidate" != "(none)" ] && dpkg --compare-versions "$candidate" ge "$2"
}

# Sets `depends` and `bundled` for the libraries of pyproject.toml.
choose_libraries() {
    depends="python3 (>= 3.11), python3-numpy (>= 1:1.24), python3-cffi-backend (>= 1.15)"
    depends+=", libc6 (>= 2.34)"
    bundled=()
    local package library minimum
    while read -r package library; do
        minimum=$(sed -n "s/^    \"$library>=\(.*\)\",/\1/p" "$root/pyproject.toml")
        if debian_has "$package" "$minimum"; then
            depends+=", $package (>= $minimum)"
        else
            bundled+=("$library>=$minimum")
        fi
    done <<<$'python3-pyroute2 pyroute2\npython3-prometheus-client prometheus-client'
}

build_wheel() {
    say "wheel"
    # Modules of an earlier tree that lie there would be packed as well.
    rm -rf "$root"/build/lib.* "$root"/build/bdist.*
    (cd "$root" && "$python" -m pip wheel -q --disable-pip-version-check --no-deps \
        --no-build-isolation --wheel-dir "$work/wheel" . >&2)
    "$python" -m zipfile -e "$work"/wheel/tierd-*.whl "$work/unpacked"
}

documentation() {
    local package=$1
    put 644 "$here/copyright" "usr/share/doc/$package/copyright"
    gzip -9n <"$work/changelog" >"$work/changelog.gz"
    put 644 "$work/changelog.gz" "usr/share/doc/$package/changelog.gz"
}

# Debian's form of the newest entry of CHANGELOG.md.
write_changelog() {
    {
        printf 'tierd (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n' "$version"
        printf ' -- %s  %s\n' "$maintainer" "$(date -uRd "@$epoch")"
    } >"$work/changelog"
}

manuals() {
    "$python" "$root/docs/man/make.py" "$tree/usr/share/man"
    find "$tree/usr/share/man" -type f -exec gzip -9n {} +
}

service_package() {
    local name
    tree=$work/tierd
    mkdir -p "$tree/usr/lib/tierd" "$tree/usr/share/tierd/ebpf/objects"
    cp -r "$work/unpacked/tierd" "$work/unpacked/tierd_gpu" "$tree/usr/lib/tierd/"
    find "$tree/usr/lib/tierd" -name __pycache__ -prune -exec rm -rf {} +
    strip --strip-unneeded "$tree"/usr/lib/tierd/tierd/_native*.so
    if [ ${#bundled[@]} -gt 0 ]; then
        say "bundled: ${bundled[*]}"
        "$python" -m pip install -q --disable-pip-version-check --no-deps --no-compile \
            --target "$work/bundle" "${bundled[@]}" >&2
        rm -rf "$work/bundle/bin"
        mkdir -p "$tree/usr/lib/tierd/bundled"
        cp -r "$work"/bundle/* "$tree/usr/lib/tierd/bundled/"
    fi
    put 755 "$here/tierd" usr/bin/tierd
    cp -r "$root"/ebpf/*.bpf.c "$root"/ebpf/*.h "$root/ebpf/events" "$tree/usr/share/tierd/ebpf/"
    cp "$work"/objects/*.bpf.o "$tree/usr/share/tierd/ebpf/objects/"
    put 644 "$root/config/tierd.schema.json" usr/share/tierd/tierd.schema.json
    # Every setting commented out: what is not changed is the profile's to say.
    sed -E '/^(#|\[|$)/!s/^/#/' "$root/config/tierd.toml" >"$work/tierd.toml"
    put 644 "$work/tierd.toml" etc/tierd/tierd.toml
    mkdir -p "$tree/etc/tierd/conf.d"
    put 644 "$root/systemd/tierd.service" usr/lib/systemd/system/tierd.service
    put 644 "$root/systemd/tierd.tmpfiles" usr/lib/tmpfiles.d/tierd.conf
    put 644 "$root/systemd/tierd.sysusers" usr/lib/sysusers.d/tierd.conf
    for name in grafana prometheus kubernetes; do
        [ ! -d "$root/config/$name" ] || {
            mkdir -p "$tree/usr/share/doc/tierd/examples"
            cp -r "$root/config/$name" "$tree/usr/share/doc/tierd/examples/"
        }
    done
    manuals
    mkdir -p "$tree/usr/share/bash-completion/completions"
    "$python" "$here/completion.py" bash >"$tree/usr/share/bash-completion/completions/tierd"
    mkdir -p "$tree/usr/share/zsh/vendor-completions"
    "$python" "$here/completion.py" zsh >"$tree/usr/share/zsh/vendor-completions/_tierd"
    documentation tierd
    gzip -9n <"$root/CHANGELOG.md" >"$work/upstream.gz"
    put 644 "$work/upstream.gz" usr/share/doc/tierd/CHANGELOG.md.gz
    put 644 "$here/tierd.lintian-overrides" usr/share/lintian/overrides/tierd
    control tierd "$architecture" "$depends"
}

module_package() {
    local file
    tree=$work/tierd-dkms
    # What DKMS builds from has the card's headers beside the module's own files.
    make -s -C "$root/kmod" source SOURCE="$work/module-source" >/dev/null
    while IFS= read -r file; do
        put 644 "$work/module-source/$file" "usr/src/tierd-$version/$file"
    done < <(cd "$work/module-source" && find . -type f -printf '%P\n')
    sed -i "s/^PACKAGE_VERSION=.*/PACKAGE_VERSION=\"$version\"/" "$tree/usr/src/tierd-$version/dkms.conf"
    put 644 "$root/kmod/modprobe-tierd.conf" usr/lib/modprobe.d/tierd.conf
    put 644 "$root/systemd/tierd.modules-load" usr/lib/modules-load.d/tierd.conf
    put 644 "$root/systemd/99-tierd.rules" usr/lib/udev/rules.d/99-tierd.rules
    documentation tierd-dkms
    control tierd-dkms all "dkms (>= 3.0)"
}

# control PACKAGE ARCHITECTURE DEPENDS: the control files of the package in $tree.
control() {
    local script
    mkdir -p "$tree/DEBIAN"
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$2/" -e "s/@DEPENDS@/$3/" \
        -e "s/@MAINTAINER@/${maintainer//[\/&]/}/" \
        -e "s/@SIZE@/$(du -k -s --exclude=DEBIAN "$tree" | cut -f 1)/" \
        "$here/$1.control" | grep -v '^#' >"$tree/DEBIAN/control"
    for script in postinst prerm postrm; do
        [ ! -e "$here/$1.$script" ] ||
            { sed "s/@VERSION@/$version/" "$here/$1.$script" >"$tree/DEBIAN/$script" &&
                chmod 755 "$tree/DEBIAN/$script"; }
    done
    if [ -d "$tree/etc" ]; then
        (cd "$tree" && find etc -type f -printf '/%p\n' | sort) >"$tree/DEBIAN/conffiles"
    fi
    (cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z |
        xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    find "$tree" -newermt "@$epoch" -exec touch -hd "@$epoch" {} +
    dpkg-deb --root-owner-group -Zxz --build "$tree" "$out" >&2
}

for program in dpkg-deb clang scdoc; do
    command -v "$program" >/dev/null || die "$program is missing: config/setup.sh installs it"
done
[ -x "$python" ] || die "no .venv: run config/setup.sh first"
mkdir -p "$out"
rm -f "$out"/*.deb
choose_libraries
write_changelog
build_wheel
make -s -C "$root/ebpf"
cp -r "$root/ebpf/objects" "$work/objects"
service_package
module_package
if [ "$lint" = yes ] && command -v lintian >/dev/null; then
    suppressed=()
    [ -n "${DEBEMAIL:-}" ] ||
        suppressed=("--suppress-tags=bogus-mail-host,bogus-mail-host-in-debian-changelog")
    lintian --fail-on error "${suppressed[@]}" "$out"/*.deb >&2
fi
ls "$out"/*.deb
