#!/bin/sh
# Builds the .deb packages and looks into them. usage: packages.sh BUILD
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
for file in libkdac.so.0 include/kdac-c/kdac.h kdacConfig.cmake \
  KdacAddKernels.cmake pkgconfig/kdac.pc bin/kdac-pack examples/engine/engine.c; do
  has kdac-runtime "$file"
done
has kdac-tools "bin/kdac$"
has kdac-tools "kdac/packs/kimi-k3.yaml"
grep -Eq "bin/kdac$|bin/kdac-opt" "$work/kdac-runtime" &&
  fail "the runtime has the compiler"
dpkg-deb -f "$work"/kdac-tools_*.deb Depends | grep -q "kdac-runtime (= " ||
  fail "the tools do not depend on the runtime"
# The runtime, unpacked, runs without anything else.
dpkg-deb -x "$work"/kdac-runtime_*.deb "$work/root"
env -i "$work/root/usr/bin/kdac-pack" --help >/dev/null || fail "kdac-pack"
echo "packages.sh: good"
