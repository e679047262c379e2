// A kernel that does not fit says by how much, and what would fit.
// RUN: kdac-opt %s --split-input-file --verify-diagnostics --tile-place

#s = #tile.schedule<target = "sm_89", form = "chunk", chunk = 128, leaf = 16,
                    v_tile = 64, warps = 4, stages = 1, operand = bf16, gram = bf16>

// expected-error @below {{needs 133120 bytes of shared memory, but sm_89 has 101376; a smaller chunk than 128 or v_tile than 64 needs less}}
func.func @too_large(%a: !tile.ref<f32>, %out: !tile.ref<f32>, %n: index)
    attributes {tile.kernel, tile.schedule = #s, kdac.v_tile = 64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c256 = arith.constant 256 : index
  scf.for %i = %c0 to %n step %c1 {
    %x = tile.load %a[%i] stride %c256 valid [%c256, %c256] align 16 : !tile.ref<f32> -> tensor<128x256xf32>
    tile.store %x, %out[%i] stride %c256 valid [%c256, %c256] align 16 : tensor<128x256xf32>, !tile.ref<f32>
  }
  return
}

// -----

#w = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 64, warps = 20, stages = 6, operand = bf16, gram = bf16, roles = "warps">

// expected-error @below {{has no chunk loop with roles, which tile-split-roles writes}}
func.func @no_roles(%a: !tile.ref<bf16>, %n: index)
    attributes {tile.kernel, tile.schedule = #w, kdac.v_tile = 64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : tensor<64x64xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero) -> (tensor<64x64xf32>) {
    %x = tile.load %a[%i] stride %c64 valid [%c64, %c64] align 16 : !tile.ref<bf16> -> tensor<64x64xbf16>
    %y = arith.extf %x : tensor<64x64xbf16> to tensor<64x64xf32>
    %t = arith.addf %s, %y : tensor<64x64xf32>
    scf.yield %t : tensor<64x64xf32>
  }
  return
}

// -----

#w = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 64, warps = 8, stages = 6, operand = bf16, gram = bf16, roles = "warps">

// expected-error @below {{expected chunks of 32 rows and four warps and more for every role, but got 32 and 8 in all}}
func.func @few_warps(%a: !tile.ref<bf16>)
    attributes {tile.kernel, tile.schedule = #w, kdac.v_tile = 64} {
  return
}
