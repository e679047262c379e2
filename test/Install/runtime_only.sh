#!/bin/sh
# Builds and installs the runtime where there is no LLVM: nothing may look for it.
# usage: runtime_only.sh SOURCE PACK [CMAKE_OPTION...]
set -eu
source=$1 pack=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "runtime_only.sh: $*" >&2; exit 1; }

{
  cmake -S "$source" -B "$work/build" -G Ninja -DKDAC_RUNTIME_ONLY=ON \
    -DMLIR_DIR=/nonexistent -DLLVM_DIR=/nonexistent "$@" &&
    cmake --build "$work/build" &&
    cmake --install "$work/build" --prefix "$work/prefix"
} >"$work/log" 2>&1 || { cat "$work/log"; fail "the build failed"; }
# LLVM_DIR and MLIR_DIR as given are all that the cache has of LLVM.
grep -E '^(LLVM|MLIR)' "$work/build/CMakeCache.txt" | grep -Ev '_DIR:[A-Z]+=/nonexistent$' &&
  fail "the build asked for LLVM"
for file in bin/kdac-pack include/kdac-c/kdac.h; do
  [ -e "$work/prefix/$file" ] || fail "no $file"
done
[ ! -e "$work/prefix/bin/kdac" ] || fail "the compiler is there"
"$work/prefix/bin/kdac-pack" check "$pack" --filter='^rows.add' --seed=7
