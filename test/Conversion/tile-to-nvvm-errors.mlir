// RUN: kdac-opt %s --verify-diagnostics --tile-to-nvvm

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
