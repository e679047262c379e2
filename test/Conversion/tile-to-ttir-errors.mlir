// What has no Triton IR, and what would.
// RUN: kdac-opt %s --split-input-file --tile-to-ttir --verify-diagnostics

func.func @small_product(%x: !tile.ref<bf16>) attributes {tile.kernel} {
  %0 = arith.constant dense<1.0> : tensor<8x16xbf16>
  // expected-error @below {{has no Triton IR: expected at least 16 in every dimension of a product, but got 8; use a chunk, K and V of at least 16}}
  %1 = tile.dot %0, %0 {trans_b} : tensor<8x16xbf16>, tensor<8x16xbf16> -> tensor<8x8xf32>
  return
}

// -----

func.func @small_gram() attributes {tile.kernel} {
  %0 = arith.constant dense<1.0> : tensor<16x8xf32>
  // expected-error @below {{'tile.decayed_gram' op has no Triton IR: expected at least 16 in every dimension of a product, but got 8}}
  %1 = tile.decayed_gram lhs(%0 : tensor<16x8xf32>) rhs(%0) decay(%0) leaf 8 operand f16 strict [true]
      : tensor<16x8xf32> -> tensor<16x16xf32>
  return
}

// -----

func.func @workspace(%x: !tile.ref<i8>) attributes {tile.kernel} {
  // expected-error @below {{has no Triton IR: its kernel is several launches with a workspace between them; use roles fused}}
  %0 = tile.view %x[16] : !tile.ref<i8> -> !tile.ref<bf16>
  return
}

// -----

func.func @split(%n: index) attributes {tile.kernel} {
  // expected-error @below {{'tile.cut' op has no Triton IR: its kernel is several launches with a workspace between them; use roles fused}}
  tile.cut %n : index
  return
}

// -----

// expected-error @below {{has no Triton IR with roles split; use roles fused}}
func.func @roles() attributes {tile.kernel, tile.schedule = #tile.schedule<
    target = "sm_80", form = "chunk", chunk = 32, leaf = 1, v_tile = 64, warps = 4,
    stages = 2, operand = bf16, gram = bf16, roles = "split">} {
  return
}

// -----

// expected-error @below {{has no Triton IR: expected a power of two of warps, but got 6; use 4 or 8}}
func.func @warps() attributes {tile.kernel, tile.schedule = #tile.schedule<
    target = "sm_80", form = "chunk", chunk = 32, leaf = 1, v_tile = 64, warps = 6,
    stages = 2, operand = bf16, gram = bf16>} {
  return
}

// -----

func.func @other_op(%x: f32) attributes {tile.kernel} {
  // expected-error @below {{'math.log' op is not supported by tile-to-ttir; tile ops, elementwise arith, scf.for, and exp2, rsqrt and absf of math are}}
  %0 = math.log %x : f32
  return
}

// -----

func.func @constant() attributes {tile.kernel} {
  // expected-error @below {{of different elements has no Triton IR; use tile.iota or one value for all elements}}
  %0 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  return
}

// -----

func.func @variable_divisor(%x: index, %y: index) attributes {tile.kernel} {
  // expected-error @below {{has Triton IR for an index and a positive constant only}}
  %0 = arith.ceildivsi %x, %y : index
  return
}

// -----

// expected-error @below {{expected one tile kernel, since a Triton IR file holds one, but got 2}}
module {
  func.func @one() attributes {tile.kernel} { return }
  func.func @two() attributes {tile.kernel} { return }
}

// -----

// expected-error @below {{expected one tile kernel, since a Triton IR file holds one, but got 0}}
module {
}

// -----

func.func @rows_by_an_order(%x: !tile.ref<f32>, %o: !tile.ref<i32>, %i: index) attributes {tile.kernel} {
  // expected-error @below {{'tile.load' op has no Triton IR with rows by an order}}
  %0 = tile.load %x[%i] stride %i valid [%i, %i] rows(%o[%i] each %i of %i : !tile.ref<i32>) align 16
      : !tile.ref<f32> -> tensor<16x16xf32>
  return
}

// -----

func.func @greatest(%x: !tile.ref<f32>) attributes {tile.kernel} {
  %0 = arith.constant dense<1.0> : tensor<16x16xf32>
  // expected-error @below {{'tile.reduce' op has no Triton IR; only sums have}}
  %1 = tile.reduce %0 along 1 greatest : tensor<16x16xf32> -> tensor<16xf32>
  return
}
