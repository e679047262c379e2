// One negative per label of dialect/Tile/SPEC.md.
// RUN: kdac-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{expected form "chunk", "step", "rows", "attention" or "matmul", but got "scan"}}
func.func private @schedule_c1() attributes {tile.schedule = #tile.schedule<
  target = "host", form = "scan", chunk = 64, leaf = 16, v_tile = 64, warps = 1, stages = 1, operand = f32, gram = f32>}

// -----

// expected-error @below {{expected powers of two with leaf <= chunk, but got chunk 48 and leaf 16}}
func.func private @schedule_c2_chunk() attributes {tile.schedule = #tile.schedule<
  target = "host", form = "chunk", chunk = 48, leaf = 16, v_tile = 64, warps = 1, stages = 1, operand = f32, gram = f32>}

// -----

// expected-error @below {{expected powers of two with leaf <= chunk, but got chunk 16 and leaf 32}}
func.func private @schedule_c2_leaf() attributes {tile.schedule = #tile.schedule<
  target = "host", form = "chunk", chunk = 16, leaf = 32, v_tile = 64, warps = 1, stages = 1, operand = f32, gram = f32>}

// -----

// expected-error @below {{expected a positive v_tile and warps and 1 to 8 stages, but got 0, 1 and 1}}
func.func private @schedule_c3() attributes {tile.schedule = #tile.schedule<
  target = "host", form = "chunk", chunk = 64, leaf = 16, v_tile = 0, warps = 1, stages = 1, operand = f32, gram = f32>}

// -----

// expected-error @below {{expected operand and gram of bf16, f16, tf32 or f32, but got 'f64'}}
func.func private @schedule_c4() attributes {tile.schedule = #tile.schedule<
  target = "host", form = "chunk", chunk = 64, leaf = 16, v_tile = 64, warps = 1, stages = 1, operand = f64, gram = f32>}

// -----

// expected-error @below {{expected a positive v_tile and warps and 1 to 8 stages, but got 64, 1 and 9}}
func.func private @schedule_c3_stages() attributes {tile.schedule = #tile.schedule<
  target = "host", form = "chunk", chunk = 64, leaf = 16, v_tile = 64, warps = 1, stages = 9, operand = f32, gram = f32>}

// -----

// expected-error @below {{expected operand and gram of bf16, f16, tf32 or f32, but got 'i32'}}
func.func private @schedule_c4_gram() attributes {tile.schedule = #tile.schedule<
  target = "host", form = "chunk", chunk = 64, leaf = 16, v_tile = 64, warps = 1, stages = 1, operand = f32, gram = i32>}

// -----

// expected-error @below {{expected roles "fused", "split", "warps", "cluster", "assisted", "prepare", "chain" or "warpgroups", but got "both"}}
func.func private @schedule_c5() attributes {tile.schedule = #tile.schedule<
  target = "host", form = "chunk", chunk = 64, leaf = 16, v_tile = 64, warps = 1, stages = 1, operand = f32, gram = f32, roles = "both">}

// -----

// expected-error @below {{expected stages that 2 blocks of a cluster share evenly, but got 5}}
func.func private @schedule_c6() attributes {tile.schedule = #tile.schedule<
  target = "sm_90a", form = "chunk", chunk = 32, leaf = 16, v_tile = 64, warps = 20, stages = 5, operand = bf16, gram = bf16, roles = "cluster">}

// -----

// expected-error @below {{expected 6 stages, two for each program of an assistant, and 128 columns of V, but got 6 and 64}}
func.func private @schedule_c6_assisted() attributes {tile.schedule = #tile.schedule<
  target = "sm_90a", form = "chunk", chunk = 32, leaf = 16, v_tile = 64, warps = 20, stages = 6, operand = bf16, gram = bf16, roles = "assisted">}

// -----

// expected-error @below {{expected roles as warps and bf16 operands where products are refined, but got roles "split" and operand 'bf16'}}
func.func private @schedule_c7_roles() attributes {tile.schedule = #tile.schedule<
  target = "sm_90a", form = "chunk", chunk = 32, leaf = 16, v_tile = 64, warps = 8, stages = 1, operand = bf16, gram = bf16, roles = "split", refined = true>}

// -----

// expected-error @below {{expected roles as warps and bf16 operands where products are refined, but got roles "warps" and operand 'tf32'}}
func.func private @schedule_c7_operand() attributes {tile.schedule = #tile.schedule<
  target = "sm_90a", form = "chunk", chunk = 32, leaf = 16, v_tile = 64, warps = 8, stages = 1, operand = tf32, gram = bf16, roles = "warps", refined = true>}

// -----

func.func @longest_c1(%r: !tile.ref<f32>, %i: index) {
  // expected-error @below {{expected offsets of i32 or i64, but got 'f32'}}
  %0 = tile.longest %r[%i] of %i : <f32>
  return
}

// -----

func.func @view_c1(%r: !tile.ref<f32>) {
  // expected-error @below {{expected a ref of i8 to view, but got '!tile.ref<f32>'}}
  %0 = tile.view %r[0] : !tile.ref<f32> -> !tile.ref<bf16>
  return
}

// -----

func.func @view_c2_odd(%r: !tile.ref<i8>) {
  // expected-error @below {{expected an offset that is a multiple of 16, but got 8}}
  %0 = tile.view %r[8] : !tile.ref<i8> -> !tile.ref<bf16>
  return
}

// -----

func.func @view_c2_negative(%r: !tile.ref<i8>) {
  // expected-error @below {{expected an offset that is a multiple of 16, but got -16}}
  %0 = tile.view %r[-16] : !tile.ref<i8> -> !tile.ref<bf16>
  return
}

// -----

func.func @check_slots_c1(%s: !tile.ref<i32>, %r: !tile.ref<i32>, %n: index) {
  // expected-error @below {{expected a status of i64, but got '!tile.ref<i32>'}}
  tile.check_slots %s, slots(%r) sources(%r) offsets(%r) count(%n) tokens(%n) pool(%n)
      : !tile.ref<i32>, !tile.ref<i32>, !tile.ref<i32>, !tile.ref<i32>
  return
}

// -----

func.func @check_slots_c2(%s: !tile.ref<i64>, %r: !tile.ref<i32>,
    %t: !tile.ref<f32>, %n: index) {
  // expected-error @below {{expected indices of i32 or i64, but got 'f32'}}
  tile.check_slots %s, slots(%r) sources(%r) snapshots(%t : !tile.ref<f32>) offsets(%r)
      count(%n) tokens(%n) pool(%n)
      : !tile.ref<i64>, !tile.ref<i32>, !tile.ref<i32>, !tile.ref<i32>
  return
}

// -----

func.func @load_scalar_c1_integer(%r: !tile.ref<i32>, %i: index, %x: f32) {
  // expected-error @below {{expected result and default of type 'index' for element type 'i32', but got 'f32' and 'f32'}}
  %0 = tile.load_scalar %r[%i] else %x : !tile.ref<i32> -> f32
  return
}

// -----

func.func @load_scalar_c1_float(%r: !tile.ref<bf16>, %i: index) {
  // expected-error @below {{expected result and default of type 'f32' for element type 'bf16', but got 'index' and 'index'}}
  %0 = tile.load_scalar %r[%i] else %i : !tile.ref<bf16> -> index
  return
}

// -----

func.func @access_c1_load(%r: !tile.ref<bf16>, %i: index) {
  // expected-error @below {{expected a tile of 'bf16', but got 'tensor<64xf32>'}}
  %0 = tile.load %r[%i] stride %i valid [%i] align 16 : !tile.ref<bf16> -> tensor<64xf32>
  return
}

// -----

func.func @access_c1_store(%r: !tile.ref<bf16>, %i: index, %x: tensor<64xf32>) {
  // expected-error @below {{expected a tile of 'bf16', but got 'tensor<64xf32>'}}
  tile.store %x, %r[%i] stride %i valid [%i] align 16 : tensor<64xf32>, !tile.ref<bf16>
  return
}

// -----

func.func @access_c2_valid(%r: !tile.ref<f32>, %i: index) {
  // expected-error @below {{expected rank 1 or 2 and one valid size per dimension, but got 'tensor<64x16xf32>' and 1}}
  %0 = tile.load %r[%i] stride %i valid [%i] align 16 : !tile.ref<f32> -> tensor<64x16xf32>
  return
}

// -----

func.func @access_c2_rank(%r: !tile.ref<f32>, %i: index) {
  // expected-error @below {{expected rank 1 or 2 and one valid size per dimension, but got 'tensor<4x4x4xf32>' and 3}}
  %0 = tile.load %r[%i] stride %i valid [%i, %i, %i] align 16 : !tile.ref<f32> -> tensor<4x4x4xf32>
  return
}

// -----

func.func @access_c3(%r: !tile.ref<f32>, %i: index) {
  // expected-error @below {{expected a tile of rank 2 to transpose, but got 'tensor<64xf32>'}}
  %0 = tile.load %r[%i] stride %i valid [%i] transposed align 16 : !tile.ref<f32> -> tensor<64xf32>
  return
}

// -----

func.func @access_c5(%r: !tile.ref<f32>, %o: !tile.ref<i32>, %i: index) {
  // expected-error @below {{expected order, first, each and count together}}
  %0 = "tile.load"(%r, %i, %i, %i, %i, %o) <{align = 4 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 2, 1, 0, 0, 0>}>
      : (!tile.ref<f32>, index, index, index, index, !tile.ref<i32>) -> tensor<64x16xf32>
  return
}

// -----

func.func @access_c6(%r: !tile.ref<f32>, %o: !tile.ref<i64>, %i: index) {
  // expected-error @below {{expected i32 numbers of rows that are not transposed, but got '!tile.ref<i64>' for 'tensor<64x16xf32>'}}
  %0 = tile.load %r[%i] stride %i valid [%i, %i] rows(%o[%i] each %i of %i : !tile.ref<i64>) align 4
      : !tile.ref<f32> -> tensor<64x16xf32>
  return
}

// -----

func.func @access_c7(%r: !tile.ref<f32>, %i: index) {
  // expected-error @below {{expected entries in a vector, but got 'tensor<64x16xf32>'}}
  %0 = tile.load %r[%i] stride %i entry %i valid [%i, %i] align 4
      : !tile.ref<f32> -> tensor<64x16xf32>
  return
}

// -----

func.func @access_c4_odd(%r: !tile.ref<f32>, %i: index) {
  // expected-error @below {{expected an alignment of 1, 2, 4, 8 or 16 bytes, but got 12}}
  %0 = tile.load %r[%i] stride %i valid [%i] align 12 : !tile.ref<f32> -> tensor<64xf32>
  return
}

// -----

func.func @access_c4_large(%r: !tile.ref<f32>, %i: index, %x: tensor<64xf32>) {
  // expected-error @below {{expected an alignment of 1, 2, 4, 8 or 16 bytes, but got 32}}
  tile.store %x, %r[%i] stride %i valid [%i] align 32 : tensor<64xf32>, !tile.ref<f32>
  return
}

// -----

func.func @broadcast_c1_size(%x: tensor<64xf32>) {
  // expected-error @below {{expected a vector of the tile's size along 1, but got 'tensor<64xf32>' and 'tensor<64x128xf32>'}}
  %0 = tile.broadcast %x along 1 : tensor<64xf32> -> tensor<64x128xf32>
  return
}

// -----

func.func @broadcast_c1_dimension(%x: tensor<64xf32>) {
  // expected-error @below {{expected a vector of the tile's size along 2}}
  %0 = tile.broadcast %x along 2 : tensor<64xf32> -> tensor<64x64xf32>
  return
}

// -----

func.func @row_c1_last(%x: tensor<64x128xf32>) {
  // expected-error @below {{expected a row of the tile, but got row 64 of 'tensor<64x128xf32>'}}
  %0 = tile.row %x[64] : tensor<64x128xf32> -> tensor<128xf32>
  return
}

// -----

func.func @row_c1_negative(%x: tensor<64x128xf32>) {
  // expected-error @below {{expected a row of the tile, but got row -1 of 'tensor<64x128xf32>'}}
  %0 = tile.row %x[-1] : tensor<64x128xf32> -> tensor<128xf32>
  return
}

// -----

func.func @window_c1_columns(%x: tensor<67x128xf32>) {
  // expected-error @below {{expected tiles with as many columns, but got 'tensor<67x128xf32>' and 'tensor<64x64xf32>'}}
  %0 = tile.window %x[1] : tensor<67x128xf32> -> tensor<64x64xf32>
  return
}

// -----

func.func @window_c2_end(%x: tensor<67x128xf32>) {
  // expected-error @below {{expected rows of 'tensor<67x128xf32>', but got 64 from row 4 on}}
  %0 = tile.window %x[4] : tensor<67x128xf32> -> tensor<64x128xf32>
  return
}

// -----

func.func @row_c2_vector(%x: tensor<64x128xf32>) {
  // expected-error @below {{expected result 'tensor<128xf32>', but got 'tensor<64xf32>'}}
  %0 = tile.row %x[0] : tensor<64x128xf32> -> tensor<64xf32>
  return
}

// -----

func.func @row_c2_scalar(%x: tensor<64xf32>) {
  // expected-error @below {{expected result 'f32', but got 'tensor<1xf32>'}}
  %0 = tile.row %x[0] : tensor<64xf32> -> tensor<1xf32>
  return
}

// -----

func.func @reduce_c1(%x: tensor<64x128xf32>) {
  // expected-error @below {{expected rank 1 or 2 and a dimension of the tile, but got 'tensor<64x128xf32>' and 2}}
  %0 = tile.reduce %x along 2 : tensor<64x128xf32> -> tensor<64xf32>
  return
}

// -----

func.func @reduce_c2_vector(%x: tensor<64x128xf32>) {
  // expected-error @below {{expected result 'tensor<64xf32>', but got 'tensor<128xf32>'}}
  %0 = tile.reduce %x along 1 : tensor<64x128xf32> -> tensor<128xf32>
  return
}

// -----

func.func @reduce_c2_scalar(%x: tensor<64xf32>) {
  // expected-error @below {{expected result 'f32', but got 'tensor<64xf32>'}}
  %0 = tile.reduce %x along 0 : tensor<64xf32> -> tensor<64xf32>
  return
}

// -----

func.func @dot_c1(%a: tensor<64xf32>, %b: tensor<64x16xf32>) {
  // expected-error @below {{expected tiles of rank 2, but got 'tensor<64xf32>', 'tensor<64x16xf32>' and 'tensor<16x16xf32>'}}
  %0 = tile.dot %a, %b : tensor<64xf32>, tensor<64x16xf32> -> tensor<16x16xf32>
  return
}

// -----

func.func @dot_c2_mixed(%a: tensor<16x16xbf16>, %b: tensor<16x16xf16>) {
  // expected-error @below {{expected operands of one type out of bf16, f16, tf32 and f32, but got 'bf16' and 'f16'}}
  %0 = tile.dot %a, %b : tensor<16x16xbf16>, tensor<16x16xf16> -> tensor<16x16xf32>
  return
}

// -----

func.func @dot_c2_integer(%a: tensor<16x16xi32>) {
  // expected-error @below {{expected operands of one type out of bf16, f16, tf32 and f32, but got 'i32' and 'i32'}}
  %0 = tile.dot %a, %a : tensor<16x16xi32>, tensor<16x16xi32> -> tensor<16x16xf32>
  return
}

// -----

func.func @dot_c3(%a: tensor<64x128xf32>, %b: tensor<64x16xf32>) {
  // expected-error @below {{expected (m x k) (k x n) -> (m x n), but got (64 x 128) (64 x 16) -> 'tensor<64x16xf32>'}}
  %0 = tile.dot %a, %b : tensor<64x128xf32>, tensor<64x16xf32> -> tensor<64x16xf32>
  return
}

// -----

func.func @dot_c3_transposed(%a: tensor<64x128xf32>) {
  // expected-error @below {{expected (m x k) (k x n) -> (m x n), but got (128 x 64) (128 x 64) -> 'tensor<128x64xf32>'}}
  %0 = tile.dot %a, %a {trans_a, trans_b} : tensor<64x128xf32>, tensor<64x128xf32> -> tensor<128x64xf32>
  return
}

// -----

func.func @dot_c4(%a: tensor<16x16xbf16>, %c: tensor<16x32xf32>) {
  // expected-error @below {{expected an accumulator of type 'tensor<16x16xf32>', but got 'tensor<16x32xf32>'}}
  %0 = tile.dot %a, %a acc(%c : tensor<16x32xf32>) : tensor<16x16xbf16>, tensor<16x16xbf16> -> tensor<16x16xf32>
  return
}

// -----

func.func @decayed_gram_c1(%k: tensor<64x128xf32>, %q: tensor<32x128xf32>) {
  // expected-error @below {{expected left and right sides of one rank-2 type, but got a right side 'tensor<64x128xf32>'}}
  %0 = tile.decayed_gram lhs(%q : tensor<32x128xf32>) rhs(%k) decay(%k) leaf 16
      operand bf16 strict [true] : tensor<64x128xf32> -> tensor<64x64xf32>
  return
}

// -----

func.func @decayed_gram_c2(%k: tensor<64x128xf32>) {
  // expected-error @below {{expected one result and one strict flag per left side, but got 2, 2 and 1}}
  %0, %1 = tile.decayed_gram lhs(%k, %k : tensor<64x128xf32>, tensor<64x128xf32>)
      rhs(%k) decay(%k) leaf 16 operand bf16 strict [true]
      : tensor<64x128xf32> -> tensor<64x64xf32>, tensor<64x64xf32>
  return
}

// -----

func.func @decayed_gram_c3(%k: tensor<64x128xf32>) {
  // expected-error @below {{expected results of type 'tensor<64x64xf32>', but got 'tensor<64x32xf32>'}}
  %0 = tile.decayed_gram lhs(%k : tensor<64x128xf32>) rhs(%k) decay(%k) leaf 16
      operand bf16 strict [true] : tensor<64x128xf32> -> tensor<64x32xf32>
  return
}

// -----

func.func @decayed_gram_c4_leaf(%k: tensor<64x128xf32>) {
  // expected-error @below {{expected powers of two with leaf <= rows, but got leaf 24 and 64 rows}}
  %0 = tile.decayed_gram lhs(%k : tensor<64x128xf32>) rhs(%k) decay(%k) leaf 24
      operand bf16 strict [true] : tensor<64x128xf32> -> tensor<64x64xf32>
  return
}

// -----

func.func @decayed_gram_c4_rows(%k: tensor<48x128xf32>) {
  // expected-error @below {{expected powers of two with leaf <= rows, but got leaf 16 and 48 rows}}
  %0 = tile.decayed_gram lhs(%k : tensor<48x128xf32>) rhs(%k) decay(%k) leaf 16
      operand bf16 strict [true] : tensor<48x128xf32> -> tensor<48x48xf32>
  return
}

// -----

func.func @unit_tril_inverse_c1(%a: tensor<64x32xf32>) {
  // expected-error @below {{expected a square tile, but got 'tensor<64x32xf32>'}}
  %0 = tile.unit_tril_inverse %a : tensor<64x32xf32>
  return
}

// -----

func.func @tile_is_static(%r: !tile.ref<f32>, %i: index) {
  // expected-error @below {{must be statically shaped tensor of any type values}}
  %0 = tile.load %r[%i] stride %i valid [%i] align 16 : !tile.ref<f32> -> tensor<?xf32>
  return
}
