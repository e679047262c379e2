// What is synchronised passes, as it is.
// RUN: kdac-opt %s --tile-verify-async | FileCheck %s
// CHECK-LABEL: llvm.func @products
// CHECK: wgmma.wait_group
// CHECK-LABEL: llvm.func @fenced
// CHECK-LABEL: llvm.func @other_bytes
// CHECK-LABEL: llvm.func @ring

llvm.func @products(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %out: !llvm.ptr<1>, %n: i32)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,r,r,r,r,~{memory}" %x, %y, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
  %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
  %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %f0, %f1, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
  %p0 = llvm.extractvalue %p[0] : !llvm.struct<(f32, f32)>
  %p1 = llvm.extractvalue %p[1] : !llvm.struct<(f32, f32)>
  llvm.inline_asm has_side_effects "wgmma.commit_group.sync.aligned;", "~{memory}" : () -> ()
  %d = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,0,1,r,r,r,r,~{memory}" %p0, %p1, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %d0 = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32)>
  %d1 = llvm.extractvalue %d[1] : !llvm.struct<(f32, f32)>
  llvm.store %d0, %out : f32, !llvm.ptr<1>
  llvm.store %d1, %out : f32, !llvm.ptr<1>
  llvm.return
}

llvm.func @fenced(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  llvm.store %x, %tile : f32, !llvm.ptr<3>
  llvm.inline_asm has_side_effects "fence.proxy.async.shared::cta;", "~{memory}" : () -> ()
  llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}

// Nobody reads them but threads.
llvm.func @other_bytes(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  %other = llvm.getelementptr %tile[1024] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
  llvm.store %x, %other : f32, !llvm.ptr<3>
  llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}

llvm.func @ring(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  %ring = llvm.getelementptr %tile[2048] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
  %full = llvm.ptrtoint %ring : !llvm.ptr<3> to i32
  %eight = arith.constant 8 : i32
  %empty = arith.addi %full, %eight : i32
  llvm.inline_asm has_side_effects "mbarrier.init.shared.b64 [$0], $1;", "r,n,~{memory}" %full, %one : (i32, i32) -> ()
  llvm.inline_asm has_side_effects "mbarrier.init.shared.b64 [$0], $1;", "r,n,~{memory}" %empty, %one : (i32, i32) -> ()
  scf.if %c {
    scf.for %i = %zero to %n step %one : i32 {
      llvm.inline_asm has_side_effects "{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [$0], $1; @!done bra again; }", "r,r,~{memory}" %empty, %zero : (i32, i32) -> ()
      llvm.store %x, %tile : f32, !llvm.ptr<3>
      llvm.inline_asm has_side_effects "fence.proxy.async.shared::cta;", "~{memory}" : () -> ()
      llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
      llvm.inline_asm has_side_effects "mbarrier.arrive.shared.b64 _, [$0];", "r,~{memory}" %full : (i32) -> ()
    }
  } else {
    scf.for %i = %zero to %n step %one : i32 {
      llvm.inline_asm has_side_effects "{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [$0], $1; @!done bra again; }", "r,r,~{memory}" %full, %zero : (i32, i32) -> ()
      llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
      llvm.inline_asm has_side_effects "mbarrier.arrive.shared.b64 _, [$0];", "r,~{memory}" %empty : (i32) -> ()
    }
  }
  llvm.return
}
