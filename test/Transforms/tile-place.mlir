// Where values live, and how shared memory is shared out.
// RUN: kdac-opt %s --tile-place | FileCheck %s

#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16>
#step = #tile.schedule<target = "sm_90a", form = "step", chunk = 1, leaf = 1,
                       v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16>

// Loads of the loop and operands of products are in shared memory, rows 16 bytes
// apart from a multiple of 32; sums and products in registers; the rest is
// recomputed where it is consumed.
// CHECK-LABEL: func.func @homes(
// CHECK-SAME: kdac.block_threads = 128 : i64, kdac.shared_bytes = 5120 : i64
// CHECK: tile.splat %{{.*}} {tile.place = [#tile.place<inline>]}
// CHECK: tile.load {{.*}} {tile.place = [#tile.place<shared, pitch = 40>]}
// CHECK: arith.extf {{.*}} {tile.place = [#tile.place<inline>]}
// CHECK: arith.mulf {{.*}} {tile.place = [#tile.place<inline>]}
// CHECK: arith.truncf {{.*}} {tile.place = [#tile.place<shared, offset = 2560, pitch = 40>]}
// CHECK: tile.dot {{.*}} {tile.place = [#tile.place<registers>], trans_b}
func.func @homes(%a: !tile.ref<bf16>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f32
  %init = tile.splat %zero : f32 -> tensor<32x32xf32>
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %init) -> (tensor<32x32xf32>) {
    %x = tile.load %a[%i] stride %c32 valid [%c32, %c32] align 16 : !tile.ref<bf16> -> tensor<32x32xbf16>
    %y = arith.extf %x : tensor<32x32xbf16> to tensor<32x32xf32>
    %z = arith.mulf %y, %y : tensor<32x32xf32>
    %b = arith.truncf %z : tensor<32x32xf32> to tensor<32x32xbf16>
    %p = tile.dot %x, %b acc(%acc : tensor<32x32xf32>) {trans_b} : tensor<32x32xbf16>, tensor<32x32xbf16> -> tensor<32x32xf32>
    scf.yield %p : tensor<32x32xf32>
  }
  tile.store %sum, %out[%c0] stride %c32 valid [%c32, %c32] align 16 : tensor<32x32xf32>, !tile.ref<f32>
  return
}

// Two buffers that are never alive together share bytes; one that is alive with
// both has its own. A Gram product has scratch for each left side and its right one.
// CHECK-LABEL: func.func @reuse(
// CHECK: tile.load {{.*}} {tile.place = [#tile.place<shared, pitch = 36>]}
// CHECK: tile.cumsum {{.*}} {tile.place = [#tile.place<shared, offset = 4608, pitch = 36>]}
// CHECK: tile.decayed_gram {{.*}} {tile.place = [#tile.place<shared, offset = 9216, pitch = 36>, #tile.place<shared, offset = 13824, pitch = 40>, #tile.place<shared, offset = 16384, pitch = 40>]}
// CHECK: tile.unit_tril_inverse {{.*}} {tile.place = [#tile.place<shared, pitch = 36>]}
func.func @reuse(%a: !tile.ref<f32>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  scf.for %i = %c0 to %n step %c1 {
    %x = tile.load %a[%i] stride %c32 valid [%c32, %c32] align 16 : !tile.ref<f32> -> tensor<32x32xf32>
    %g = tile.cumsum %x : tensor<32x32xf32>
    %l = tile.decayed_gram lhs(%x : tensor<32x32xf32>) rhs(%x) decay(%g) leaf 16
        operand bf16 strict [true] : tensor<32x32xf32> -> tensor<32x32xf32>
    %inv = tile.unit_tril_inverse %l : tensor<32x32xf32>
    %twice = tile.unit_tril_inverse %inv : tensor<32x32xf32>
    %again = tile.unit_tril_inverse %twice : tensor<32x32xf32>
    tile.store %again, %out[%i] stride %c32 valid [%c32, %c32] align 16 : tensor<32x32xf32>, !tile.ref<f32>
  }
  return
}

#staged = #tile.schedule<target = "sm_90a", form = "step", chunk = 1, leaf = 1,
                         v_tile = 32, warps = 4, stages = 2, operand = bf16, gram = bf16>
#older = #tile.schedule<target = "sm_80", form = "step", chunk = 1, leaf = 1,
                        v_tile = 32, warps = 4, stages = 2, operand = bf16, gram = bf16>

// A staged state goes to memory in bulk, from where it was staged.
// CHECK-LABEL: func.func @in_bulk(
// CHECK-SAME: kdac.shared_bytes = 4096 : i64
// CHECK: tile.load {{.*}} {tile.place = [#tile.place<staged>]}
// CHECK: tile.store {{.*}} {tile.place = [#tile.place<staged>]}
// CHECK: tile.store {{.*}} {tile.place = [#tile.place<staged>]}
func.func @in_bulk(%h: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #staged, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %h0 = tile.load %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : !tile.ref<f32> -> tensor<32x32xf32>
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<32x32xf32>) {
    %next = arith.addf %s, %s : tensor<32x32xf32>
    tile.store %next, %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : tensor<32x32xf32>, !tile.ref<f32>
    scf.yield %next : tensor<32x32xf32>
  }
  tile.store %ht, %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : tensor<32x32xf32>, !tile.ref<f32>
  return
}

// Not where a GPU has no bulk copies, nor where every token's state is kept, or
// none.
// CHECK-LABEL: func.func @without_bulk_copies(
// CHECK-NOT: tile.store {{.*}} {tile.place
func.func @without_bulk_copies(%h: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #older, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %h0 = tile.load %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : !tile.ref<f32> -> tensor<32x32xf32>
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<32x32xf32>) {
    %next = arith.addf %s, %s : tensor<32x32xf32>
    tile.store %next, %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : tensor<32x32xf32>, !tile.ref<f32>
    scf.yield %next : tensor<32x32xf32>
  }
  tile.store %ht, %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : tensor<32x32xf32>, !tile.ref<f32>
  return
}

// CHECK-LABEL: func.func @every_state(
// CHECK-NOT: tile.store {{.*}} {tile.place
func.func @every_state(%h: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #staged, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %h0 = tile.load %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : !tile.ref<f32> -> tensor<32x32xf32>
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<32x32xf32>) {
    %next = arith.addf %s, %s : tensor<32x32xf32>
    tile.store %next, %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : tensor<32x32xf32>, !tile.ref<f32>
    tile.store %next, %h[%i] stride %c32 valid [%c32, %c32] transposed align 16 : tensor<32x32xf32>, !tile.ref<f32>
    scf.yield %next : tensor<32x32xf32>
  }
  tile.store %ht, %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : tensor<32x32xf32>, !tile.ref<f32>
  return
}

// CHECK-LABEL: func.func @replayed(
// CHECK-NOT: tile.store {{.*}} {tile.place
func.func @replayed(%h: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #staged, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %h0 = tile.load %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : !tile.ref<f32> -> tensor<32x32xf32>
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<32x32xf32>) {
    %next = arith.addf %s, %s : tensor<32x32xf32>
    scf.yield %next : tensor<32x32xf32>
  }
  tile.store %ht, %h[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : tensor<32x32xf32>, !tile.ref<f32>
  return
}

// In the step form the state and sums over it stay with their threads, and no
// shared memory is needed.
// CHECK-LABEL: func.func @step(
// CHECK-SAME: kdac.shared_bytes = 0 : i64
// CHECK: tile.reduce {{.*}} {tile.place = [#tile.place<registers>]}
// CHECK: arith.addf {{.*}} {tile.place = [#tile.place<registers>]}
func.func @step(%a: !tile.ref<f32>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #step, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %h0 = tile.load %a[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : !tile.ref<f32> -> tensor<32x32xf32>
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<32x32xf32>) {
    %o = tile.reduce %s along 0 : tensor<32x32xf32> -> tensor<32xf32>
    tile.store %o, %out[%i] stride %c1 valid [%c32] align 4 : tensor<32xf32>, !tile.ref<f32>
    %next = arith.addf %s, %s : tensor<32x32xf32>
    scf.yield %next : tensor<32x32xf32>
  }
  tile.store %ht, %out[%c0] stride %c32 valid [%c32, %c32] transposed align 16 : tensor<32x32xf32>, !tile.ref<f32>
  return
}
