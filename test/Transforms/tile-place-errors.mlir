// A kernel that does not fit says by how much, and what would fit.
// RUN: kdac-opt %s --verify-diagnostics --tile-place

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
