#!/bin/sh
# Runs a bundle (./dev gpu-bundle DIR) on this machine's GPU: every variant of
# the bundle's packs against the oracle, then timings. Needs a CUDA driver only.
#
#   ./run.sh [OUT] [options of kdac-gpu-test]
#
# Writes OUT/ledger.jsonl (to be merged by python/ledger.py) and OUT/log.
# KDAC_GRAPHS=1 also replays every variant from a graph, through the C ABI.
# KDAC_BENCH holds other shapes to time; KDAC_TIME_LIMIT other seconds in all.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/out}
[ $# -gt 0 ] && shift
mkdir -p "$out" || exit 2
bench=${KDAC_BENCH:-chunk:1:8192:96,step:64:1:96}
# Where container images keep the driver, if the loader does not know it.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64"
commit=$(cat "$here/commit" 2>/dev/null || echo unknown)

# A pipe would hide the exit code, so it travels in a file.
{
  "$here/kdac-gpu-test" "$here"/packs/*.kdac --ledger "$out/ledger.jsonl" \
    --commit "$commit" --bench "$bench" \
    --time-limit "${KDAC_TIME_LIMIT:-500}" "$@"
  code=$?
  if [ -n "${KDAC_GRAPHS:-}" ]; then
    for pack in "$here"/packs/*.kdac; do
      "$here/kdac-graph-test" "$pack" || code=1
    done
  fi
  echo "$code" >"$out/code"
} 2>&1 | tee "$out/log"
code=$(cat "$out/code")
rm -f "$out/code"
exit "$code"
