// The example of the pass: prefix sums prepare, their total chains.
// RUN: kdac-opt %s --tile-split-roles --canonicalize --cse | FileCheck %s

#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16, roles = "split">

// CHECK-LABEL: func.func @total_prepare(
// CHECK: %[[IMAGES:.*]] = tile.view %{{.*}}[0] : !tile.ref<i8> -> !tile.ref<f32>
// CHECK: scf.for
// CHECK: tile.load
// CHECK: %[[G:.*]] = tile.cumsum
// CHECK: tile.store %[[G]], %[[IMAGES]]
// CHECK-NOT: arith.addf
// CHECK-LABEL: func.func @total_chain(
// CHECK: %[[IMAGES:.*]] = tile.view %{{.*}}[0] : !tile.ref<i8> -> !tile.ref<f32>
// CHECK: scf.for {{.*}} iter_args(%[[S:.*]] =
// CHECK: %[[G:.*]] = tile.load %[[IMAGES]]
// CHECK-NOT: tile.cumsum
// CHECK: %[[T:.*]] = arith.addf %[[S]], %[[G]]
// CHECK: scf.yield %[[T]]
func.func @total(%x: !tile.ref<f32>, %out: !tile.ref<f32>, %w: !tile.ref<i8>,
                 %n: index {kdac.name = "N"}, %h: index {kdac.name = "HV"})
    attributes {tile.kernel, tile.schedule = #s, kdac.slices = 1} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant dense<0.0> : tensor<32x32xf32>
  %id = tile.program_id : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero) -> (tensor<32x32xf32>) {
    tile.cut %i : index
    %a = tile.load %x[%i] stride %c32 valid [%c32, %c32] align 16 : !tile.ref<f32> -> tensor<32x32xf32>
    %g = tile.cumsum %a : tensor<32x32xf32>
    %t = arith.addf %s, %g : tensor<32x32xf32>
    scf.yield %t : tensor<32x32xf32>
  }
  tile.store %r, %out[%id] stride %c32 valid [%c32, %c32] align 16 : tensor<32x32xf32>, !tile.ref<f32>
  return
}
