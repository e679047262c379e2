// Every decision of the schedule, and what it follows from.
// RUN: kdac-opt %s --dplr-select-schedule=target=sm_90a | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: kdac-opt %s --dplr-select-schedule=target=host | FileCheck %s --check-prefixes=CHECK,HOST
// RUN: kdac-opt %s --dplr-select-schedule="target=sm_90a chunk=16 v-tile=48 warps=8" | FileCheck %s --check-prefix=FORCED

// Operands of products are bf16 for bf16 inputs on tensor cores, f32 on the host.
// A bound of -5 and unit keys allow leaves of 16 rows: 15 * 5 * log2(e) = 108.2.
// CHECK-LABEL: func.func @bounded_unit_keys(
// GPU-SAME: #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16, v_tile = 128, warps = 8, stages = 2, operand = bf16, gram = bf16, roles = "split">
// HOST-SAME: #tile.schedule<target = "host", form = "chunk", chunk = 32, leaf = 16, v_tile = 128, warps = 1, stages = 1, operand = f32, gram = f32>
// FORCED-LABEL: func.func @bounded_unit_keys(
// FORCED-SAME: chunk = 16, leaf = 16, v_tile = 48, warps = 8
func.func @bounded_unit_keys(%q: tensor<?x?x128xbf16>, %g: tensor<?x?x128xbf16>, %s: f32)
    -> (tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>)
    attributes {dplr.form = #dplr.form<chunk>} {
  %k = dplr.l2norm %q eps 1.0e-06 : tensor<?x?x128xbf16>
  %d = dplr.log_decay <bounded> %g bound -5.0 : tensor<?x?x128xbf16> -> tensor<?x?x128xf32>
  %o, %ht = dplr.recurrence q(%k : tensor<?x?x128xbf16>) k(%k : tensor<?x?x128xbf16>)
      v(%q : tensor<?x?x128xbf16>) decay(%d : tensor<?x?x128xf32>) scale(%s)
      {delta, layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
  return %o, %ht : tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
}

// 15 * 5.5 * log2(e) = 119 would not overflow, but would flush left factors below
// 2^-7 to zero.
// CHECK-LABEL: func.func @flushing_bound(
// CHECK-SAME: leaf = 8
func.func @flushing_bound(%q: tensor<?x?x128xbf16>, %g: tensor<?x?x128xbf16>, %s: f32)
    -> (tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>)
    attributes {dplr.form = #dplr.form<chunk>} {
  %k = dplr.l2norm %q eps 1.0e-06 : tensor<?x?x128xbf16>
  %d = dplr.log_decay <bounded> %g bound -5.5 : tensor<?x?x128xbf16> -> tensor<?x?x128xf32>
  %o, %ht = dplr.recurrence q(%k : tensor<?x?x128xbf16>) k(%k : tensor<?x?x128xbf16>)
      v(%q : tensor<?x?x128xbf16>) decay(%d : tensor<?x?x128xf32>) scale(%s)
      {delta, layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
  return %o, %ht : tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
}

// Keys of any size take 64 of the 120 bits of range: 7 * 5 * log2(e) = 50.5 fits.
// CHECK-LABEL: func.func @bounded_raw_keys(
// CHECK-SAME: leaf = 8
func.func @bounded_raw_keys(%q: tensor<?x?x128xbf16>, %g: tensor<?x?x128xbf16>, %s: f32)
    -> (tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>)
    attributes {dplr.form = #dplr.form<chunk>} {
  %d = dplr.log_decay <bounded> %g bound -5.0 : tensor<?x?x128xbf16> -> tensor<?x?x128xf32>
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x128xbf16>) k(%q : tensor<?x?x128xbf16>)
      v(%q : tensor<?x?x128xbf16>) decay(%d : tensor<?x?x128xf32>) scale(%s)
      {delta, layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
  return %o, %ht : tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
}

// A gate twice as strong halves the leaf.
// CHECK-LABEL: func.func @strong_bound(
// CHECK-SAME: leaf = 8
func.func @strong_bound(%q: tensor<?x?x128xbf16>, %g: tensor<?x?x128xbf16>, %s: f32)
    -> (tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>)
    attributes {dplr.form = #dplr.form<chunk>} {
  %k = dplr.l2norm %q eps 1.0e-06 : tensor<?x?x128xbf16>
  %d = dplr.log_decay <bounded> %g bound -10.0 : tensor<?x?x128xbf16> -> tensor<?x?x128xf32>
  %o, %ht = dplr.recurrence q(%k : tensor<?x?x128xbf16>) k(%k : tensor<?x?x128xbf16>)
      v(%q : tensor<?x?x128xbf16>) decay(%d : tensor<?x?x128xf32>) scale(%s)
      {delta, layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
  return %o, %ht : tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
}

// Nothing bounds softplus: leaves of one row, every exponent at most 0. Factors of
// unit rows then lie in the unit ball, where f16 has more bits than bf16.
// CHECK-LABEL: func.func @softplus(
// CHECK-SAME: leaf = 1,
// GPU-SAME: operand = bf16, gram = f16
// HOST-SAME: operand = f32, gram = f32
func.func @softplus(%q: tensor<?x?x128xbf16>, %g: tensor<?x?x128xbf16>, %s: f32)
    -> (tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>)
    attributes {dplr.form = #dplr.form<chunk>} {
  %k = dplr.l2norm %q eps 1.0e-06 : tensor<?x?x128xbf16>
  %d = dplr.log_decay <softplus> %g : tensor<?x?x128xbf16> -> tensor<?x?x128xf32>
  %o, %ht = dplr.recurrence q(%k : tensor<?x?x128xbf16>) k(%k : tensor<?x?x128xbf16>)
      v(%q : tensor<?x?x128xbf16>) decay(%d : tensor<?x?x128xf32>) scale(%s)
      {delta, layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
  return %o, %ht : tensor<?x?x128xbf16>, tensor<?x?x128x128xf32>
}

// A decay straight from an argument has no proven bound either.
// CHECK-LABEL: func.func @precomputed(
// CHECK-SAME: leaf = 1,
func.func @precomputed(%q: tensor<?x?x64xbf16>, %d: tensor<?x?x64xf32>, %s: f32)
    -> (tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>)
    attributes {dplr.form = #dplr.form<chunk>} {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xbf16>) k(%q : tensor<?x?x64xbf16>)
      v(%q : tensor<?x?x64xbf16>) decay(%d : tensor<?x?x64xf32>) scale(%s)
      {delta, layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
  return %o, %ht : tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
}

// f16 keeps more mantissa than bf16 but less range: tf32, which has f32's range.
// CHECK-LABEL: func.func @half_inputs(
// GPU-SAME: operand = tf32
// HOST-SAME: operand = f32
func.func @half_inputs(%q: tensor<?x?x64xf16>, %s: f32)
    -> (tensor<?x?x64xf16>, tensor<?x?x64x64xf32>)
    attributes {dplr.form = #dplr.form<chunk>} {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf16>) k(%q : tensor<?x?x64xf16>)
      v(%q : tensor<?x?x64xf16>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xf16>, tensor<?x?x64x64xf32>
  return %o, %ht : tensor<?x?x64xf16>, tensor<?x?x64x64xf32>
}

// CHECK-LABEL: func.func @fast(
// GPU-SAME: operand = bf16
func.func @fast(%q: tensor<?x?x64xf32>, %s: f32)
    -> (tensor<?x?x64xf32>, tensor<?x?x64x64xf32>)
    attributes {dplr.form = #dplr.form<chunk>} {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x64xf32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<fast>}
      -> tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
  return %o, %ht : tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
}

// Where roles cannot be warps, which have 16-bit operands.
// CHECK-LABEL: func.func @high(
// GPU-SAME: operand = tf32
func.func @high(%q: tensor<?x?x32xbf16>, %s: f32)
    -> (tensor<?x?x32xbf16>, tensor<?x?x32x32xf32>)
    attributes {dplr.form = #dplr.form<chunk>} {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x32xbf16>) k(%q : tensor<?x?x32xbf16>)
      v(%q : tensor<?x?x32xbf16>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<high>}
      -> tensor<?x?x32xbf16>, tensor<?x?x32x32xf32>
  return %o, %ht : tensor<?x?x32xbf16>, tensor<?x?x32x32xf32>
}

// Nothing of a step can be prepared ahead: roles stay fused.
// CHECK-LABEL: func.func @step(
// CHECK-SAME: form = "step", chunk = 1, leaf = 1
// CHECK-NOT: roles
// CHECK: dplr.recurrence
// FORCED-LABEL: func.func @step(
// FORCED-SAME: form = "step", chunk = 1, leaf = 1, v_tile = 48, warps = 8
func.func @step(%q: tensor<?x?x64xbf16>, %s: f32)
    -> (tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>)
    attributes {dplr.form = #dplr.form<step>} {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xbf16>) k(%q : tensor<?x?x64xbf16>)
      v(%q : tensor<?x?x64xbf16>) erase(%q : tensor<?x?x64xbf16>, %q : tensor<?x?x64xbf16>)
      scale(%s) {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
  return %o, %ht : tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
}

// Functions without a form are none of this pass's business.
// CHECK-LABEL: func.func @untouched()
// CHECK-NOT: tile.schedule
func.func @untouched() { return }
