# Sourced by the tests of installations: the example engine as a stranger builds it.
# Needs fail() and $work, and appends to $work/log.

# build_engine PREFIX NAME [WORDS]: a copy in $work/NAME, configured against PREFIX,
# with WORDS at the end of its call of kdac_add_kernels.
build_engine() {
  cp -r "$1/share/kdac/examples/engine" "$work/$2"
  [ -z "${3:-}" ] ||
    sed -i "s/ARCHS \${ARCHS})/ARCHS \${ARCHS} $3)/" "$work/$2/CMakeLists.txt"
  cmake -G Ninja -S "$work/$2" -B "$work/$2/build" -DCMAKE_C_COMPILER=cc \
    -DCMAKE_C_FLAGS="-std=c11 -Wall -Wextra -Werror -pedantic" \
    -DCMAKE_PREFIX_PATH="$1" >>"$work/log" 2>&1 ||
    { cat "$work/log"; fail "the engine $2 does not configure"; }
  grep -q "KDAC_COMPILER:FILEPATH=$1/bin/kdac$" \
    "$work/$2/build/CMakeCache.txt" || fail "another compiler was found"
  cmake --build "$work/$2/build" >>"$work/log" 2>&1 ||
    { cat "$work/log"; fail "the engine $2 does not build"; }
}

# run_engine NAME ORACLE: runs it without an environment, and asks the oracle.
run_engine() {
  env -i "$work/$1/build/engine" "$work/$1/run.bin" ||
    fail "the engine $1 does not run"
  "$2" "$work/$1/run.bin" || fail "the engine $1 is too far from the oracle"
}

# needs FILE WHAT: shared libraries that FILE needs beyond the C library and WHAT.
needs() {
  ldd "$1" | awk '{print $1}' |
    grep -Ev "^(linux-vdso|libc\.|libm\.|/lib|${2:-none}\.so)" || true
}
