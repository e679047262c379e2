// One thread's program: products on tensor cores, barriers where a shared buffer
// changes hands, and the attributes of a launch.
// RUN: kdac-opt %s --split-input-file --tile-place --tile-to-nvvm | FileCheck %s

// CHECK: llvm.mlir.global external @product_shared() {addr_space = 3 : i32, alignment = 1024 : i64}
// CHECK-LABEL: llvm.func @product(
// CHECK-SAME: !llvm.ptr<1>, %{{.*}}: !llvm.ptr<1>, %{{.*}}: i64)
// CHECK-SAME: kdac.block_threads = 128 : i64
// CHECK-SAME: kdac.schedule = #tile.schedule<target = "sm_90a"
// CHECK-SAME: kdac.shared_bytes = 5120 : i64, kdac.v_tile = 32 : i64, nvvm.kernel
// CHECK-SAME: nvvm.reqntid = array<i32: 128, 1, 1>
// The accumulator crosses the loop in registers: 32 x 32 over 128 threads.
// CHECK: scf.for {{.*}} -> (f32, f32, f32, f32, f32, f32, f32, f32)
// The last iteration's readers are done before this one writes.
// CHECK: nvvm.barrier
// A load reads nothing from an absent argument.
// CHECK: llvm.ptrtoint %{{.*}} : !llvm.ptr<1> to i64
// CHECK: arith.cmpi ne
// CHECK: scf.if
// CHECK: llvm.load {{.*}} invariant {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>
// CHECK: nvvm.barrier
// CHECK: arith.mulf {{.*}} fastmath<contract>
// CHECK: llvm.fptrunc {{.*}} : vector<2xf32> to vector<2xbf16>
// CHECK: nvvm.barrier
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync {{.*}}mma_type<bf16>{{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 16>
// CHECK-NOT: nvvm.barrier
// CHECK: scf.yield
// CHECK: llvm.store {{.*}} : vector<2xf32>, !llvm.ptr<1>
#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16>
func.func @product(%a: !tile.ref<bf16>, %out: !tile.ref<f32>, %n: index)
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

// -----

// tf32 operands go to the tensor cores as tf32.
// CHECK-LABEL: llvm.func @tf32(
// CHECK: nvvm.mma.sync {{.*}}mma_type<tf32>{{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 8>
#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = tf32, gram = tf32>
func.func @tf32(%a: !tile.ref<f32>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  scf.for %i = %c0 to %n step %c1 {
    %x = tile.load %a[%i] stride %c32 valid [%c32, %c32] align 16 : !tile.ref<f32> -> tensor<32x32xf32>
    %b = arith.truncf %x : tensor<32x32xf32> to tensor<32x32xtf32>
    %p = tile.dot %b, %b : tensor<32x32xtf32>, tensor<32x32xtf32> -> tensor<32x32xf32>
    tile.store %p, %out[%i] stride %c32 valid [%c32, %c32] align 16 : tensor<32x32xf32>, !tile.ref<f32>
  }
  return
}

// -----

// f32 operands do not: each thread multiplies and adds for its own elements, four steps of a product
// at a time: one load of a row of the left side, and one of each of four rows of the right one.
// CHECK-LABEL: llvm.func @exact(
// CHECK-NOT: nvvm.mma
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} -> (f32, f32, f32, f32, f32, f32, f32, f32)
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// CHECK-COUNT-4: llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xf32>
// CHECK-COUNT-8: llvm.intr.fma
// CHECK: scf.yield
#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = f32, gram = f32>
func.func @exact(%a: !tile.ref<f32>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  scf.for %i = %c0 to %n step %c1 {
    %x = tile.load %a[%i] stride %c32 valid [%c32, %c32] align 16 : !tile.ref<f32> -> tensor<32x32xf32>
    %p = tile.dot %x, %x : tensor<32x32xf32>, tensor<32x32xf32> -> tensor<32x32xf32>
    tile.store %p, %out[%i] stride %c32 valid [%c32, %c32] align 16 : tensor<32x32xf32>, !tile.ref<f32>
  }
  return
}

// -----

// The step form has no barrier: columns of the state stay within a warp.
// CHECK-LABEL: llvm.func @step(
// CHECK-NOT: nvvm.barrier
// CHECK: nvvm.shfl.sync
// CHECK-NOT: nvvm.barrier
// CHECK: llvm.return
#s = #tile.schedule<target = "sm_90a", form = "step", chunk = 1, leaf = 1,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16>
func.func @step(%a: !tile.ref<f32>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.v_tile = 32} {
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

// -----

// Rows: a tile that is there and whole takes no condition between its loads, and what
// windows have in common is loaded once: 11 rows for 8. Others are loaded one by one.
#s = #tile.schedule<target = "sm_90a", form = "rows", chunk = 64, leaf = 1,
                    v_tile = 128, warps = 8, stages = 1, operand = f32, gram = f32>
// CHECK-LABEL: llvm.func @rows
// CHECK-NOT: nvvm.barrier
// CHECK: arith.cmpi sge
// CHECK: scf.if
// CHECK: scf.for
// CHECK-NOT: scf.if
// CHECK-COUNT-11: llvm.load %{{.*}} -> vector<4xf32>
// CHECK-NOT: llvm.load
// CHECK-COUNT-8: llvm.store
// CHECK: } else {
// CHECK: scf.for
// CHECK: scf.if
// CHECK: llvm.load
func.func @rows(%x: !tile.ref<f32>, %o: !tile.ref<f32>, %n: index, %stride: index)
    attributes {tile.kernel, tile.schedule = #s} {
  %z = arith.constant 0 : index
  %c = arith.constant 128 : index
  %three = arith.constant 3 : index
  %m = arith.addi %n, %three : index
  %all = tile.load %x[%z] stride %stride valid [%m, %c] align 16 : !tile.ref<f32> -> tensor<67x128xf32>
  %a = tile.window %all[0] : tensor<67x128xf32> -> tensor<64x128xf32>
  %b = tile.window %all[3] : tensor<67x128xf32> -> tensor<64x128xf32>
  %y = math.fma %a, %b, %a : tensor<64x128xf32>
  tile.store %y, %o[%z] stride %stride valid [%n, %c] align 16 : tensor<64x128xf32>, !tile.ref<f32>
  return
}
