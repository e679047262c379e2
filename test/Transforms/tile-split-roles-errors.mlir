// A kernel that cannot be split says what it lacks.
// RUN: kdac-opt %s --split-input-file --verify-diagnostics --tile-split-roles

#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16, roles = "split">
func.func @no_state(%w: !tile.ref<i8>, %n: index {kdac.name = "N"})
    attributes {tile.kernel, tile.schedule = #s, kdac.slices = 1} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    // expected-error @below {{cannot split a kernel without a loop around it that carries a state in stage tile-split-roles}}
    tile.cut %i : index
  }
  return
}

// -----

#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16, roles = "split">
func.func @no_slices(%n: index {kdac.name = "N"})
    attributes {tile.kernel, tile.schedule = #s} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<32x32xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero) -> (tensor<32x32xf32>) {
    // expected-error @below {{cannot split a kernel without kdac.slices in stage tile-split-roles}}
    tile.cut %i : index
    scf.yield %s : tensor<32x32xf32>
  }
  return
}

// -----

#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16, roles = "split">
func.func @no_program(%n: index {kdac.name = "N"})
    attributes {tile.kernel, tile.schedule = #s, kdac.slices = 1} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<32x32xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero) -> (tensor<32x32xf32>) {
    // expected-error @below {{cannot split a kernel without a tile.program_id in stage tile-split-roles}}
    tile.cut %i : index
    scf.yield %s : tensor<32x32xf32>
  }
  return
}

// -----

#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16, roles = "split">
func.func @no_workspace(%n: index {kdac.name = "N"})
    attributes {tile.kernel, tile.schedule = #s, kdac.slices = 1} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<32x32xf32>
  %id = tile.program_id : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero) -> (tensor<32x32xf32>) {
    // expected-error @below {{cannot split a kernel without a workspace in stage tile-split-roles}}
    tile.cut %i : index
    scf.yield %s : tensor<32x32xf32>
  }
  return
}

// -----

#s = #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16,
                    v_tile = 32, warps = 4, stages = 1, operand = bf16, gram = bf16, roles = "split">
func.func @no_heads(%w: !tile.ref<i8>, %n: index {kdac.name = "N"})
    attributes {tile.kernel, tile.schedule = #s, kdac.slices = 1} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<32x32xf32>
  %id = tile.program_id : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero) -> (tensor<32x32xf32>) {
    // expected-error @below {{cannot split a kernel without sizes N and HV among its arguments in stage tile-split-roles}}
    tile.cut %i : index
    scf.yield %s : tensor<32x32xf32>
  }
  return
}
