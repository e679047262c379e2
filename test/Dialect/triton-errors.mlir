// One negative per label of dialect/Triton/SPEC.md.
// RUN: kdac-opt %s --split-input-file --verify-diagnostics

tt.func @tensor_c1_odd(%x: i32) {
  // expected-error @below {{expected tensors of a power of two of elements, at most 1048576, but got 'tensor<3x16xi32>'}}
  %0 = tt.splat %x : i32 -> tensor<3x16xi32>
  tt.return
}

// -----

tt.func @tensor_c1_large(%x: i32) {
  // expected-error @below {{expected tensors of a power of two of elements, at most 1048576, but got 'tensor<2097152xi32>'}}
  %0 = tt.splat %x : i32 -> tensor<2097152xi32>
  tt.return
}

// -----

tt.func @make_range_c1() {
  // expected-error @below {{expected a vector of i32 of the range's length, but got 'tensor<16xi32>' for 0 to 8}}
  %0 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<16xi32>
  tt.return
}

// -----

tt.func @splat_c1(%x: i32) {
  // expected-error @below {{expected a tensor of 'i32', but got 'tensor<16xi64>'}}
  %0 = tt.splat %x : i32 -> tensor<16xi64>
  tt.return
}

// -----

tt.func @expand_dims_c1_axis(%x: tensor<16xi32>) {
  // expected-error @below {{expected a dimension of 1 to be inserted at 2, but got 'tensor<16xi32>' and 'tensor<16x1xi32>'}}
  %0 = tt.expand_dims %x {axis = 2 : i32} : tensor<16xi32> -> tensor<16x1xi32>
  tt.return
}

// -----

tt.func @expand_dims_c1_shape(%x: tensor<16xi32>) {
  // expected-error @below {{expected a dimension of 1 to be inserted at 0, but got}}
  %0 = tt.expand_dims %x {axis = 0 : i32} : tensor<16xi32> -> tensor<16x1xi32>
  tt.return
}

// -----

tt.func @broadcast_c1(%x: tensor<16x2xi32>) {
  // expected-error @below {{expected dimensions of 1 to grow, but got 'tensor<16x2xi32>' and 'tensor<16x4xi32>'}}
  %0 = tt.broadcast %x : tensor<16x2xi32> -> tensor<16x4xi32>
  tt.return
}

// -----

tt.func @reshape_c1(%x: tensor<16x2xi32>) {
  // expected-error @below {{expected the same elements in another shape, but got 'tensor<16x2xi32>' and 'tensor<16xi32>'}}
  %0 = tt.reshape %x : tensor<16x2xi32> -> tensor<16xi32>
  tt.return
}

// -----

tt.func @trans_c1_order(%x: tensor<16x2xi32>) {
  // expected-error @below {{expected dimensions in the order given, but got}}
  %0 = tt.trans %x {order = array<i32: 1, 1>} : tensor<16x2xi32> -> tensor<2x2xi32>
  tt.return
}

// -----

tt.func @trans_c1_shape(%x: tensor<16x2xi32>) {
  // expected-error @below {{expected dimensions in the order given, but got}}
  %0 = tt.trans %x {order = array<i32: 1, 0>} : tensor<16x2xi32> -> tensor<16x2xi32>
  tt.return
}

// -----

tt.func @addptr_c1(%x: tensor<16x!tt.ptr<f32>>, %n: i32) {
  // expected-error @below {{expected an offset per pointer, but got 'tensor<16x!tt.ptr<f32>>' and 'i32'}}
  %0 = tt.addptr %x, %n : tensor<16x!tt.ptr<f32>>, i32
  tt.return
}

// -----

tt.func @dot_c1(%a: tensor<16x32xf16>, %c: tensor<16x32xf32>) {
  // expected-error @below {{expected (m x k) (k x n) -> (m x n), but got 'tensor<16x32xf16>', 'tensor<16x32xf16>' and 'tensor<16x32xf32>'}}
  %0 = tt.dot %a, %a, %c : tensor<16x32xf16> * tensor<16x32xf16> -> tensor<16x32xf32>
  tt.return
}

// -----

tt.func @dot_c2_operands(%a: tensor<16x16xf16>, %b: tensor<16x16xbf16>, %c: tensor<16x16xf32>) {
  // expected-error @below {{expected operands of one type out of bf16, f16 and f32 and sums of f32, but got }}
  %0 = tt.dot %a, %b, %c : tensor<16x16xf16> * tensor<16x16xbf16> -> tensor<16x16xf32>
  tt.return
}

// -----

tt.func @dot_c2_sums(%a: tensor<16x16xf16>) {
  // expected-error @below {{expected operands of one type out of bf16, f16 and f32 and sums of f32, but got }}
  %0 = tt.dot %a, %a, %a : tensor<16x16xf16> * tensor<16x16xf16> -> tensor<16x16xf16>
  tt.return
}

// -----

tt.func @combine_c1(%x: tensor<16xf32>) {
  // expected-error @below {{expected a region of two elements of type 'f32' that gives one}}
  %0 = "tt.reduce"(%x) <{axis = 0 : i32}> ({
  ^bb0(%u: f32):
    tt.reduce.return %u : f32
  }) : (tensor<16xf32>) -> f32
  tt.return
}

// -----

tt.func @reduce_c1_axis(%x: tensor<16xf32>) {
  // expected-error @below {{expected the shape without dimension 1, but got 'tensor<16xf32>' and 'f32'}}
  %0 = "tt.reduce"(%x) <{axis = 1 : i32}> ({
  ^bb0(%u: f32, %v: f32):
    tt.reduce.return %u : f32
  }) : (tensor<16xf32>) -> f32
  tt.return
}

// -----

tt.func @reduce_c1_shape(%x: tensor<16x32xf32>) {
  // expected-error @below {{expected the shape without dimension 0, but got 'tensor<16x32xf32>' and 'tensor<16xf32>'}}
  %0 = "tt.reduce"(%x) <{axis = 0 : i32}> ({
  ^bb0(%u: f32, %v: f32):
    tt.reduce.return %u : f32
  }) : (tensor<16x32xf32>) -> tensor<16xf32>
  tt.return
}

// -----

tt.func @scan_c1(%x: tensor<16xf32>) {
  // expected-error @below {{expected a dimension of 'tensor<16xf32>', but got 1}}
  %0 = "tt.scan"(%x) <{axis = 1 : i32, reverse = false}> ({
  ^bb0(%u: f32, %v: f32):
    tt.scan.return %u : f32
  }) : (tensor<16xf32>) -> tensor<16xf32>
  tt.return
}

// -----

tt.func @load_mask(%x: tensor<16x!tt.ptr<f32>>, %m: tensor<8xi1>) {
  // expected-note @above {{prior use here}}
  // expected-error @below {{expects different type than prior uses: 'tensor<16xi1>' vs 'tensor<8xi1>'}}
  %0 = tt.load %x, %m : tensor<16x!tt.ptr<f32>>
  tt.return
}
