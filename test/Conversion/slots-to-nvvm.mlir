// In the step form guards are predicates of loads, whose pointers they leave
// alone; the index check is one block's loops.
// RUN: kdac-opt %s --tile-place --tile-to-nvvm | FileCheck %s

#s = #tile.schedule<target = "sm_90a", form = "step", chunk = 1, leaf = 1,
                    v_tile = 32, warps = 2, stages = 1, operand = f32, gram = f32>

// CHECK-LABEL: llvm.func @guarded(
// CHECK-SAME: %[[X:.*]]: !llvm.ptr<1>, %{{.*}}: !llvm.ptr<1>, %{{.*}}: i64)
// CHECK: %[[LIVE:.*]] = arith.cmpi sgt
// CHECK: llvm.ptrtoint %[[X]]
// CHECK: %[[GIVEN:.*]] = arith.cmpi ne
// CHECK: %[[READS:.*]] = arith.andi %[[LIVE]], %[[GIVEN]]
// CHECK: %[[AT:.*]] = llvm.getelementptr %[[X]]
// CHECK: llvm.inline_asm has_side_effects "mov.b32 $0, 0; @$2 ld.global.f32 $0, [$1];", "=&f,l,b" %[[AT]], %[[READS]]
// CHECK: arith.select %[[READS]]
func.func @guarded(%x: !tile.ref<f32>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %live = arith.cmpi sgt, %n, %c0 : index
  %guarded = tile.guard %x if %live : !tile.ref<f32>
  %value = tile.load_scalar %guarded[%n] else %zero : !tile.ref<f32> -> f32
  %tile = tile.splat %value : f32 -> tensor<32xf32>
  tile.store %tile, %out[%c0] stride %c1 valid [%n] align 4 : tensor<32xf32>, !tile.ref<f32>
  return
}

// Thread 0 resets the status before any thread reports.
// CHECK-LABEL: llvm.func @check(
// CHECK: %[[NONE:.*]] = arith.constant -1 : i64
// CHECK: llvm.store %[[NONE]], %[[STATUS:.*]] : i64, !llvm.ptr<1>
// CHECK: nvvm.barrier
// CHECK: scf.for
// CHECK: llvm.atomicrmw umin %[[STATUS]], %{{.*}} monotonic : !llvm.ptr<1>, i64
func.func @check(%status: !tile.ref<i64>, %slots: !tile.ref<i32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s} {
  tile.check_slots %status, slots(%slots) sources(%slots) offsets(%slots)
      count(%n) tokens(%n) pool(%n)
      : !tile.ref<i64>, !tile.ref<i32>, !tile.ref<i32>, !tile.ref<i32>
  return
}

// 2048 elements of 2 bytes are 32 lines; of 64 threads the first 32 ask for one.
// CHECK-LABEL: llvm.func @prefetch(
// CHECK: arith.cmpi slt, %{{.*}}, %{{.*}} : i32
// CHECK: scf.if
// CHECK: llvm.inline_asm has_side_effects "prefetch.global.L2 [$0];", "l" %{{.*}} : (!llvm.ptr<1>) -> ()
func.func @prefetch(%x: !tile.ref<bf16>, %n: index)
    attributes {tile.kernel, tile.schedule = #s} {
  tile.prefetch %x[%n] count 2048 : !tile.ref<bf16>
  return
}
