#!/bin/sh
# Installs a build into a folder of its own and uses it as a stranger would: by
# CMake, by pkg-config, and with nothing but the installed library at run time.
# usage: install.sh BUILD SOURCE ENGINE_ORACLE
set -eu
build=$1 source=$2 oracle=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
fail() { echo "install.sh: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$prefix" >"$work/log"

. "$(dirname "$0")/engine.sh"
build_engine "$prefix" engine

# It needs the C library and libkdac; its kernels came along.
needed=$(needs "$work/engine/build/engine" libkdac)
[ -z "$needed" ] || fail "the engine needs $needed"
needed=$(ldd "$prefix/lib"/*/libkdac.so "$prefix/lib/libkdac.so" 2>/dev/null |
  awk '/=>/ {print $1}' |
  grep -Ev '^(libc|libm|libdl|libpthread)\.so' || true)
[ -z "$needed" ] || fail "libkdac needs $needed"
run_engine engine "$oracle"

# The kernels in an object file and the runtime in an archive: nothing but C++'s
# library is needed then.
build_engine "$prefix" archive "OBJECT STATIC"
needed=$(needs "$work/archive/build/engine" "(libstdc\\+\\+|libgcc_s)")
[ -z "$needed" ] || fail "the static engine needs $needed"
run_engine archive "$oracle"
grep -q 0x "$work/archive/build/kdac/engine/kernels.c" &&
  fail "kernels.c still has the pack"

if [ ! -e /dev/nvidia0 ]; then
  env -i "$work/engine/build/engine" "$work/none" cuda:0 2>"$work/errors" &&
    fail "the engine runs on a GPU that is not there"
  grep -Eq "^engine: cuda:0: no (CUDA driver|such GPU)$" "$work/errors" ||
    fail "no sentence about the missing driver"
fi

# Only the C ABI is exported, and the embedded functions are not.
lib=$(find "$prefix" -name 'libkdac.so' | head -1)
others=$(nm -D --defined-only "$lib" | awk '{print $3}' |
  grep -Ev '^(kdac_[a-z_0-9]+(@@KDAC_1)?|KDAC_1)$' || true)
[ -z "$others" ] || fail "libkdac exports $others"
cc -shared -fPIC -I"$prefix/include" -o "$work/plugin.so" \
  "$work/engine/build/kdac/engine/kernels.c" -I"$work/engine/build/kdac/engine"
leaked=$(nm -D --defined-only "$work/plugin.so" | grep kernels_ || true)
[ -z "$leaked" ] || fail "embedded symbols leak: $leaked"

# Without the compiler the package still gives the runtime, and says what lacks.
mv "$prefix/bin/kdac" "$work/hidden"
rm -rf "$work/engine/build"
PATH=/usr/bin:/bin cmake -G Ninja -S "$work/engine" -B "$work/engine/build" \
  -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
  fail "the engine configures without a compiler"
tr '\n' ' ' <"$work/log" | tr -s ' ' |
  grep -q "the compiler 'kdac' was not found; install kdac-tools" ||
  { cat "$work/log"; fail "no sentence about the missing compiler"; }

# pkg-config.
cat >"$work/version.c" <<'C'
#include <kdac-c/kdac.h>
int main(void) { return kdac_abi_version() == KDAC_ABI_VERSION ? 0 : 1; }
C
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name kdac.pc)")
export PKG_CONFIG_PATH
if command -v pkg-config >/dev/null; then
  # shellcheck disable=SC2046
  cc "$work/version.c" -o "$work/version" $(pkg-config --cflags --libs kdac)
  LD_LIBRARY_PATH=$(dirname "$lib") "$work/version" ||
    fail "the header and the library differ"
  # With the archive alone, what --static adds must be enough.
  mkdir "$work/static"
  cp "$(dirname "$lib")/libkdac.a" "$work/static"
  # shellcheck disable=SC2046
  cc "$work/version.c" -o "$work/version-static" \
    $(pkg-config --static --define-variable=libdir="$work/static" --cflags \
      --libs kdac)
  [ -z "$(needs "$work/version-static" '(libstdc\+\+|libgcc_s)')" ] ||
    fail "the program from the archive needs libkdac.so"
  "$work/version-static" || fail "the header and the archive differ"
fi
echo "install.sh: good"
