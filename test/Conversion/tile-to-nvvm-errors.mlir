// RUN: kdac-opt %s --split-input-file --verify-diagnostics --tile-to-nvvm

#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16>

func.func @unknown_op(%out: !tile.ref<f32>, %flag: index)
    attributes {tile.kernel, tile.schedule = #s} {
  %true = arith.constant true
  // expected-error @below {{has no lowering to NVVM in stage tile-to-nvvm}}
  scf.if %true {
  }
  return
}

// -----

#w = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 64, warps = 16, stages = 6, operand = bf16, gram = bf16,
                    roles = "warps">

// expected-error @below {{expected tile.scratch, which tile-place writes}}
func.func @not_placed(%out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #w} {
  return
}

// -----

#w = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 64, warps = 16, stages = 6, operand = bf16, gram = bf16,
                    roles = "warps">

// expected-error @below {{has no chunk loop that roles warps can lower in stage tile-to-nvvm; roles split and fused take any}}
func.func @no_chunk_loop(%out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #w, tile.scratch = array<i64: 0, 16>, tile.barriers = 0,
                tile.registers = array<i64: 8, 8, 8, 8>, tile.image = array<i64: 0, 0, 0>} {
  return
}

// -----

#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16>

func.func @window(%out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s} {
  %x = arith.constant dense<1.0> : tensor<67x32xf32>
  // expected-error @below {{has a lowering to NVVM in kernels of form rows only}}
  %0 = tile.window %x[3] : tensor<67x32xf32> -> tensor<64x32xf32>
  return
}

// -----

#a = #tile.schedule<target = "sm_90a", form = "attention", chunk = 32, leaf = 1,
                    v_tile = 16, warps = 8, stages = 1, operand = bf16, gram = bf16>

func.func @greatest(%x: !tile.ref<f32>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #a} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0] stride %n valid [%n, %n] align 16 : !tile.ref<f32> -> tensor<16x16xf32>
  // expected-error @below {{finds the greatest along rows that no product made; of products, columns and vectors works}}
  %s = tile.reduce %a along 1 greatest : tensor<16x16xf32> -> tensor<16xf32>
  tile.store %s, %out[%c0] stride %n valid [%n] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
}

// -----

#a = #tile.schedule<target = "sm_90a", form = "attention", chunk = 32, leaf = 1,
                    v_tile = 16, warps = 1, stages = 1, operand = bf16, gram = bf16>

func.func @columns(%x: !tile.ref<f32>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #a} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0] stride %n valid [%n, %n] align 16 : !tile.ref<f32> -> tensor<16x48xf32>
  // expected-error @below {{reduces 16 rows of 48 columns with 32 threads, which should be a multiple of the columns}}
  %s = tile.reduce %a along 0 : tensor<16x48xf32> -> tensor<48xf32>
  tile.store %s, %out[%c0] stride %n valid [%n] align 4 : tensor<48xf32>, !tile.ref<f32>
  return
}

// -----

func.func @no_products(%out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #tile.schedule<target = "sm_90a", form = "matmul", chunk = 64, leaf = 1,
                v_tile = 128, warps = 8, stages = 4, operand = bf16, gram = bf16, roles = "warpgroups">} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = arith.constant dense<1.0> : tensor<128x64xf32>
  // expected-error @below {{has no turns that roles warpgroups can lower in stage tile-to-nvvm, which add products of bf16 tiles in panels of 3 buffers and more, 64 rows for four warps, to carried tiles; roles fused takes any}}
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%y = %x) -> (tensor<128x64xf32>) {
    %z = arith.addf %y, %x : tensor<128x64xf32>
    scf.yield %z : tensor<128x64xf32>
  }
  tile.store %r, %out[%c0] stride %n valid [%n, %n] align 4 : tensor<128x64xf32>, !tile.ref<f32>
  return
}

// -----

#w = #tile.schedule<target = "sm_90a", form = "attention", chunk = 64, leaf = 1,
                    v_tile = 128, warps = 8, stages = 2, operand = bf16, gram = bf16, roles = "warpgroups">

func.func @no_turns(%out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #w} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = arith.constant dense<1.0> : tensor<128x64xf32>
  // expected-error @below {{has no turns that roles warpgroups can lower in stage tile-to-nvvm, which are products of bf16 tiles in panels that score, 64 rows for four warps, and one that adds weights times values to a carried tile times a number a row; roles fused takes any}}
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%y = %x) -> (tensor<128x64xf32>) {
    %z = arith.addf %y, %x : tensor<128x64xf32>
    scf.yield %z : tensor<128x64xf32>
  }
  tile.store %r, %out[%c0] stride %n valid [%n, %n] align 4 : tensor<128x64xf32>, !tile.ref<f32>
  return
}
