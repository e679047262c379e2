// The host's calling convention, loops over instances, and vectors of the width
// asked for. What the code computes is tested by test/Unit and test/Numerics.
// RUN: kdac-opt %s --tile-to-host=vector-width=8 | FileCheck %s --check-prefixes=CHECK,W8
// RUN: kdac-opt %s --tile-to-host=vector-width=16 | FileCheck %s --check-prefixes=CHECK,W16

// CHECK-LABEL: llvm.func @add(
// CHECK-SAME: %[[ARGS:.*]]: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64, %[[SCRATCH:.*]]: !llvm.ptr {llvm.noalias})
// CHECK-SAME: kdac.scratch_bytes = {{[0-9]+}} : i64
// Argument 1 is behind the second pointer.
// CHECK: %[[SLOT:.*]] = llvm.getelementptr %[[ARGS]][1]
// CHECK: llvm.load %[[SLOT]] : !llvm.ptr -> !llvm.ptr
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
// W8: vector<8xf32>
// W8-NOT: vector<16xf32>
// W16: vector<16xf32>
func.func @add(%a: !tile.ref<f32>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel} {
  %pid = tile.program_id : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %base = arith.muli %pid, %c32 : index
  %x = tile.load %a[%base] stride %c1 valid [%n] align 4 : !tile.ref<f32> -> tensor<32xf32>
  %y = arith.addf %x, %x : tensor<32xf32>
  tile.store %y, %out[%base] stride %c1 valid [%n] align 4 : tensor<32xf32>, !tile.ref<f32>
  return
}
