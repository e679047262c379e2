#!/bin/sh
# Runs a model bundle (./dev model-bundle DIR) on this machine's GPU: the tiny
# checkpoints against the f64 reference and the host, then times of the 48B's
# shape with random weights. Needs a CUDA driver; cuBLASLt where it is found.
#
#   ./run-models.sh [OUT]
#
# Writes OUT/tests.log, OUT/times.json (for python/model_times.py) and OUT/outcome
# ("commit, GPU, driver, tests"). KDAC_CONTEXTS has other contexts to time.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/out}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
# Where container images keep the driver and CUDA's libraries, if the loader does
# not know them.
for folder in /usr/local/nvidia/lib64 /usr/local/cuda*/lib64 \
              /usr/local/cuda*/targets/*/lib; do
  [ -d "$folder" ] && LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
export LD_LIBRARY_PATH
export KDAC_TEST_DRIVER=libcuda.so.1 KDAC_TEST_MODELS="$here/tiny-models"
export KDAC_TEST_PACK="$here/kdac-run.kdac"
export KDAC_TEST_GPU_PACK="$here/kdac-run-gpu.kdac"

"$here/kdac-model-tests" --gtest_filter='GpuOps*:Gpu/*' >"$out/tests.log" 2>&1
code=$?
summary=$(grep -E '^\[  (PASSED|FAILED)  \] [0-9]+ test' "$out/tests.log" |
          tr '\n' ' ')
gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null |
      head -n 1)
echo "$(cat "$here/commit" 2>/dev/null || echo unknown), ${gpu:-unknown GPU}:" \
     "${summary:-no test ran}" | tee "$out/outcome"
grep -E '^\[  FAILED' "$out/tests.log"

time_them() {
  "$here/kdac-run" --random-weights --config=kimi-linear-48b --device=cuda \
    --json "$@" 2>>"$out/notes" | tail -n 1
}
contexts=${KDAC_CONTEXTS:-512,4096,16384,65536,131072,262144,524288,1048576}
{
  time_them --time-decode="$contexts"
  time_them --time-decode=4096,32768,131072 --slots=8
  time_them --time-prefill=8192,32768 --chunk=32768
  time_them --time-prefill=32768 --chunk=32768 --no-cublas
} >"$out/times.json"
cat "$out/notes"
exit $code
