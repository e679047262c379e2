#!/bin/sh
# Builds the .deb packages, looks into them, installs them and uses what they have.
# usage: packages.sh BUILD ENGINE_ORACLE
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "packages.sh: $*" >&2; exit 1; }
(cd "$work" && cpack -G DEB --config "$1/CPackConfig.cmake" -B "$work") >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "cpack failed"; }
for package in kdac-runtime kdac-tools; do
  dpkg-deb -c "$work"/${package}_*.deb >"$work/$package"
done
has() { # package, file
  grep -q "$2" "$work/$1" || fail "$1 has no $2"
}
for file in libkdac.so.0 libkdac.a include/kdac-c/kdac.h kdacConfig.cmake \
  KdacAddKernels.cmake pkgconfig/kdac.pc bin/kdac-pack examples/engine/engine.c; do
  has kdac-runtime "$file"
done
has kdac-tools "bin/kdac$"
has kdac-tools "kdac/packs/kimi-k3.yaml"
grep -Eq "bin/kdac$|bin/kdac-opt" "$work/kdac-runtime" &&
  fail "the runtime has the compiler"
dpkg-deb -f "$work"/kdac-tools_*.deb Depends | grep -q "kdac-runtime (= " ||
  fail "the tools do not depend on the runtime"
# Installed as a machine would: by dpkg, below a folder, with a database of its
# own that starts as this machine's, so that dependencies are really looked up.
root=$work/root
if [ "$(id -u)" -eq 0 ]; then
  mkdir -p "$root" "$work/admin/updates" "$work/admin/info" "$work/admin/triggers"
  cp /var/lib/dpkg/status "$work/admin/"
  dpkg --instdir="$root" --admindir="$work/admin" --install \
    "$work"/kdac-runtime_*.deb "$work"/kdac-tools_*.deb >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "dpkg does not install the packages"; }
  for package in kdac-runtime kdac-tools; do
    dpkg-query --admindir="$work/admin" -W -f='${db:Status-Status}' $package |
      grep -q '^installed$' || fail "$package is not installed"
  done
else
  echo "packages.sh: not root, so unpacked by dpkg-deb instead of dpkg --install"
  for package in kdac-runtime kdac-tools; do
    dpkg-deb -x "$work"/${package}_*.deb "$root"
  done
fi
env -i "$root/usr/bin/kdac-pack" --help >/dev/null || fail "kdac-pack"

# The example engine, built and run from what was installed.
. "$(dirname "$0")/engine.sh"
build_engine "$root/usr" engine
run_engine engine "$2"

# Removed, they leave nothing.
if [ "$(id -u)" -eq 0 ]; then
  dpkg --instdir="$root" --admindir="$work/admin" --purge kdac-tools kdac-runtime \
    >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg does not purge"; }
  left=$(find "$root" -type f)
  [ -z "$left" ] || fail "left behind: $left"
fi
echo "packages.sh: good"
