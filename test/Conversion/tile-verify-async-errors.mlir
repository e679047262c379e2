// Asynchronous work that is not synchronised is refused: the labels are those of
// the pass. What the compiler's own kernels look like without some of their
// instructions: verify-async.test.
// RUN: kdac-opt %s --split-input-file --verify-diagnostics --tile-verify-async

// A second use, before the wait.
llvm.func @v1_use_in_flight(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %out: !llvm.ptr<1>, %n: i32)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,r,r,r,r,~{memory}" %x, %y, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
  %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
  // expected-error @below {{expected one use of an accumulator in flight, but got 2}}
  %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %f0, %f1, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
  %p0 = llvm.extractvalue %p[0] : !llvm.struct<(f32, f32)>
  %p1 = llvm.extractvalue %p[1] : !llvm.struct<(f32, f32)>
  llvm.store %p0, %out : f32, !llvm.ptr<1>
  llvm.inline_asm has_side_effects "wgmma.commit_group.sync.aligned;", "~{memory}" : () -> ()
  %d = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,0,1,r,r,r,r,~{memory}" %p0, %p1, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %d0 = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32)>
  %d1 = llvm.extractvalue %d[1] : !llvm.struct<(f32, f32)>
  llvm.store %d0, %out : f32, !llvm.ptr<1>
  llvm.store %d1, %out : f32, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @v2_accumulator(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %out: !llvm.ptr<1>, %n: i32)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  // expected-error @below {{expected a wgmma.fence before the product that has passed its accumulator 0}}
  %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %x, %y, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
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

// -----

llvm.func @v2_operand(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %out: !llvm.ptr<1>, %n: i32)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,~{memory}" %x, %y : (f32, f32) -> !llvm.struct<(f32, f32)>
  %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
  %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
  // expected-error @below {{expected a wgmma.fence before the product that has passed its operand 2}}
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

// -----

llvm.func @v3_read_early(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %out: !llvm.ptr<1>, %n: i32)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,r,r,r,r,~{memory}" %x, %y, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
  %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
  %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %f0, %f1, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
  %p0 = llvm.extractvalue %p[0] : !llvm.struct<(f32, f32)>
  %p1 = llvm.extractvalue %p[1] : !llvm.struct<(f32, f32)>
  llvm.inline_asm has_side_effects "wgmma.commit_group.sync.aligned;", "~{memory}" : () -> ()
  // expected-error @below {{reads an accumulator that has not been waited for}}
  %h0 = arith.addf %p0, %x : f32
  %d = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,0,1,r,r,r,r,~{memory}" %h0, %p1, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %d0 = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32)>
  %d1 = llvm.extractvalue %d[1] : !llvm.struct<(f32, f32)>
  llvm.store %d0, %out : f32, !llvm.ptr<1>
  llvm.store %d1, %out : f32, !llvm.ptr<1>
  llvm.return
}

// -----

// Its own group may still run.
llvm.func @v3_too_many_left(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %out: !llvm.ptr<1>, %n: i32)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,r,r,r,r,~{memory}" %x, %y, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
  %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
  %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %f0, %f1, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
  %p0 = llvm.extractvalue %p[0] : !llvm.struct<(f32, f32)>
  %p1 = llvm.extractvalue %p[1] : !llvm.struct<(f32, f32)>
  llvm.inline_asm has_side_effects "wgmma.commit_group.sync.aligned;", "~{memory}" : () -> ()
  %d = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 1;", "=f,=f,0,1,r,r,r,r,~{memory}" %p0, %p1, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %d0 = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32)>
  %d1 = llvm.extractvalue %d[1] : !llvm.struct<(f32, f32)>
  // expected-error @below {{reads an accumulator that has not been waited for}}
  llvm.store %d0, %out : f32, !llvm.ptr<1>
  llvm.store %d1, %out : f32, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @v3_uncommitted(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %out: !llvm.ptr<1>, %n: i32)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,r,r,r,r,~{memory}" %x, %y, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
  %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
  %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %f0, %f1, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
  %p0 = llvm.extractvalue %p[0] : !llvm.struct<(f32, f32)>
  %p1 = llvm.extractvalue %p[1] : !llvm.struct<(f32, f32)>
  // expected-error @below {{expected wgmma.commit_group between products and the wait for them}}
  %d = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,0,1,r,r,r,r,~{memory}" %p0, %p1, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %d0 = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32)>
  %d1 = llvm.extractvalue %d[1] : !llvm.struct<(f32, f32)>
  llvm.store %d0, %out : f32, !llvm.ptr<1>
  llvm.store %d1, %out : f32, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @v3_operands_lost(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %out: !llvm.ptr<1>, %n: i32)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,r,r,r,r,~{memory}" %x, %y, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
  %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
  %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %f0, %f1, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
  %p0 = llvm.extractvalue %p[0] : !llvm.struct<(f32, f32)>
  %p1 = llvm.extractvalue %p[1] : !llvm.struct<(f32, f32)>
  llvm.inline_asm has_side_effects "wgmma.commit_group.sync.aligned;", "~{memory}" : () -> ()
  // expected-error @below {{expected the wait to keep all registers that the products it waits for read}}
  %d = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,0,1,~{memory}" %p0, %p1 : (f32, f32) -> !llvm.struct<(f32, f32)>
  %d0 = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32)>
  %d1 = llvm.extractvalue %d[1] : !llvm.struct<(f32, f32)>
  llvm.store %d0, %out : f32, !llvm.ptr<1>
  llvm.store %d1, %out : f32, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @v3_accumulator_lost(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %out: !llvm.ptr<1>, %n: i32)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,r,r,r,r,~{memory}" %x, %y, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
  %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
  %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %f0, %f1, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
  %p0 = llvm.extractvalue %p[0] : !llvm.struct<(f32, f32)>
  %p1 = llvm.extractvalue %p[1] : !llvm.struct<(f32, f32)>
  llvm.inline_asm has_side_effects "wgmma.commit_group.sync.aligned;", "~{memory}" : () -> ()
  // expected-error @below {{expected the wait to take all accumulators of the products that it waits for}}
  %d = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,0,1,r,r,r,r,~{memory}" %p0, %x, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %d0 = llvm.extractvalue %d[0] : !llvm.struct<(f32, f32)>
  %d1 = llvm.extractvalue %d[1] : !llvm.struct<(f32, f32)>
  llvm.store %d0, %out : f32, !llvm.ptr<1>
  llvm.store %p1, %out : f32, !llvm.ptr<1>
  llvm.return
}

// -----

// However many branches they pass through.
llvm.func @v3_end(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %c: i1)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,r,r,r,r,~{memory}" %x, %y, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
  %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
  %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
  %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %f0, %f1, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
  %p0 = llvm.extractvalue %p[0] : !llvm.struct<(f32, f32)>
  %p1 = llvm.extractvalue %p[1] : !llvm.struct<(f32, f32)>
  llvm.inline_asm has_side_effects "wgmma.commit_group.sync.aligned;", "~{memory}" : () -> ()
  %r:2 = scf.if %c -> (f32, f32) {
    scf.yield %p0, %p1 : f32, f32
  } else {
    scf.yield %x, %y : f32, f32
  }
  // expected-error @below {{leaves products in flight}}
  llvm.return
}

// -----

// What the last turn leaves in flight is so behind the loop.
llvm.func @v3_loop(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %n: i32, %out: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %s:2 = scf.for %i = %zero to %n step %one iter_args(%x0 = %x, %y0 = %y) -> (f32, f32) : i32 {
    %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,r,r,r,r,~{memory}" %x0, %y0, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
    %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
    %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
    %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %f0, %f1, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
    %p0 = llvm.extractvalue %p[0] : !llvm.struct<(f32, f32)>
    %p1 = llvm.extractvalue %p[1] : !llvm.struct<(f32, f32)>
    llvm.inline_asm has_side_effects "wgmma.commit_group.sync.aligned;", "~{memory}" : () -> ()
    %w = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 1;", "=f,=f,0,1,r,r,r,r,~{memory}" %p0, %p1, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
    %w0 = llvm.extractvalue %w[0] : !llvm.struct<(f32, f32)>
    %w1 = llvm.extractvalue %w[1] : !llvm.struct<(f32, f32)>
    scf.yield %w0, %w1 : f32, f32
  }
  // expected-error @below {{reads an accumulator that has not been waited for}}
  llvm.store %s#0, %out : f32, !llvm.ptr<1>
  llvm.return
}

// -----

// No turn waits.
llvm.func @v3_endless(%x: f32, %y: f32, %a: i32, %a2: i32, %a3: i32, %a4: i32, %matrix: i64, %n: i32, %out: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  // expected-error @below {{starts products in every turn that no turn waits for}}
  %s:2 = scf.for %i = %zero to %n step %one iter_args(%x0 = %x, %y0 = %y) -> (f32, f32) : i32 {
    %f = llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,=f,0,1,r,r,r,r,~{memory}" %x0, %y0, %a, %a2, %a3, %a4 : (f32, f32, i32, i32, i32, i32) -> !llvm.struct<(f32, f32)>
    %f0 = llvm.extractvalue %f[0] : !llvm.struct<(f32, f32)>
    %f1 = llvm.extractvalue %f[1] : !llvm.struct<(f32, f32)>
    %p = llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }", "=f,=f,0,1,r,r,r,r,l" %f0, %f1, %a, %a2, %a3, %a4, %matrix : (f32, f32, i32, i32, i32, i32, i64) -> !llvm.struct<(f32, f32)>
    %p0 = llvm.extractvalue %p[0] : !llvm.struct<(f32, f32)>
    %p1 = llvm.extractvalue %p[1] : !llvm.struct<(f32, f32)>
    llvm.inline_asm has_side_effects "wgmma.commit_group.sync.aligned;", "~{memory}" : () -> ()
    scf.yield %p0, %p1 : f32, f32
  }
  llvm.return
}

// -----

// The example of the documentation.
llvm.func @v4_no_fence(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  llvm.store %x, %tile : f32, !llvm.ptr<3>
  llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
  // expected-error @below {{expected fence.proxy.async between writes to shared memory and what reads them}}
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}

// -----

// Of the thread that copies, but not known to be of all that wrote.
llvm.func @v4_fence_after_barrier(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  llvm.store %x, %tile : f32, !llvm.ptr<3>
  llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
  llvm.inline_asm has_side_effects "fence.proxy.async.shared::cta;", "~{memory}" : () -> ()
  // expected-error @below {{expected a barrier of the threads that wrote between their fence.proxy.async and what reads them}}
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}

// -----

// The others' writes have passed none.
llvm.func @v4_fence_of_some(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  llvm.store %x, %tile : f32, !llvm.ptr<3>
  scf.if %c {
    llvm.inline_asm has_side_effects "fence.proxy.async.shared::cta;", "~{memory}" : () -> ()
  }
  llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
  // expected-error @below {{expected fence.proxy.async between writes to shared memory and what reads them}}
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}

// -----

llvm.func @v4_one_way(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  scf.if %c {
    llvm.store %x, %tile : f32, !llvm.ptr<3>
  }
  llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
  // expected-error @below {{expected fence.proxy.async between writes to shared memory and what reads them}}
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}

// -----

// The next turn's copy reads it.
llvm.func @v4_next_turn(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  scf.for %i = %zero to %n step %one : i32 {
    // expected-error @below {{expected fence.proxy.async between writes to shared memory and what reads them}}
    llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
    llvm.store %x, %tile : f32, !llvm.ptr<3>
  }
  llvm.return
}

// -----

llvm.func @v4_stmatrix(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  llvm.inline_asm has_side_effects "stmatrix.sync.aligned.m8n8.x2.shared.b16 [$0 + 512], {$1, $2};", "r,r,r,~{memory}" %from, %zero, %zero : (i32, i32, i32) -> ()
  llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
  // expected-error @below {{expected fence.proxy.async between writes to shared memory and what reads them}}
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}

// -----

// Copies that have arrived are the threads' writes.
llvm.func @v4_copies(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  nvvm.cp.async.shared.global %tile, %global, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
  nvvm.cp.async.commit.group
  nvvm.cp.async.wait.group 0
  nvvm.barrier
  // expected-error @below {{expected fence.proxy.async between writes to shared memory and what reads them}}
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}

// -----

llvm.func @v4_fence_before_arrival(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
    attributes {nvvm.kernel, kdac.async_bytes = array<i64: 0, 1024>} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes = arith.constant 512 : i32
  %from = llvm.ptrtoint %tile : !llvm.ptr<3> to i32
  nvvm.cp.async.shared.global %tile, %global, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
  llvm.inline_asm has_side_effects "fence.proxy.async.shared::cta;", "~{memory}" : () -> ()
  nvvm.cp.async.commit.group
  nvvm.cp.async.wait.group 0
  nvvm.barrier
  // expected-error @below {{expected fence.proxy.async between writes to shared memory and what reads them}}
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}

// -----

// Who waits for the mbarrier copies the bytes away.
llvm.func @v5_no_fence(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
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
      llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
      // expected-error @below {{expected fence.proxy.async between writes to shared memory and the arrival that says so}}
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

// -----

llvm.func @v5_no_barrier(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
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
      // expected-error @below {{expected a barrier of the threads that wrote between their fence.proxy.async and the arrival that says so}}
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

// -----

// A fence of the own block's memory is none of another's.
llvm.func @v6_cluster(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
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
  llvm.inline_asm has_side_effects "st.shared::cluster.v4.b32 [$0 + 0], {$1, $2, $3, $4};", "r,r,r,r,r,~{memory}" %from, %zero, %zero, %zero, %zero : (i32, i32, i32, i32, i32) -> ()
  llvm.inline_asm has_side_effects "fence.proxy.async.shared::cta;", "~{memory}" : () -> ()
  llvm.inline_asm has_side_effects "bar.warp.sync -1;", "~{memory}" : () -> ()
  // expected-error @below {{expected fence.proxy.async of the cluster and a barrier between writes to another block and the arrival there}}
  llvm.inline_asm has_side_effects "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [$0];", "r,~{memory}" %full : (i32) -> ()
  llvm.inline_asm has_side_effects "{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [$0], $1; @!done bra again; }", "r,r,~{memory}" %full, %zero : (i32, i32) -> ()
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}

// -----

llvm.func @v7_no_initial_count(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
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
  // expected-error @below {{uses an mbarrier that nobody initialises}}
  llvm.inline_asm has_side_effects "mbarrier.arrive.shared.b64 _, [$0];", "r,~{memory}" %empty : (i32) -> ()
  llvm.return
}

// -----

llvm.func @v8_nobody_arrives(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
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
  // expected-error @below {{waits for an mbarrier where nobody arrives}}
  llvm.inline_asm has_side_effects "{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [$0], $1; @!done bra again; }", "r,r,~{memory}" %full, %zero : (i32, i32) -> ()
  llvm.return
}

// -----

// A slot is released once.
llvm.func @v9_twice(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
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
      // expected-error @below {{arrives a second time in one turn at the mbarrier of a buffer}}
      scf.if %c {
        llvm.inline_asm has_side_effects "mbarrier.arrive.shared.b64 _, [$0];", "r,~{memory}" %empty : (i32) -> ()
      }
    }
  }
  llvm.return
}

// -----

// What the loop releases the last turn must.
llvm.func @v9_last_turn_apart(%tile: !llvm.ptr<3>, %x: f32, %to: i64, %c: i1, %n: i32, %global: !llvm.ptr<1>)
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
      // expected-note @below {{another turn's wait}}
    llvm.inline_asm has_side_effects "{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [$0], $1; @!done bra again; }", "r,r,~{memory}" %full, %zero : (i32, i32) -> ()
      llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
      llvm.inline_asm has_side_effects "mbarrier.arrive.shared.b64 _, [$0];", "r,~{memory}" %empty : (i32) -> ()
    }
    scf.if %c {
      // expected-error @below {{waits in a turn that does not arrive where others do}}
      llvm.inline_asm has_side_effects "{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [$0], $1; @!done bra again; }", "r,r,~{memory}" %full, %zero : (i32, i32) -> ()
      llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
    }
  }
  llvm.return
}

// -----

// Mbarriers stand side by side.
// expected-error @below {{leaves the mbarrier at byte 8 of shared memory without its initial count}}
llvm.func @v7_hole(%full: i32) attributes {nvvm.kernel} {
  %one = arith.constant 1 : i32
  %sixteen = arith.constant 16 : i32
  %last = arith.addi %full, %sixteen : i32
  llvm.inline_asm has_side_effects "mbarrier.init.shared.b64 [$0], $1;", "r,n,~{memory}" %full, %one : (i32, i32) -> ()
  llvm.inline_asm has_side_effects "mbarrier.init.shared.b64 [$0], $1;", "r,n,~{memory}" %last, %one : (i32, i32) -> ()
  llvm.return
}

// -----

// Which bytes matter is said by who places them.
// expected-error @below {{expected kdac.async_bytes, the bytes of shared memory that wgmma and bulk copies read}}
llvm.func @bytes_unknown(%to: i64, %from: i32) attributes {nvvm.kernel} {
  %bytes = arith.constant 512 : i32
  llvm.inline_asm has_side_effects "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; cp.async.bulk.commit_group;", "l,r,n,~{memory}" %to, %from, %bytes : (i64, i32, i32) -> ()
  llvm.return
}
