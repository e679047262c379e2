// RUN: kdac-opt %s --tile-to-host --cse | FileCheck %s
// RUN: kdac-opt %s --tile-to-host=vector-width=8 | FileCheck %s --check-prefix=W8

// The entry: arguments through an array of pointers, a loop over instances.
// CHECK-LABEL: llvm.func @entry(
// CHECK-SAME: %[[ARGS:.*]]: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64, %{{.*}}: !llvm.ptr {llvm.noalias})
// CHECK-SAME: kdac.scratch_bytes = 64 : i64, kdac.v_tile = 32 : i64
// CHECK: %[[SLOT0:.*]] = llvm.getelementptr %[[ARGS]][0]
// CHECK: %[[P:.*]] = llvm.load %[[SLOT0]] : !llvm.ptr -> !llvm.ptr
// CHECK: %[[REF:.*]] = llvm.load %[[P]] : !llvm.ptr -> !llvm.ptr
// CHECK: %[[SLOT:.*]] = llvm.getelementptr %[[ARGS]][1]
// CHECK: %[[Q:.*]] = llvm.load %[[SLOT]]
// CHECK: %[[SIZE:.*]] = llvm.load %[[Q]] : !llvm.ptr -> i64
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> f32
// CHECK: scf.for %[[ID:.*]] = %[[BEGIN]] to %[[END]] step
// CHECK: arith.muli %[[ID]], %[[SIZE]] : i64
func.func @entry(%p: !tile.ref<f32>, %n: index, %s: f32) attributes {tile.kernel, kdac.v_tile = 32 : i64} {
  %one = arith.constant 1 : index
  %id = tile.program_id : index
  %at = arith.muli %id, %n : index
  %v = tile.load %p[%at] stride %one valid [%n] align 4 : !tile.ref<f32> -> tensor<16xf32>
  %f = tile.splat %s : f32 -> tensor<16xf32>
  %w = arith.mulf %v, %f : tensor<16xf32>
  tile.store %w, %p[%at] stride %one valid [%n] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
}

// A full vector is loaded plainly, a tail through a mask; bf16 widens by a
// shift; an inline value needs no scratch; an absent target stores nothing.
// CHECK-LABEL: llvm.func @load_store_masked
// CHECK-SAME: kdac.scratch_bytes = 0 : i64
// CHECK: %[[THERE:.*]] = llvm.icmp "ne"
// CHECK: scf.if %[[THERE]]
// CHECK: %[[FULL:.*]] = arith.cmpi sge
// CHECK: %[[RAW:.*]] = scf.if %[[FULL]] -> (vector<16xi16>)
// CHECK:   llvm.load %{{.*}} {alignment = 2 : i64} : !llvm.ptr -> vector<16xi16>
// CHECK: } else {
// CHECK:   %[[MASK:.*]] = arith.cmpi slt, {{.*}} : vector<16xi32>
// CHECK:   llvm.intr.masked.load %{{.*}}, %[[MASK]]
// CHECK: %[[WIDE:.*]] = arith.extui %[[RAW]] : vector<16xi16> to vector<16xi32>
// CHECK: %[[BITS:.*]] = arith.shli %[[WIDE]]
// CHECK: %[[F:.*]] = arith.bitcast %[[BITS]] : vector<16xi32> to vector<16xf32>
// CHECK: llvm.store %[[F]]
// CHECK: llvm.intr.masked.store %[[F]]
// W8-LABEL: llvm.func @load_store_masked
// W8: llvm.intr.masked.load {{.*}} -> vector<8xi16>
func.func @load_store_masked(%p: !tile.ref<bf16>, %o: !tile.ref<f32>, %r: index, %c: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %x = tile.load %p[%z] stride %c valid [%r, %c] align 16 : !tile.ref<bf16> -> tensor<4x16xbf16>
  %y = arith.extf %x : tensor<4x16xbf16> to tensor<4x16xf32>
  tile.store %y, %o[%z] stride %c valid [%r, %c] align 16 : tensor<4x16xf32>, !tile.ref<f32>
  return
}

// A transposed load goes through a square of registers: log2(4) rounds of
// shuffles between two loads and two stores of buffers.
// CHECK-LABEL: llvm.func @load_transposed
// CHECK-COUNT-4: scf.if %{{.*}} -> (vector<4xf32>)
// CHECK: vector.shuffle %{{.*}}, %{{.*}} [0, 4, 2, 6]
// CHECK: vector.shuffle %{{.*}}, %{{.*}} [1, 5, 3, 7]
// CHECK: vector.shuffle %{{.*}}, %{{.*}} [0, 1, 4, 5]
// CHECK: vector.shuffle %{{.*}}, %{{.*}} [2, 3, 6, 7]
func.func @load_transposed(%p: !tile.ref<f32>, %o: !tile.ref<f32>, %s: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %n = arith.constant 4 : index
  %x = tile.load %p[%z] stride %s valid [%n, %n] transposed align 16 : !tile.ref<f32> -> tensor<4x4xf32>
  tile.store %x, %o[%z] stride %n valid [%n, %n] align 16 : tensor<4x4xf32>, !tile.ref<f32>
  return
}

// Rounding to bf16 is to nearest even in integer arithmetic.
// CHECK-LABEL: llvm.func @round_bf16
// CHECK: %[[HIGH:.*]] = arith.shrui %[[X:.*]], %{{.*}} : vector<16xi32>
// CHECK: %[[ODD:.*]] = arith.andi %[[HIGH]], %{{.*}}
// CHECK: %[[C:.*]] = arith.constant 32767 : i32
// CHECK: %[[HALF:.*]] = vector.broadcast %[[C]] : i32 to vector<16xi32>
// CHECK: %[[SUM:.*]] = arith.addi %[[X]], %[[HALF]]
// CHECK: arith.addi %[[SUM]], %[[ODD]]
func.func @round_bf16(%p: !tile.ref<f32>, %o: !tile.ref<bf16>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 16 : index
  %x = tile.load %p[%z] stride %one valid [%n] align 4 : !tile.ref<f32> -> tensor<16xf32>
  %y = arith.truncf %x : tensor<16xf32> to tensor<16xbf16>
  tile.store %y, %o[%z] stride %one valid [%n] align 2 : tensor<16xbf16>, !tile.ref<bf16>
  return
}

// exp2 calls no library: a polynomial and two scales.
// CHECK-LABEL: llvm.func @exp2
// CHECK-NOT: math.exp2
// CHECK-COUNT-6: math.fma {{.*}} : vector<16xf32>
// CHECK: arith.shli
// CHECK: arith.mulf {{.*}} : vector<16xf32>
// CHECK: arith.mulf {{.*}} : vector<16xf32>
func.func @exp2(%p: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 16 : index
  %x = tile.load %p[%z] stride %one valid [%n] align 4 : !tile.ref<f32> -> tensor<16xf32>
  %y = math.exp2 %x : tensor<16xf32>
  tile.store %y, %p[%z] stride %one valid [%n] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
}

// A product keeps 8 x 2 accumulators of 16 lanes in registers; 128 columns are
// 4 panels, 64 rows 8 blocks.
// CHECK-LABEL: llvm.func @dot
// CHECK: scf.for %{{.*}} = %c0_i64{{.*}} to %c128_i64{{.*}} step %c32_i64
// CHECK: scf.for %{{.*}} = %c0_i64{{.*}} to %c64_i64{{.*}} step %c8_i64
// CHECK: %{{.*}}:16 = scf.for
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> f32
// CHECK-COUNT-32: vector.fma {{.*}} : vector<16xf32>
// CHECK-NOT: vector.fma
// CHECK: scf.yield
// W8-LABEL: llvm.func @dot
// W8: %{{.*}}:8 = scf.for
func.func @dot(%pa: !tile.ref<f32>, %pb: !tile.ref<f32>, %pc: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %m = arith.constant 64 : index
  %n = arith.constant 128 : index
  %a = tile.load %pa[%z] stride %n valid [%m, %n] align 16 : !tile.ref<f32> -> tensor<64x128xf32>
  %b = tile.load %pb[%z] stride %n valid [%n, %n] align 16 : !tile.ref<f32> -> tensor<128x128xf32>
  %c = tile.dot %a, %b : tensor<64x128xf32>, tensor<128x128xf32> -> tensor<64x128xf32>
  tile.store %c, %pc[%z] stride %n valid [%m, %n] align 16 : tensor<64x128xf32>, !tile.ref<f32>
  return
}

// A product with a lower triangular left side stops at the diagonal.
// CHECK-LABEL: llvm.func @dot_lower
// CHECK: %{{.*}}:8 = scf.for %{{.*}} = %c0_i64{{.*}} to %{{[0-9]+}} step %c2_i64
func.func @dot_lower(%pa: !tile.ref<f32>, %pc: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %n = arith.constant 16 : index
  %a = tile.load %pa[%z] stride %n valid [%n, %n] align 16 : !tile.ref<f32> -> tensor<16x16xf32>
  %x = tile.unit_tril_inverse %a : tensor<16x16xf32>
  %c = tile.dot %x, %a : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
  tile.store %c, %pc[%z] stride %n valid [%n, %n] align 16 : tensor<16x16xf32>, !tile.ref<f32>
  return
}

// So does one with a masked left side; the strict upper part has no bound.
// CHECK-LABEL: llvm.func @dot_masked
// CHECK: %{{.*}}:8 = scf.for %{{.*}} = %c0_i64{{.*}} to %{{[0-9]+}} step %c2_i64
// CHECK: %{{.*}}:8 = scf.for %{{.*}} = %c0_i64{{.*}} to %c16_i64{{.*}} step %c2_i64
func.func @dot_masked(%pa: !tile.ref<f32>, %pc: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %n = arith.constant 16 : index
  %a = tile.load %pa[%z] stride %n valid [%n, %n] align 16 : !tile.ref<f32> -> tensor<16x16xf32>
  %row = tile.iota 0 : tensor<16x16xindex>
  %col = tile.iota 1 : tensor<16x16xindex>
  %zero = arith.constant dense<0.0> : tensor<16x16xf32>
  %below = arith.cmpi sle, %col, %row : tensor<16x16xindex>
  %above = arith.cmpi sgt, %col, %row : tensor<16x16xindex>
  %l = arith.select %below, %a, %zero : tensor<16x16xi1>, tensor<16x16xf32>
  %u = arith.select %above, %a, %zero : tensor<16x16xi1>, tensor<16x16xf32>
  %x = tile.dot %l, %a : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
  %y = tile.dot %u, %x : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
  tile.store %y, %pc[%z] stride %n valid [%n, %n] align 16 : tensor<16x16xf32>, !tile.ref<f32>
  return
}

// Level 8 and the leaves of 8 rows: 8 x 8 blocks, with zeros above the diagonal
// of a leaf.
// CHECK-LABEL: llvm.func @gram
// CHECK: %{{.*}}:8 = scf.for {{.*}} -> (vector<8xf32>
// CHECK: %{{.*}}:8 = scf.for {{.*}} -> (vector<8xf32>
// CHECK: %[[BELOW:.*]] = arith.cmpi slt, {{.*}} : vector<8xi32>
// CHECK: arith.select %[[BELOW]], {{.*}} : vector<8xi1>, vector<8xf32>
func.func @gram(%p: !tile.ref<f32>, %o: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %n = arith.constant 16 : index
  %x = tile.load %p[%z] stride %n valid [%n, %n] align 16 : !tile.ref<f32> -> tensor<16x16xf32>
  %g = tile.decayed_gram lhs(%x : tensor<16x16xf32>) rhs(%x) decay(%x) leaf 8 operand f32 strict [false] : tensor<16x16xf32> -> tensor<16x16xf32>
  tile.store %g, %o[%z] stride %n valid [%n, %n] align 16 : tensor<16x16xf32>, !tile.ref<f32>
  return
}

// Rows are added in order; one's elements by lanes, then across lanes in halves.
// CHECK-LABEL: llvm.func @sums
// CHECK: scf.for {{.*}} iter_args(%[[SUM:.*]] = %{{.*}}) -> (vector<16xf32>)
// CHECK: %[[NEXT:.*]] = arith.addf %[[SUM]]
// CHECK: llvm.store %[[NEXT]]
// CHECK: vector.shuffle %{{.*}}, %{{.*}} [8, 9, 10, 11, 12, 13, 14, 15]
// CHECK: vector.shuffle %{{.*}}, %{{.*}} [4, 5, 6, 7]
func.func @sums(%p: !tile.ref<f32>, %o: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 16 : index
  %x = tile.load %p[%z] stride %n valid [%n, %n] align 16 : !tile.ref<f32> -> tensor<16x16xf32>
  %c = tile.cumsum %x : tensor<16x16xf32>
  %s = tile.reduce %c along 1 : tensor<16x16xf32> -> tensor<16xf32>
  tile.store %s, %o[%z] stride %one valid [%n] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
}

// A long row is summed by blocks of 32 terms a lane of four vectors.
// CHECK-LABEL: llvm.func @long_sum
// CHECK: %[[FIRST:.*]]:4 = scf.for %{{.*}} = %{{.*}} to %c2048{{.*}} step %c64
// CHECK: %[[ALL:.*]]:4 = scf.for %[[AT:.*]] = %{{.*}} to %c4096{{.*}} step %{{.*}} iter_args(%[[TOTAL:.*]] = %[[FIRST]]#0
// CHECK: %[[END:.*]] = arith.minsi
// CHECK: %[[BLOCK:.*]]:4 = scf.for %{{.*}} = %[[AT]] to %[[END]]
// CHECK: arith.addf %[[TOTAL]], %[[BLOCK]]#0
// CHECK: arith.addf %[[ALL]]#0, %[[ALL]]#2
// CHECK: vector.shuffle %{{.*}}, %{{.*}} [8, 9, 10, 11, 12, 13, 14, 15]
func.func @long_sum(%p: !tile.ref<f32>, %o: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 4096 : index
  %x = tile.load %p[%z] stride %one valid [%n] align 16 : !tile.ref<f32> -> tensor<4096xf32>
  %s = tile.reduce %x along 0 : tensor<4096xf32> -> f32
  %t = tile.splat %s : f32 -> tensor<16xf32>
  tile.store %t, %o[%z] stride %one valid [%one] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
}

// A carried tile is one buffer, updated in place: 4 rows of 16 f32, no copy.
// CHECK-LABEL: llvm.func @carried_in_place
// CHECK-SAME: kdac.scratch_bytes = 256 : i64
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{[^ ]*}} : i64 {
// CHECK: arith.mulf {{.*}} fastmath<contract> : vector<16xf32>
func.func @carried_in_place(%p: !tile.ref<f32>, %t: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %m = arith.constant 4 : index
  %n = arith.constant 16 : index
  %half = arith.constant dense<0.5> : tensor<4x16xf32>
  %x = tile.load %p[%z] stride %n valid [%m, %n] align 16 : !tile.ref<f32> -> tensor<4x16xf32>
  %y = scf.for %i = %z to %t step %one iter_args(%s = %x) -> tensor<4x16xf32> {
    %next = arith.mulf %s, %half : tensor<4x16xf32>
    scf.yield %next : tensor<4x16xf32>
  }
  tile.store %y, %p[%z] stride %n valid [%m, %n] align 16 : tensor<4x16xf32>, !tile.ref<f32>
  return
}

// The old state is read after the new one exists: two buffers and a copy.
// CHECK-LABEL: llvm.func @carried_with_copy
// CHECK-SAME: kdac.scratch_bytes = 512 : i64
func.func @carried_with_copy(%p: !tile.ref<f32>, %t: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %m = arith.constant 4 : index
  %n = arith.constant 16 : index
  %half = arith.constant dense<0.5> : tensor<4x16xf32>
  %x = tile.load %p[%z] stride %n valid [%m, %n] align 16 : !tile.ref<f32> -> tensor<4x16xf32>
  %y = scf.for %i = %z to %t step %one iter_args(%s = %x) -> tensor<4x16xf32> {
    %next = arith.mulf %s, %half : tensor<4x16xf32>
    tile.store %s, %p[%z] stride %n valid [%m, %n] align 16 : tensor<4x16xf32>, !tile.ref<f32>
    scf.yield %next : tensor<4x16xf32>
  }
  tile.store %y, %p[%z] stride %n valid [%m, %n] align 16 : tensor<4x16xf32>, !tile.ref<f32>
  return
}

// A load read after a store to what may be the same memory keeps its values.
// CHECK-LABEL: llvm.func @load_before_store
// CHECK-SAME: kdac.scratch_bytes = 256 : i64
func.func @load_before_store(%p: !tile.ref<f32>, %q: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %m = arith.constant 4 : index
  %n = arith.constant 16 : index
  %zero = arith.constant dense<0.0> : tensor<4x16xf32>
  %x = tile.load %p[%z] stride %n valid [%m, %n] align 16 : !tile.ref<f32> -> tensor<4x16xf32>
  tile.store %zero, %q[%z] stride %n valid [%m, %n] align 16 : tensor<4x16xf32>, !tile.ref<f32>
  tile.store %x, %p[%z] stride %n valid [%m, %n] align 16 : tensor<4x16xf32>, !tile.ref<f32>
  return
}

// Scalars: an absent argument gives the default.
// CHECK-LABEL: llvm.func @scalars
// CHECK: %[[THERE:.*]] = llvm.icmp "ne"
// CHECK: %[[N:.*]] = scf.if %[[THERE]] -> (i64)
// CHECK:   %[[RAW:.*]] = llvm.load %{{.*}} : !llvm.ptr -> i32
// CHECK:   %[[EXT:.*]] = arith.extsi %[[RAW]] : i32 to i64
// CHECK:   scf.yield %[[EXT]]
// CHECK: } else {
// CHECK:   scf.yield %{{.*}} : i64
// CHECK: arith.select %[[THERE]], %[[N]], %{{.*}} : i64
func.func @scalars(%offsets: !tile.ref<i32>, %p: !tile.ref<f32>, %t: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = tile.load_scalar %offsets[%one] else %t : !tile.ref<i32> -> index
  %there = tile.present %offsets : !tile.ref<i32>
  %m = arith.select %there, %n, %one : index
  %zero = arith.constant dense<0.0> : tensor<16xf32>
  tile.store %zero, %p[%z] stride %one valid [%m] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
}

// Loads of a loop ask for the next iteration's lines: 16 rows of %s further on.
// CHECK-LABEL: llvm.func @loop_loads_ahead
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %[[STEP:c16_i64]] : i64 {
// CHECK: %[[BASE:.*]] = arith.muli %[[I]], %[[LINE:.*]] : i64
// CHECK: %[[NEXT:.*]] = arith.addi %[[I]], %[[STEP]] : i64
// CHECK: %[[NEXTBASE:.*]] = arith.muli %[[NEXT]], %[[LINE]] : i64
// CHECK: %[[AHEAD:.*]] = arith.subi %[[NEXTBASE]], %[[BASE]] : i64
// CHECK: %[[AT:.*]] = arith.addi %{{.*}}, %[[AHEAD]] : i64
// CHECK: %[[ADDRESS:.*]] = llvm.getelementptr %{{.*}}[%[[AT]]]
// CHECK: "llvm.intr.prefetch"(%[[ADDRESS]]) <{cache = 1 : i32, hint = 3 : i32, rw = 0 : i32}>
func.func @loop_loads_ahead(%p: !tile.ref<f32>, %o: !tile.ref<f32>, %t: index, %s: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %n = arith.constant 16 : index
  scf.for %i = %z to %t step %n {
    %at = arith.muli %i, %s : index
    %x = tile.load %p[%at] stride %s valid [%n, %n] align 16 : !tile.ref<f32> -> tensor<16x16xf32>
    tile.store %x, %o[%at] stride %s valid [%n, %n] align 16 : tensor<16x16xf32>, !tile.ref<f32>
  }
  return
}

// What the next iteration loads from is unknown: nothing is asked for.
// CHECK-LABEL: llvm.func @loop_loads_anywhere
// CHECK-NOT: prefetch
// CHECK: llvm.return
func.func @loop_loads_anywhere(%p: !tile.ref<f32>, %o: !tile.ref<f32>, %slots: !tile.ref<i32>, %t: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 16 : index
  scf.for %i = %z to %t step %one {
    %at = tile.load_scalar %slots[%i] else %z : !tile.ref<i32> -> index
    %x = tile.load %p[%at] stride %n valid [%n, %n] align 16 : !tile.ref<f32> -> tensor<16x16xf32>
    tile.store %x, %o[%z] stride %n valid [%n, %n] align 16 : tensor<16x16xf32>, !tile.ref<f32>
  }
  return
}

// A view is an address: 2048 bytes into the workspace.
// CHECK-LABEL: llvm.func @view
// CHECK: %[[BYTES:.*]] = arith.constant 2048 : i64
// CHECK: %[[VIEW:.*]] = llvm.getelementptr %{{.*}}[%[[BYTES]]] : (!llvm.ptr, i64) -> !llvm.ptr, i8
// CHECK: llvm.getelementptr %[[VIEW]][%{{.*}}] : (!llvm.ptr, i64) -> !llvm.ptr, f32
func.func @view(%workspace: !tile.ref<i8>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 16 : index
  %zero = arith.constant dense<0.0> : tensor<16xf32>
  %part = tile.view %workspace[2048] : !tile.ref<i8> -> !tile.ref<f32>
  tile.store %zero, %part[%z] stride %one valid [%n] align 16 : tensor<16xf32>, !tile.ref<f32>
  return
}

// What depends on the sizes of the call comes first.
// CHECK-LABEL: llvm.func @view_after
// CHECK: %[[SUM:.*]] = arith.addi %{{.*}}, %{{.*}} : i64
// CHECK: llvm.getelementptr %{{.*}}[%[[SUM]]] : (!llvm.ptr, i64) -> !llvm.ptr, i8
func.func @view_after(%workspace: !tile.ref<i8>, %bytes: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 16 : index
  %zero = arith.constant dense<0.0> : tensor<16xf32>
  %part = tile.view %workspace[2048] after %bytes : !tile.ref<i8> -> !tile.ref<f32>
  tile.store %zero, %part[%z] stride %one valid [%n] align 16 : tensor<16xf32>, !tile.ref<f32>
  return
}
