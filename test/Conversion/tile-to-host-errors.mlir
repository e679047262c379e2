// RUN: kdac-opt %s --tile-to-host --split-input-file --verify-diagnostics
// RUN: not kdac-opt %s --tile-to-host=vector-width=12 --split-input-file 2>&1 | FileCheck %s
// CHECK: expected a vector-width that is a power of two from 1 to 64, but got 12

func.func @unknown_op(%p: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %x = tile.load %p[%z] stride %one valid [%one] align 4 : !tile.ref<f32> -> tensor<16xf32>
  // expected-error @below {{'math.tanh' op expected an op that tile-to-host lowers: tile ops, elementwise arith, splat constants, scf.for, scf.if of scalars, and exp2, log2, rsqrt, sqrt, absf, fma of math}}
  %y = math.tanh %x : tensor<16xf32>
  tile.store %y, %p[%z] stride %one valid [%one] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
}

// -----

func.func @permuted_carry(%p: !tile.ref<f32>, %t: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %x = tile.load %p[%z] stride %one valid [%one] align 4 : !tile.ref<f32> -> tensor<16xf32>
  %y = arith.addf %x, %x : tensor<16xf32>
  %a, %b = scf.for %i = %z to %t step %one iter_args(%u = %x, %v = %y) -> (tensor<16xf32>, tensor<16xf32>) {
    // expected-error @below {{expected carried tiles in their own places, but got them permuted}}
    scf.yield %v, %u : tensor<16xf32>, tensor<16xf32>
  }
  tile.store %a, %p[%z] stride %one valid [%one] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
}

// -----

// expected-error @below {{expected one block and no results for the host, but got 1 blocks and 1 results}}
func.func @results(%n: index) -> index attributes {tile.kernel} {
  return %n : index
}

// -----

// expected-error @below {{expected arguments of type !tile.ref, index or f32, but got 'tensor<16xf32>'}}
func.func @tile_argument(%x: tensor<16xf32>) attributes {tile.kernel} {
  return
}

// -----

func.func @carried_mask(%p: !tile.ref<f32>, %t: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %x = tile.load %p[%z] stride %one valid [%one] align 4 : !tile.ref<f32> -> tensor<16xf32>
  %m = arith.cmpf olt, %x, %x : tensor<16xf32>
  // expected-error @below {{expected tiles in memory and across iterations to be bf16, f16, tf32 or f32 of rank 1 or 2}}
  %n = scf.for %i = %z to %t step %one iter_args(%u = %m) -> tensor<16xi1> {
    scf.yield %u : tensor<16xi1>
  }
  return
}

// -----

func.func @integers_in_memory(%p: !tile.ref<i32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  // expected-error @below {{expected tiles in memory and across iterations to be bf16, f16, tf32 or f32 of rank 1 or 2}}
  %x = tile.load %p[%z] stride %one valid [%one] align 4 : !tile.ref<i32> -> tensor<16xi32>
  return
}

// -----

// expected-error @below {{needs 4297064448 bytes of scratch per thread, but tile-to-host addresses 2147483647; smaller tiles would fit}}
func.func @too_much_scratch(%p: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %n = arith.constant 32768 : index
  %x = tile.load %p[%z] stride %n valid [%n, %n] transposed align 4 : !tile.ref<f32> -> tensor<32768x32768xf32>
  tile.store %x, %p[%z] stride %n valid [%n, %n] align 4 : tensor<32768x32768xf32>, !tile.ref<f32>
  return
}

// -----

func.func @split_roles(%p: !tile.ref<f32>) attributes {tile.kernel} {
  // expected-error @below {{'tile.num_programs' op belongs to kernels with split roles, which only GPUs run; use roles fused on the host}}
  %n = tile.num_programs : index
  return
}
