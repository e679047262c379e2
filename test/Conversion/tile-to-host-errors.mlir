// RUN: kdac-opt %s --split-input-file --verify-diagnostics --tile-to-host
// RUN: not kdac-opt %s --split-input-file --tile-to-host=vector-width=12 2>&1 | FileCheck %s --check-prefix=WIDTH
// WIDTH: error: expected a vector-width that is a power of two from 1 to 64, but got 12

// expected-error @below {{expected one block and no results for the host, but got 1 blocks and 1 results}}
func.func @has_results(%n: index) -> index attributes {tile.kernel} {
  return %n : index
}

// -----

func.func @unknown_op(%x: f32) attributes {tile.kernel} {
  // expected-error @below {{expected an op that tile-to-host lowers: tile ops, elementwise arith, splat constants, scf.for, scf.if of scalars, and exp2, log2, rsqrt, sqrt, absf, fma of math}}
  %0 = math.tanh %x : f32
  return
}

// -----

func.func @permuted(%out: !tile.ref<f32>, %n: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = arith.constant 1.0 : f32
  %a = tile.splat %x : f32 -> tensor<16xf32>
  %b = arith.addf %a, %a : tensor<16xf32>
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%p = %a, %q = %b)
      -> (tensor<16xf32>, tensor<16xf32>) {
    // expected-error @below {{expected carried tiles in their own places, but got them permuted}}
    scf.yield %q, %p : tensor<16xf32>, tensor<16xf32>
  }
  tile.store %r#0, %out[%c0] stride %c1 valid [%c1] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
}
