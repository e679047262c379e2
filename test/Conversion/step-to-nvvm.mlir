// How a step kernel waits: once for all loads of a token, and for its state and
// the kernels ahead as late as it can.
// RUN: kdac-opt %s --tile-place --tile-to-nvvm -split-input-file | FileCheck %s

#s = #tile.schedule<target = "sm_90a", form = "step", chunk = 1, leaf = 1,
                    v_tile = 32, warps = 2, stages = 1, operand = f32, gram = f32>

// Two vectors of 64 for 64 threads: both are loaded, then both stored, and one
// barrier comes before what reads them. The state is asked for first; then the
// kernel waits for those ahead of it.
// CHECK-LABEL: llvm.func @batch(
// CHECK: "mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0; @$5 ld.global.v4.f32
// CHECK: "griddepcontrol.wait;"
// CHECK-NEXT: "griddepcontrol.launch_dependents;"
// CHECK: scf.for
// CHECK-NOT: llvm.store
// CHECK: "mov.b32 $0, 0; @$2 ld.global.nc.f32 $0, [$1];"
// CHECK-NOT: llvm.store
// CHECK: "mov.b32 $0, 0; @$2 ld.global.nc.f32 $0, [$1];"
// CHECK: llvm.store
// CHECK: llvm.store
// CHECK: nvvm.barrier
// CHECK-NOT: nvvm.barrier
// CHECK: "@$0 bar.sync 0;"
// CHECK: scf.yield
func.func @batch(%h: !tile.ref<f32>, %a: !tile.ref<f32>, %b: !tile.ref<f32>,
                 %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %h0 = tile.load %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : !tile.ref<f32> -> tensor<64x32xf32>
  tile.await_launch
  tile.start_next
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<64x32xf32>) {
    %x = tile.load %a[%i] stride %c1 valid [%c64] align 4 : !tile.ref<f32> -> tensor<64xf32>
    %y = tile.load %b[%i] stride %c1 valid [%c64] align 4 : !tile.ref<f32> -> tensor<64xf32>
    %x1 = tile.once %x : tensor<64xf32>
    %y1 = tile.once %y : tensor<64xf32>
    %xy = arith.mulf %x1, %y1 : tensor<64xf32>
    %rows = tile.broadcast %xy along 0 : tensor<64xf32> -> tensor<64x32xf32>
    %next = arith.mulf %s, %rows : tensor<64x32xf32>
    scf.yield %next : tensor<64x32xf32>
  }
  tile.store %ht, %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : tensor<64x32xf32>, !tile.ref<f32>
  return
}

// -----

#s = #tile.schedule<target = "sm_90a", form = "step", chunk = 1, leaf = 1,
                    v_tile = 32, warps = 2, stages = 1, operand = f32, gram = f32>

// The state's loads do not wait for what another program's needs: that is found
// behind them.
// CHECK-LABEL: llvm.func @late(
// CHECK-NOT: ld.global.s32
// CHECK-NOT: nvvm.read.ptx.sreg.nctaid.x
// CHECK-COUNT-8: ld.global.v4.f32
// CHECK: nvvm.read.ptx.sreg.nctaid.x
// CHECK: ld.global.s32
// CHECK: prefetch.global.L2
// CHECK: "griddepcontrol.wait;"
func.func @late(%h: !tile.ref<f32>, %slots: !tile.ref<i32>, %a: !tile.ref<f32>,
                %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c2048 = arith.constant 2048 : index
  %h0 = tile.load %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : !tile.ref<f32> -> tensor<64x32xf32>
  %last = tile.num_programs : index
  %other = arith.subi %last, %c1 : index
  %slot = tile.load_scalar %slots[%other] else %other : !tile.ref<i32> -> index
  %base = arith.muli %slot, %c2048 : index
  tile.prefetch %h[%base] count 2048 : !tile.ref<f32>
  tile.await_launch
  tile.start_next
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<64x32xf32>) {
    %x = tile.load %a[%i] stride %c1 valid [%c64] align 4 : !tile.ref<f32> -> tensor<64xf32>
    %x1 = tile.once %x : tensor<64xf32>
    %rows = tile.broadcast %x1 along 0 : tensor<64xf32> -> tensor<64x32xf32>
    %next = arith.mulf %s, %rows : tensor<64x32xf32>
    scf.yield %next : tensor<64x32xf32>
  }
  tile.store %ht, %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : tensor<64x32xf32>, !tile.ref<f32>
  return
}

// -----

#staged = #tile.schedule<target = "sm_90a", form = "step", chunk = 1, leaf = 1,
                         v_tile = 32, warps = 1, stages = 2, operand = f32,
                         gram = f32>

// Staged, the state is asked for behind the loads of the first token's vector,
// but for what is to be asked for at once,
// and loaded once that is made. Before another one, which is made at the end of
// the loop, threads must be done with the vector, and the state makes room.
// CHECK-LABEL: llvm.func @staged(
// CHECK: prefetch.global.L2
// CHECK: scf.if
// CHECK: "griddepcontrol.wait;"
// CHECK: ld.global.nc.v2.f32
// CHECK: prefetch.global.L2
// CHECK: llvm.store
// CHECK: } else {
// CHECK: "griddepcontrol.wait;"
// CHECK-COUNT-16: ld.global.v4.f32
// CHECK: scf.for
// CHECK: nvvm.barrier
// CHECK-COUNT-16: llvm.store %{{.*}} : vector<4xf32>, !llvm.ptr<3>
// CHECK: nvvm.barrier
// CHECK: ld.global.nc.v2.f32
// CHECK-COUNT-16: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<4xf32>
// CHECK: scf.yield
func.func @staged(%h: !tile.ref<f32>, %a: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #staged, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %h0 = tile.load %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : !tile.ref<f32> -> tensor<64x32xf32>
  tile.prefetch now %h[%c0] count 1024 : !tile.ref<f32>
  tile.prefetch %h[%c0] count 2048 : !tile.ref<f32>
  tile.await_launch
  tile.start_next
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<64x32xf32>) {
    %x = tile.load %a[%i] stride %c1 valid [%c64] align 16 : !tile.ref<f32> -> tensor<64xf32>
    %x1 = tile.once %x : tensor<64xf32>
    %rows = tile.broadcast %x1 along 0 : tensor<64xf32> -> tensor<64x32xf32>
    %next = arith.mulf %s, %rows : tensor<64x32xf32>
    scf.yield %next : tensor<64x32xf32>
  }
  tile.store %ht, %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : tensor<64x32xf32>, !tile.ref<f32>
  return
}

// -----

#staged = #tile.schedule<target = "sm_90a", form = "step", chunk = 1, leaf = 1,
                         v_tile = 32, warps = 1, stages = 2, operand = f32,
                         gram = f32>

// The last state takes its way through the memory where it is staged, from where
// a bulk copy of each warp's columns writes it; the block stays until those have
// been read. Between tokens all threads take their pieces from there before any
// goes on.
// CHECK-LABEL: llvm.func @bulk(
// CHECK: scf.for
// CHECK: nvvm.barrier
// CHECK-COUNT-16: llvm.store %{{.*}} : vector<4xf32>, !llvm.ptr<3>
// CHECK: "fence.proxy.async.shared::cta;"
// CHECK: "bar.warp.sync -1;"
// CHECK: scf.if
// CHECK: "cp.async.bulk.global.shared::cta.bulk_group
// CHECK-COUNT-16: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<4xf32>
// CHECK: nvvm.barrier
// CHECK-NEXT: scf.yield
// CHECK: "cp.async.bulk.wait_group.read 0;"
// CHECK-NEXT: llvm.return
func.func @bulk(%h: !tile.ref<f32>, %a: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #staged, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %h0 = tile.load %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : !tile.ref<f32> -> tensor<64x32xf32>
  tile.await_launch
  tile.start_next
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<64x32xf32>) {
    %x = tile.load %a[%i] stride %c1 valid [%c64] align 16 : !tile.ref<f32> -> tensor<64xf32>
    %x1 = tile.once %x : tensor<64xf32>
    %rows = tile.broadcast %x1 along 0 : tensor<64xf32> -> tensor<64x32xf32>
    %next = arith.mulf %s, %rows : tensor<64x32xf32>
    tile.store %next, %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
        : tensor<64x32xf32>, !tile.ref<f32>
    scf.yield %next : tensor<64x32xf32>
  }
  tile.store %ht, %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : tensor<64x32xf32>, !tile.ref<f32>
  return
}

// -----

#narrow = #tile.schedule<target = "sm_90a", form = "step", chunk = 1, leaf = 1,
                         v_tile = 32, warps = 1, stages = 1, operand = f32,
                         gram = f32>

// A narrow state is asked for first and widened behind the loads of the first
// token's vector: what widens it waits for it. The next token's vectors are made
// at the end of the loop. Of a vector of one element no part has a branch.
// CHECK-LABEL: llvm.func @narrow(
// CHECK-COUNT-8: ld.global.v4.b32
// CHECK-NOT: constant -65536
// CHECK: scf.if
// CHECK: "griddepcontrol.wait;"
// CHECK-NOT: constant -65536
// CHECK: ld.global.nc.v2.f32
// CHECK-NOT: scf.if
// CHECK: "mov.b32 $0, 0; @$2 ld.global.nc.f32 $0, [$1];"
// CHECK: llvm.store
// CHECK: } else {
// CHECK: llvm.inline_asm has_side_effects "", "=r,0"
// CHECK: constant -65536
// CHECK: scf.for
// CHECK: scf.if
// CHECK: ld.global.nc.v2.f32
// CHECK: scf.yield
func.func @narrow(%h: !tile.ref<bf16>, %a: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #narrow, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %hn = tile.load %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : !tile.ref<bf16> -> tensor<64x32xbf16>
  %h0 = arith.extf %hn : tensor<64x32xbf16> to tensor<64x32xf32>
  tile.await_launch
  tile.start_next
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<64x32xf32>) {
    %x = tile.load %a[%i] stride %c1 valid [%c64] align 16 : !tile.ref<f32> -> tensor<64xf32>
    %x1 = tile.once %x : tensor<64xf32>
    %y = tile.load %a[%c64] stride %c1 valid [%c1] align 4 : !tile.ref<f32> -> tensor<1xf32>
    %y1 = tile.once %y : tensor<1xf32>
    %rows = tile.broadcast %x1 along 0 : tensor<64xf32> -> tensor<64x32xf32>
    %scaled = arith.mulf %s, %rows : tensor<64x32xf32>
    %factor = tile.row %y1[0] : tensor<1xf32> -> f32
    %factors = tile.splat %factor : f32 -> tensor<64x32xf32>
    %next = arith.mulf %scaled, %factors : tensor<64x32xf32>
    scf.yield %next : tensor<64x32xf32>
  }
  %out = arith.truncf %ht : tensor<64x32xf32> to tensor<64x32xbf16>
  tile.store %out, %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : tensor<64x32xbf16>, !tile.ref<bf16>
  return
}

// -----

#b = #tile.schedule<target = "sm_80", form = "step", chunk = 1, leaf = 1,
                    v_tile = 32, warps = 2, stages = 1, operand = f32, gram = f32>

// What a vector is made of is written by the threads that made it: there is one
// load, and no barrier until others read the vector.
// CHECK-LABEL: llvm.func @behind(
// CHECK: scf.for
// CHECK: ld.global.f32
// CHECK-NOT: ld.global
// CHECK-NOT: nvvm.barrier
// CHECK: llvm.store %{{.*}} : f32, !llvm.ptr<3>
// CHECK: llvm.store %{{.*}} : f32, !llvm.ptr<1>
// CHECK: nvvm.barrier
// CHECK: scf.yield
func.func @behind(%h: !tile.ref<f32>, %a: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #b, kdac.v_tile = 32} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %h0 = tile.load %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : !tile.ref<f32> -> tensor<64x32xf32>
  %ht = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h0) -> (tensor<64x32xf32>) {
    %x = tile.load %a[%i] stride %c1 valid [%c64] align 4 : !tile.ref<f32> -> tensor<64xf32>
    %y = arith.mulf %x, %x : tensor<64xf32>
    %y1 = tile.once %y : tensor<64xf32>
    tile.store %x, %a[%c64] stride %c1 valid [%c64] align 4 : tensor<64xf32>, !tile.ref<f32>
    %rows = tile.broadcast %y1 along 0 : tensor<64xf32> -> tensor<64x32xf32>
    %next = arith.mulf %s, %rows : tensor<64x32xf32>
    scf.yield %next : tensor<64x32xf32>
  }
  tile.store %ht, %h[%c0] stride %c64 valid [%c64, %c32] transposed align 16
      : tensor<64x32xf32>, !tile.ref<f32>
  return
}

// -----

#s = #tile.schedule<target = "sm_80", form = "step", chunk = 1, leaf = 1,
                    v_tile = 32, warps = 2, stages = 1, operand = f32, gram = f32>

// A choice between arguments is a load from each, under opposite predicates, with
// the base and stride of its own; all loads of a run of stores come first.
// CHECK-LABEL: llvm.func @shift(
// CHECK: %[[NOT:.*]] = arith.xori %[[FIRST:.*]], %true
// CHECK: %[[A:.*]] = arith.andi %[[FIRST]]
// CHECK: llvm.inline_asm has_side_effects "mov.b32 $0, 0; @$2 ld.global.f32{{.*}} %[[A]]
// CHECK: %[[B:.*]] = arith.andi %[[NOT]]
// CHECK: llvm.inline_asm has_side_effects "mov.b32 $0, 0; @$2 ld.global.f32{{.*}} %[[B]]
// CHECK: arith.select %[[FIRST]]
// CHECK: "mov.b32 $0, 0; @$2 ld.global.f32
// CHECK: llvm.store
// CHECK: llvm.store
func.func @shift(%tokens: !tile.ref<f32>, %cache: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %first = arith.cmpi sgt, %n, %c0 : index
  %ref = tile.choose %tokens if %first else %cache : !tile.ref<f32>
  %base = arith.select %first, %n, %c4 : index
  %stride = arith.select %first, %c1, %c4 : index
  %x = tile.load %ref[%base] stride %stride valid [%c64] align 4 : !tile.ref<f32> -> tensor<64xf32>
  %y = tile.load %cache[%c1] stride %c4 valid [%c64] align 4 : !tile.ref<f32> -> tensor<64xf32>
  tile.store %x, %cache[%c0] stride %c4 valid [%c64] align 4 : tensor<64xf32>, !tile.ref<f32>
  tile.store %y, %cache[%c4] stride %c4 valid [%c64] align 4 : tensor<64xf32>, !tile.ref<f32>
  return
}
