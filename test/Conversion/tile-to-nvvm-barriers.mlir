// RUN: kdac-opt %s --tile-to-nvvm | FileCheck %s

// What was written to shared memory before a loop is read after it: an empty
// sequence skips the loop and the barrier in it, so there is one more.
// CHECK-LABEL: llvm.func @skipped_loop
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<3>
// CHECK: scf.for
// CHECK: nvvm.barrier
// CHECK: }
// CHECK: nvvm.barrier
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> f32
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
func.func @skipped_loop(%x: !tile.ref<f32>, %y: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #tile.schedule<target = "sm_90a",
      form = "chunk", chunk = 32, leaf = 1, v_tile = 32, warps = 4, stages = 1,
      operand = bf16, gram = bf16>} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %v = tile.load %x[%c0] stride %c1 valid [%c32] align 4
      {tile.place = [#tile.place<shared>]} : !tile.ref<f32> -> tensor<32xf32>
  scf.for %i = %c0 to %n step %c1 {
  }
  tile.store %v, %y[%c0] stride %c1 valid [%c32] align 4
      : tensor<32xf32>, !tile.ref<f32>
  return
}
