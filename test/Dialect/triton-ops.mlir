// Every op of dialect/Triton/SPEC.md parses and prints as Triton spells it; the
// text of this file is accepted by Triton 3.6 (test/Triton).
// RUN: kdac-opt %s | kdac-opt | FileCheck %s
// RUN: kdac-opt %s --mlir-print-op-generic | kdac-opt | FileCheck %s

module {
  // CHECK: tt.func public @ops(%arg0: !tt.ptr<bf16> {kdac.name = "x", tt.divisibility = 16 : i32}, %arg1: !tt.ptr<f32>, %arg2: i64, %arg3: f32) attributes {noinline = false} {
  tt.func public @ops(%x: !tt.ptr<bf16> {kdac.name = "x", tt.divisibility = 16 : i32}, %y: !tt.ptr<f32>, %n: i64, %s: f32) attributes {noinline = false} {
    %zero = arith.constant dense<0.000000e+00> : tensor<16x16xf32>
    %c16 = arith.constant dense<16> : tensor<16x1xi32>
    %c16_i32 = arith.constant 16 : i32
    // CHECK: tt.get_program_id x : i32
    %pid = tt.get_program_id x : i32
    // CHECK: tt.get_num_programs x : i32
    %num = tt.get_num_programs x : i32
    // CHECK: tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    %r = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
    // CHECK: tt.expand_dims %{{.*}} {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %i = tt.expand_dims %r {axis = 1 : i32} : tensor<16xi32> -> tensor<16x1xi32>
    %j = tt.expand_dims %r {axis = 0 : i32} : tensor<16xi32> -> tensor<1x16xi32>
    %row = arith.muli %i, %c16 : tensor<16x1xi32>
    // CHECK: tt.addptr %arg0, %{{.*}} : !tt.ptr<bf16>, i32
    %base = tt.addptr %x, %pid : !tt.ptr<bf16>, i32
    // CHECK: tt.splat %{{.*}} : !tt.ptr<bf16> -> tensor<16x1x!tt.ptr<bf16>>
    %p0 = tt.splat %base : !tt.ptr<bf16> -> tensor<16x1x!tt.ptr<bf16>>
    // CHECK: tt.addptr %{{.*}}, %{{.*}} {tt.divisibility = dense<16> : tensor<2xi32>} : tensor<16x1x!tt.ptr<bf16>>, tensor<16x1xi32>
    %p1 = tt.addptr %p0, %row {tt.divisibility = dense<16> : tensor<2xi32>} : tensor<16x1x!tt.ptr<bf16>>, tensor<16x1xi32>
    // CHECK: tt.broadcast %{{.*}} : tensor<16x1x!tt.ptr<bf16>> -> tensor<16x16x!tt.ptr<bf16>>
    %p2 = tt.broadcast %p1 : tensor<16x1x!tt.ptr<bf16>> -> tensor<16x16x!tt.ptr<bf16>>
    %jj = tt.broadcast %j : tensor<1x16xi32> -> tensor<16x16xi32>
    %p = tt.addptr %p2, %jj : tensor<16x16x!tt.ptr<bf16>>, tensor<16x16xi32>
    // CHECK: tt.ptr_to_int %arg1 : !tt.ptr<f32> -> i64
    %address = tt.ptr_to_int %y : !tt.ptr<f32> -> i64
    %c0_i64 = arith.constant 0 : i64
    %present = arith.cmpi ne, %address, %c0_i64 : i64
    %mask = tt.splat %present : i1 -> tensor<16x16xi1>
    %other = arith.constant dense<0.000000e+00> : tensor<16x16xbf16>
    // CHECK: tt.load %{{.*}}, %{{.*}}, %{{.*}} : tensor<16x16x!tt.ptr<bf16>>
    %a = tt.load %p, %mask, %other : tensor<16x16x!tt.ptr<bf16>>
    // CHECK: tt.load %{{.*}} : tensor<16x16x!tt.ptr<bf16>>
    %b = tt.load %p : tensor<16x16x!tt.ptr<bf16>>
    // CHECK: tt.load %arg1, %{{.*}}, %arg3 : !tt.ptr<f32>
    %scalar = tt.load %y, %present, %s : !tt.ptr<f32>
    // CHECK: tt.trans %{{.*}} {order = array<i32: 1, 0>} : tensor<16x16xbf16> -> tensor<16x16xbf16>
    %t = tt.trans %b {order = array<i32: 1, 0>} : tensor<16x16xbf16> -> tensor<16x16xbf16>
    // CHECK: tt.dot %{{.*}}, %{{.*}}, %{{.*}} : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>
    %d = tt.dot %a, %t, %zero : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>
    // CHECK: tt.dot %{{.*}}, %{{.*}}, %{{.*}}, inputPrecision = tf32 : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
    %e = tt.dot %d, %d, %zero, inputPrecision = tf32 : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
    // CHECK: "tt.scan"(%{{.*}}) <{axis = 0 : i32, reverse = false}> ({
    %f = "tt.scan"(%e) <{axis = 0 : i32, reverse = false}> ({
    ^bb0(%u: f32, %v: f32):
      %w = arith.addf %u, %v : f32
      // CHECK: tt.scan.return %{{.*}} : f32
      tt.scan.return %w : f32
    // CHECK: }) : (tensor<16x16xf32>) -> tensor<16x16xf32>
    }) : (tensor<16x16xf32>) -> tensor<16x16xf32>
    // CHECK: tt.reshape %{{.*}} : tensor<16x16xf32> -> tensor<2x8x16xf32>
    %g = tt.reshape %f : tensor<16x16xf32> -> tensor<2x8x16xf32>
    // CHECK: "tt.reduce"(%{{.*}}) <{axis = 1 : i32}> ({
    %h = "tt.reduce"(%g) <{axis = 1 : i32}> ({
    ^bb0(%u: f32, %v: f32):
      %w = arith.addf %u, %v : f32
      // CHECK: tt.reduce.return %{{.*}} : f32
      tt.reduce.return %w : f32
    // CHECK: }) : (tensor<2x8x16xf32>) -> tensor<2x16xf32>
    }) : (tensor<2x8x16xf32>) -> tensor<2x16xf32>
    // CHECK: tt.bitcast %{{.*}} : tensor<2x16xf32> -> tensor<2x16xi32>
    %bits = tt.bitcast %h : tensor<2x16xf32> -> tensor<2x16xi32>
    %narrow = arith.truncf %f : tensor<16x16xf32> to tensor<16x16xbf16>
    // CHECK: tt.store %{{.*}}, %{{.*}}, %{{.*}} : tensor<16x16x!tt.ptr<bf16>>
    tt.store %p, %narrow, %mask : tensor<16x16x!tt.ptr<bf16>>
    // CHECK: tt.store %arg1, %{{.*}} : !tt.ptr<f32>
    tt.store %y, %scalar : !tt.ptr<f32>
    // CHECK: tt.return
    tt.return
  }
}
