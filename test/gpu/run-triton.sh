#!/bin/sh
# Runs a bundle (./dev triton-bundle DIR) on this machine's GPU: kdac's kernels
# launched by Triton's own CompiledKernel, with and without its two parameters, then
# FLA's KDA operators dispatched to kdac. Needs a CUDA driver, torch, triton and, for
# the second half, einops and fla-core 0.5.2.
#
#   ./run-triton.sh [OUT]
#
# Writes OUT/triton.jsonl and OUT/fla.jsonl (ledger lines, for python/ledger.py) and
# OUT/triton-log. Exit code 0 if everything passed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/out}
mkdir -p "$out" || exit 2
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64"
export PYTHONUNBUFFERED=1
commit=$(cat "$here/commit" 2>/dev/null || echo unknown)
{
  code=0
  for abi in triton bare; do
    echo "== Triton launches kernels of ABI $abi"
    python3 "$here/test/gpu/triton_launch.py" "$here/$abi" \
      --pack "$here/$abi.kdac" --kdac-pack "$here/kdac-pack" \
      --output "$out/triton.jsonl" --commit "$commit" || code=1
  done
  echo "== FLA dispatches to kdac"
  python3 "$here/test/gpu/fla_dispatch.py" --library "$here/libkdac.so" \
    --pack "$here/fla.kdac" --output "$out/fla.jsonl" --commit "$commit" || code=1
  echo "$code" >"$out/code"
} 2>&1 | tee "$out/triton-log"
code=$(cat "$out/code")
rm -f "$out/code"
exit "$code"
