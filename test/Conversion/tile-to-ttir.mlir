// What each tile op becomes in Triton IR, after the clean-up that the pipeline
// runs. test/Numerics/TritonTest.cpp runs whole kernels, test/Triton compiles them.
// RUN: kdac-opt %s --split-input-file --pass-pipeline='builtin.module(tile-to-ttir,canonicalize,cse)' | FileCheck %s

// The example of Passes.td.
// CHECK-LABEL: tt.func public @scale(
// CHECK-SAME: %[[X:.*]]: !tt.ptr<f32> {tt.divisibility = 16 : i32}) attributes {noinline = false} {
// CHECK-DAG: %[[NULL:.*]] = arith.constant 0 : i64
// CHECK-DAG: %[[ZEROS:.*]] = arith.constant dense<0.000000e+00> : tensor<64xf32>
// CHECK-DAG: %[[TWO:.*]] = arith.constant dense<2.000000e+00> : tensor<64xf32>
// CHECK: %[[ADDRESS:.*]] = tt.ptr_to_int %[[X]] : !tt.ptr<f32> -> i64
// CHECK: %[[PRESENT:.*]] = arith.cmpi ne, %[[ADDRESS]], %[[NULL]] : i64
// CHECK: %[[LINE:.*]] = tt.addptr %[[X]], %[[NULL]] {tt.divisibility = dense<16> : tensor<1xi32>} : !tt.ptr<f32>, i64
// CHECK: %[[RANGE:.*]] = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
// CHECK: %[[SPLAT:.*]] = tt.splat %[[LINE]] : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
// CHECK: %[[POINTERS:.*]] = tt.addptr %[[SPLAT]], %[[RANGE]] : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
// CHECK: %[[MASK:.*]] = tt.splat %[[PRESENT]] : i1 -> tensor<64xi1>
// CHECK: %[[V:.*]] = tt.load %[[POINTERS]], %[[MASK]], %[[ZEROS]] : tensor<64x!tt.ptr<f32>>
// CHECK: %[[W:.*]] = arith.mulf %[[V]], %[[TWO]] : tensor<64xf32>
// CHECK: tt.store %{{.*}}, %[[W]], %[[MASK]] : tensor<64x!tt.ptr<f32>>
// CHECK: tt.return
func.func @scale(%x: !tile.ref<f32>) attributes {tile.kernel} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 64 : index
  %two = arith.constant dense<2.0> : tensor<64xf32>
  %0 = tile.load %x[%zero] stride %one valid [%n] align 16
      : !tile.ref<f32> -> tensor<64xf32>
  %1 = arith.mulf %0, %two : tensor<64xf32>
  tile.store %1, %x[%zero] stride %one valid [%n] align 16
      : tensor<64xf32>, !tile.ref<f32>
  return
}

// -----

// A tail: valid rows are clamped to the tile, then compared in 32 bits; offsets
// of lines are 64-bit. All columns exist: no mask for them.
// CHECK-LABEL: tt.func public @tail
// CHECK-SAME: (%[[X:.*]]: !tt.ptr<bf16> {{.*}}, %[[BASE:.*]]: i64, %[[STRIDE:.*]]: i64, %[[ROWS:.*]]: i64)
// CHECK: %[[ROW:.*]] = tt.expand_dims %{{.*}} {axis = 1 : i32} : tensor<32xi32> -> tensor<32x1xi32>
// CHECK: %[[WIDE:.*]] = arith.extsi %[[ROW]] : tensor<32x1xi32> to tensor<32x1xi64>
// CHECK: %[[STRIDES:.*]] = tt.splat %[[STRIDE]] : i64 -> tensor<32x1xi64>
// CHECK: %[[OFFSET:.*]] = arith.muli %[[WIDE]], %[[STRIDES]] : tensor<32x1xi64>
// CHECK: tt.addptr %{{.*}}, %[[OFFSET]] {tt.divisibility = dense<16> : tensor<2xi32>} : tensor<32x1x!tt.ptr<bf16>>, tensor<32x1xi64>
// CHECK: %[[POINTERS:.*]] = tt.addptr %{{.*}}, %{{.*}} : tensor<32x64x!tt.ptr<bf16>>, tensor<32x64xi32>
// CHECK: %[[MIN:.*]] = arith.minsi %[[ROWS]], %c32_i64 : i64
// CHECK: %[[MAX:.*]] = arith.maxsi %[[MIN]], %c0_i64 : i64
// CHECK: %[[LIMIT:.*]] = arith.trunci %[[MAX]] : i64 to i32
// CHECK: %[[LIMITS:.*]] = tt.splat %[[LIMIT]] : i32 -> tensor<32x1xi32>
// CHECK: %[[VALID:.*]] = arith.cmpi slt, %[[ROW]], %[[LIMITS]] : tensor<32x1xi32>
// CHECK: %[[ALL:.*]] = tt.broadcast %[[VALID]] : tensor<32x1xi1> -> tensor<32x64xi1>
// CHECK: %[[MASK:.*]] = arith.andi %{{.*}}, %[[ALL]] : tensor<32x64xi1>
// CHECK-NOT: arith.cmpi
// CHECK: tt.load %[[POINTERS]], %[[MASK]], %{{.*}} : tensor<32x64x!tt.ptr<bf16>>
func.func @tail(%x: !tile.ref<bf16>, %base: index, %stride: index, %rows: index) attributes {tile.kernel} {
  %n = arith.constant 64 : index
  %0 = tile.load %x[%base] stride %stride valid [%rows, %n] align 16
      : !tile.ref<bf16> -> tensor<32x64xbf16>
  tile.store %0, %x[%base] stride %stride valid [%rows, %n] align 16
      : tensor<32x64xbf16>, !tile.ref<bf16>
  return
}

// -----

// Transposed: lines are columns.
// CHECK-LABEL: tt.func public @transposed
// CHECK: tt.addptr %{{.*}}, %{{.*}} {tt.divisibility = dense<8> : tensor<2xi32>} : tensor<1x32x!tt.ptr<f32>>, tensor<1x32xi64>
// CHECK: tt.broadcast %{{.*}} : tensor<64x1xi32> -> tensor<64x32xi32>
// CHECK: tt.broadcast %{{.*}} : tensor<1x32x!tt.ptr<f32>> -> tensor<64x32x!tt.ptr<f32>>
func.func @transposed(%x: !tile.ref<f32>, %base: index, %stride: index) attributes {tile.kernel} {
  %m = arith.constant 64 : index
  %n = arith.constant 32 : index
  %0 = tile.load %x[%base] stride %stride valid [%m, %n] transposed align 8
      : !tile.ref<f32> -> tensor<64x32xf32>
  tile.store %0, %x[%base] stride %stride valid [%m, %n] transposed align 8
      : tensor<64x32xf32>, !tile.ref<f32>
  return
}

// -----

// 96 columns become 128, of which a load gives zeros beyond 96 and a sum takes
// 96, whatever is in the others.
// CHECK-LABEL: tt.func public @padded
// CHECK-DAG: %[[C96:.*]] = arith.constant dense<96> : tensor<1x128xi32>
// CHECK-DAG: %[[COLUMN:.*]] = tt.expand_dims %{{.*}} {axis = 0 : i32} : tensor<128xi32> -> tensor<1x128xi32>
// CHECK: tt.load {{.*}} : tensor<16x128x!tt.ptr<f32>>
// CHECK: %[[Y:.*]] = arith.addf
// CHECK: %[[EXISTS:.*]] = arith.cmpi slt, %[[COLUMN]], %[[C96]] : tensor<1x128xi32>
// CHECK: %[[ALL:.*]] = tt.broadcast %[[EXISTS]] : tensor<1x128xi1> -> tensor<16x128xi1>
// CHECK: %[[KEPT:.*]] = arith.select %[[ALL]], %[[Y]], %{{.*}} : tensor<16x128xi1>, tensor<16x128xf32>
// CHECK: "tt.reduce"(%[[KEPT]]) <{axis = 1 : i32}>
// CHECK: (tensor<16x128xf32>) -> tensor<16xf32>
func.func @padded(%x: !tile.ref<f32>, %y: !tile.ref<f32>) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = arith.constant 16 : index
  %n = arith.constant 96 : index
  %one = arith.constant dense<1.0> : tensor<16x96xf32>
  %0 = tile.load %x[%c0] stride %n valid [%m, %n] align 16
      : !tile.ref<f32> -> tensor<16x96xf32>
  %1 = arith.addf %0, %one : tensor<16x96xf32>
  %2 = tile.reduce %1 along 1 : tensor<16x96xf32> -> tensor<16xf32>
  tile.store %2, %y[%c0] stride %c1 valid [%m] align 16
      : tensor<16xf32>, !tile.ref<f32>
  return
}

// -----

// Absent arguments, conditions on arguments, and a choice between two.
// CHECK-LABEL: tt.func public @refs
// CHECK-SAME: (%[[X:.*]]: !tt.ptr<i32>, %[[Y:.*]]: !tt.ptr<i32>, %[[C:.*]]: i1, %[[N:.*]]: i64, %[[OUT:.*]]: !tt.ptr<f32>
// CHECK: %[[XI:.*]] = tt.ptr_to_int %[[X]]
// CHECK: %[[HASX:.*]] = arith.cmpi ne, %[[XI]]
// CHECK: %[[YI:.*]] = tt.ptr_to_int %[[Y]]
// CHECK: %[[HASY:.*]] = arith.cmpi ne, %[[YI]]
// CHECK: %[[LIVE:.*]] = arith.andi %[[HASX]], %[[C]] : i1
// CHECK: %[[P:.*]] = arith.select %[[C]], %[[X]], %[[Y]] : !tt.ptr<i32>
// CHECK: %[[HAS:.*]] = arith.select %[[C]], %[[LIVE]], %[[HASY]] : i1
// CHECK: %[[AT:.*]] = tt.addptr %[[P]], %[[N]] : !tt.ptr<i32>, i64
// CHECK: %[[V:.*]] = tt.load %[[AT]], %[[HAS]], %{{.*}} : !tt.ptr<i32>
// CHECK: %[[W:.*]] = arith.extsi %[[V]] : i32 to i64
// CHECK: arith.select %[[HAS]], %[[W]], %[[N]] : i64
func.func @refs(%x: !tile.ref<i32>, %y: !tile.ref<i32>, %c: i1, %n: index, %out: !tile.ref<f32>) attributes {tile.kernel} {
  %guarded = tile.guard %x if %c : !tile.ref<i32>
  %ref = tile.choose %guarded if %c else %y : !tile.ref<i32>
  %0 = tile.load_scalar %ref[%n] else %n : !tile.ref<i32> -> index
  %one = arith.constant 1 : index
  %two = arith.constant dense<2.0> : tensor<16xf32>
  tile.store %two, %out[%0] stride %one valid [%0] align 4
      : tensor<16xf32>, !tile.ref<f32>
  return
}

// -----

// A store to what was loaded before waits for all threads.
// CHECK-LABEL: tt.func public @in_place
// CHECK: tt.load
// CHECK-NEXT: gpu.barrier
// CHECK: tt.store
// CHECK-NOT: gpu.barrier
func.func @in_place(%x: !tile.ref<f32>, %y: !tile.ref<f32>) attributes {tile.kernel} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 64 : index
  %0 = tile.load %x[%one] stride %one valid [%n] align 4 : !tile.ref<f32> -> tensor<64xf32>
  tile.store %0, %x[%zero] stride %one valid [%n] align 4 : tensor<64xf32>, !tile.ref<f32>
  tile.store %0, %y[%zero] stride %one valid [%n] align 4 : tensor<64xf32>, !tile.ref<f32>
  return
}

// -----

// The operand type of a product: 16 bits as they are, tf32 rounded here.
// CHECK-LABEL: tt.func public @products
// CHECK-DAG: %[[T:.*]] = tt.trans %{{.*}} {order = array<i32: 1, 0>} : tensor<16x32xbf16> -> tensor<32x16xbf16>
// CHECK: %[[P:.*]] = tt.dot %{{.*}}, %[[T]], %{{.*}} : tensor<16x32xbf16> * tensor<32x16xbf16> -> tensor<16x16xf32>
// CHECK: %[[BITS:.*]] = tt.bitcast %[[P]] : tensor<16x16xf32> -> tensor<16x16xi32>
// CHECK: %[[SHIFTED:.*]] = arith.shrui %[[BITS]], %{{.*}}
// CHECK: %[[LAST:.*]] = arith.andi %[[SHIFTED]], %{{.*}}
// CHECK: arith.andi %{{.*}} : tensor<16x16xi32>
// CHECK: %[[R:.*]] = tt.bitcast %{{.*}} : tensor<16x16xi32> -> tensor<16x16xf32>
// CHECK: %[[NAN:.*]] = arith.cmpf uno, %[[P]], %[[P]]
// CHECK: %[[TF32:.*]] = arith.select %[[NAN]], %[[P]], %[[R]]
// CHECK: %[[Q:.*]] = tt.dot %[[TF32]], %[[TF32]], %[[P]], inputPrecision = tf32 : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
// CHECK: tt.dot %[[Q]], %[[Q]], %{{.*}}, inputPrecision = ieee
func.func @products(%x: !tile.ref<bf16>, %y: !tile.ref<f32>) attributes {tile.kernel} {
  %zero = arith.constant 0 : index
  %m = arith.constant 16 : index
  %k = arith.constant 32 : index
  %0 = tile.load %x[%zero] stride %k valid [%m, %k] align 16 : !tile.ref<bf16> -> tensor<16x32xbf16>
  %1 = tile.dot %0, %0 {trans_b} : tensor<16x32xbf16>, tensor<16x32xbf16> -> tensor<16x16xf32>
  %2 = arith.truncf %1 : tensor<16x16xf32> to tensor<16x16xtf32>
  %3 = tile.dot %2, %2 acc(%1 : tensor<16x16xf32>) : tensor<16x16xtf32>, tensor<16x16xtf32> -> tensor<16x16xf32>
  %4 = tile.dot %3, %3 : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
  tile.store %4, %y[%zero] stride %m valid [%m, %m] align 16 : tensor<16x16xf32>, !tile.ref<f32>
  return
}

// -----

// 32 rows, leaves of 8: one product anchored at row 15, one at rows 7 and 23,
// one of the leaves, anchored at their first rows.
// CHECK-LABEL: tt.func public @gram
// CHECK: %[[G:.*]] = tt.load
// CHECK-NOT: tt.reshape
// CHECK: "tt.reduce"(%{{.*}}) <{axis = 0 : i32}>
// CHECK: math.exp2
// CHECK: arith.truncf %{{.*}} : tensor<32x16xf32> to tensor<32x16xf16>
// CHECK: %[[P0:.*]] = tt.dot
// CHECK: tt.reshape %[[G]] : tensor<32x16xf32> -> tensor<2x16x16xf32>
// CHECK: "tt.reduce"(%{{.*}}) <{axis = 1 : i32}>
// CHECK: tt.reshape %{{.*}} : tensor<2x16x16xf32> -> tensor<32x16xf32>
// CHECK: %[[P1:.*]] = tt.dot
// CHECK: %[[S1:.*]] = arith.select %{{.*}}, %[[P1]], %{{.*}}
// CHECK: %[[A1:.*]] = arith.addf %[[P0]], %[[S1]]
// CHECK: tt.reshape %[[G]] : tensor<32x16xf32> -> tensor<4x8x16xf32>
// CHECK: %[[P2:.*]] = tt.dot
// CHECK: %[[S2:.*]] = arith.select %{{.*}}, %[[P2]], %{{.*}}
// CHECK: %[[A2:.*]] = arith.addf %[[A1]], %[[S2]]
// CHECK: arith.select %{{.*}}, %[[A2]], %{{.*}} : tensor<32x32xi1>, tensor<32x32xf32>
// CHECK-NOT: tt.dot
func.func @gram(%x: !tile.ref<f32>, %y: !tile.ref<f32>) attributes {tile.kernel} {
  %zero = arith.constant 0 : index
  %m = arith.constant 32 : index
  %n = arith.constant 16 : index
  %0 = tile.load %x[%zero] stride %n valid [%m, %n] align 16 : !tile.ref<f32> -> tensor<32x16xf32>
  %1 = tile.decayed_gram lhs(%0 : tensor<32x16xf32>) rhs(%0) decay(%0) leaf 8 operand f16 strict [true]
      : tensor<32x16xf32> -> tensor<32x32xf32>
  tile.store %1, %y[%zero] stride %m valid [%m, %m] align 16 : tensor<32x32xf32>, !tile.ref<f32>
  return
}

// -----

// Forward substitution in both blocks of 16 rows, one column after the other,
// then the block below them.
// CHECK-LABEL: tt.func public @inverse
// CHECK: %[[L:.*]] = arith.select %{{.*}} : tensor<32x32xi1>, tensor<32x32xf32>
// CHECK: %[[DIFFER:.*]] = arith.xori
// CHECK: %[[SAME:.*]] = arith.cmpi slt, %[[DIFFER]], %{{.*}} : tensor<32x32xi32>
// CHECK: %[[BLOCKS:.*]] = arith.select %[[SAME]], %[[L]], %{{.*}}
// CHECK: %[[I:.*]] = arith.select
// CHECK: %[[INV:.*]] = scf.for %[[J:.*]] = %c0_i32 to %c15_i32 step %c1_i32 iter_args(%[[X:.*]] = %[[I]]) -> (tensor<32x32xf32>) : i32 {
// CHECK: %[[COLUMN:.*]] = arith.select %{{.*}}, %[[BLOCKS]], %{{.*}}
// CHECK: "tt.reduce"(%[[COLUMN]]) <{axis = 1 : i32}>
// CHECK: %[[ROW:.*]] = arith.select %{{.*}}, %[[X]], %{{.*}}
// CHECK: "tt.reduce"(%[[ROW]]) <{axis = 0 : i32}>
// CHECK: %[[P:.*]] = arith.mulf
// CHECK: %[[KEPT:.*]] = arith.select %[[SAME]], %[[P]], %{{.*}}
// CHECK: %[[NEXT:.*]] = arith.subf %[[X]], %[[KEPT]]
// CHECK: scf.yield %[[NEXT]]
// CHECK: } {tt.num_stages = 1 : i32}
// CHECK: %[[BELOW:.*]] = arith.select %{{.*}}, %[[L]], %{{.*}}
// CHECK: %[[NX:.*]] = tt.dot %[[BELOW]], %[[INV]], %{{.*}}, inputPrecision = ieee
// CHECK: %[[XNX:.*]] = tt.dot %[[INV]], %[[NX]], %{{.*}}, inputPrecision = ieee
// CHECK: arith.subf %[[INV]], %[[XNX]]
func.func @inverse(%x: !tile.ref<f32>) attributes {tile.kernel} {
  %zero = arith.constant 0 : index
  %m = arith.constant 32 : index
  %0 = tile.load %x[%zero] stride %m valid [%m, %m] align 16 : !tile.ref<f32> -> tensor<32x32xf32>
  %1 = tile.unit_tril_inverse %0 : tensor<32x32xf32>
  tile.store %1, %x[%zero] stride %m valid [%m, %m] align 16 : tensor<32x32xf32>, !tile.ref<f32>
  return
}

// -----

// The chunk loop: 64-bit, with the schedule's stages; ceildivsi is expanded.
// What the kernel was made for stays on the function.
// CHECK-LABEL: tt.func public @loop
// CHECK-SAME: attributes {kdac.num_stages = 2 : i64, kdac.num_warps = 4 : i64, kdac.slices = 2 : i64, kdac.v_tile = 64 : i64, noinline = false}
// CHECK: %[[PID:.*]] = tt.get_program_id x : i32
// CHECK: %[[ID:.*]] = arith.extsi %[[PID]] : i32 to i64
// CHECK: %[[CHUNKS:.*]] = arith.select
// CHECK: scf.for %{{.*}} = %c0_i64 to %[[CHUNKS]] step %c1_i64 iter_args({{.*}}) -> (tensor<32xf32>) : i64 {
// CHECK: "tt.scan"(%{{.*}}) <{axis = 0 : i32, reverse = false}>
// CHECK: "tt.reduce"(%{{.*}}) <{axis = 0 : i32}>
// CHECK: (tensor<32xf32>) -> f32
// CHECK: } {tt.num_stages = 2 : i32}
func.func @loop(%x: !tile.ref<f32> {kdac.name = "x"}, %n: index) attributes {
    tile.kernel, kdac.v_tile = 64 : i64, kdac.slices = 2 : i64,
    tile.schedule = #tile.schedule<target = "sm_80", form = "chunk", chunk = 32, leaf = 1,
      v_tile = 64, warps = 4, stages = 2, operand = bf16, gram = bf16>} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %m = arith.constant 32 : index
  %id = tile.program_id : index
  %chunks = arith.ceildivsi %n, %m : index
  %0 = tile.load %x[%id] stride %one valid [%m] align 4 : !tile.ref<f32> -> tensor<32xf32>
  %1 = scf.for %i = %zero to %chunks step %one iter_args(%s = %0) -> (tensor<32xf32>) {
    %2 = tile.cumsum %s : tensor<32xf32>
    %3 = tile.row %2[31] : tensor<32xf32> -> f32
    %4 = tile.splat %3 : f32 -> tensor<32xf32>
    scf.yield %4 : tensor<32xf32>
  }
  tile.store %1, %x[%id] stride %one valid [%m] align 4 : tensor<32xf32>, !tile.ref<f32>
  return
}

// -----

// A launch through Triton is an unchecked one: no second kernel.
// CHECK-NOT: @check
// CHECK-LABEL: tt.func public @step
func.func @check(%status: !tile.ref<i64>, %slots: !tile.ref<i32>, %n: index) attributes {tile.kernel} {
  tile.check_slots %status, slots(%slots) sources(%slots) offsets(%slots)
      count(%n) tokens(%n) pool(%n) : !tile.ref<i64>, !tile.ref<i32>, !tile.ref<i32>, !tile.ref<i32>
  return
}
func.func @step(%status: !tile.ref<i64>) attributes {tile.kernel} {
  return
}
