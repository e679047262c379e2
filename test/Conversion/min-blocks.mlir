// Blocks an SM must hold: what a kernel says, what the option says of all, and
// what another says of one kernel, which goes before both; -1: ptxas decides.
// RUN: kdac-opt %s --tile-place --tile-to-nvvm | FileCheck %s --check-prefix=OWN
// RUN: kdac-opt %s --tile-place --tile-to-nvvm=min-blocks=2 | FileCheck %s --check-prefix=ALL
// RUN: kdac-opt %s --tile-place --tile-to-nvvm="min-blocks-of=second=5" | FileCheck %s --check-prefix=ONE
// RUN: kdac-opt %s --tile-place --tile-to-nvvm="min-blocks=2 min-blocks-of=first=-1,second=3" | FileCheck %s --check-prefix=BOTH
// RUN: not kdac-opt %s --tile-place --tile-to-nvvm="min-blocks-of=second" 2>&1 | FileCheck %s --check-prefix=BAD

#s = #tile.schedule<target = "sm_90a", form = "rows", chunk = 1, leaf = 1,
                    v_tile = 32, warps = 2, stages = 1, operand = f32, gram = f32>

// OWN-LABEL: llvm.func @first(
// OWN-SAME: nvvm.minctasm = 4
// ALL-LABEL: llvm.func @first(
// ALL-SAME: nvvm.minctasm = 2
// ONE-LABEL: llvm.func @first(
// ONE-SAME: nvvm.minctasm = 4
// BOTH-LABEL: llvm.func @first(
// BOTH-NOT: nvvm.minctasm
// BAD: error: min-blocks-of 'second' is not KERNEL=N
func.func @first(%out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.min_blocks = 4 : i64, kdac.v_tile = 32} {
  return
}

// OWN-LABEL: llvm.func @second(
// OWN-NOT: nvvm.minctasm
// ALL-LABEL: llvm.func @second(
// ALL-SAME: nvvm.minctasm = 2
// ONE-LABEL: llvm.func @second(
// ONE-SAME: nvvm.minctasm = 5
// BOTH-LABEL: llvm.func @second(
// BOTH-SAME: nvvm.minctasm = 3
func.func @second(%out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.v_tile = 32} {
  return
}
