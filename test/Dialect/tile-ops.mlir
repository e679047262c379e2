// Every tile op, type and attribute prints and parses back.
// RUN: kdac-opt %s | kdac-opt | FileCheck %s
// RUN: kdac-opt %s --mlir-print-op-generic | kdac-opt | FileCheck %s

// CHECK-LABEL: func.func private @schedule_mma()
// CHECK-SAME: #tile.schedule<target = "sm_90a", form = "chunk", chunk = 64, leaf = 16, v_tile = 128, warps = 4, stages = 1, operand = bf16, gram = bf16>
func.func private @schedule_mma() attributes {tile.kernel, tile.schedule =
  #tile.schedule<target = "sm_90a", form = "chunk", chunk = 64, leaf = 16,
                 v_tile = 128, warps = 4, stages = 1, operand = bf16, gram = bf16>}

// CHECK: #tile.schedule<target = "host", form = "step", chunk = 1, leaf = 1, v_tile = 48, warps = 1, stages = 1, operand = f32, gram = f32>
func.func private @schedule_step() attributes {tile.schedule =
  #tile.schedule<target = "host", form = "step", chunk = 1, leaf = 1, v_tile = 48,
                 warps = 1, stages = 1, operand = f32, gram = f32>}

// CHECK: stages = 2, operand = tf32, gram = f16>
func.func private @schedule_tf32() attributes {tile.schedule =
  #tile.schedule<target = "sm_80", form = "chunk", chunk = 16, leaf = 1,
                 v_tile = 32, warps = 8, stages = 2, operand = tf32, gram = f16>}

// CHECK: stages = 1, operand = bf16, gram = bf16, roles = "split">
func.func private @schedule_split() attributes {tile.schedule =
  #tile.schedule<target = "sm_80", form = "chunk", chunk = 16, leaf = 1, v_tile = 32,
                 warps = 8, stages = 1, operand = bf16, gram = bf16, roles = "split">}

// CHECK: roles = "warps", refined = true>
func.func private @schedule_refined() attributes {tile.schedule =
  #tile.schedule<target = "sm_90a", form = "chunk", chunk = 32, leaf = 16, v_tile = 64,
                 warps = 20, stages = 6, operand = bf16, gram = bf16, roles = "warps",
                 refined = true>}

// CHECK-LABEL: func.func @split(
// CHECK: tile.num_programs : index
// CHECK: tile.view %{{.*}}[2048] : !tile.ref<i8> -> !tile.ref<bf16>
// CHECK: tile.cut %{{.*}} : index
func.func @split(%workspace: !tile.ref<i8>) -> !tile.ref<bf16> {
  %n = tile.num_programs : index
  %0 = tile.view %workspace[2048] : !tile.ref<i8> -> !tile.ref<bf16>
  tile.cut %n : index
  return %0 : !tile.ref<bf16>
}

// CHECK-LABEL: func.func @longest(
// CHECK: tile.longest %{{.*}}[%{{.*}}] of %{{.*}} : <i32>
func.func @longest(%offsets: !tile.ref<i32>, %rank: index, %count: index) -> index {
  %n = tile.longest %offsets[%rank] of %count : <i32>
  return %n : index
}

// What is not written takes its default; any subset round-trips.
// CHECK-LABEL: func.func @place(
// CHECK: tile.place = #tile.place<inline>
// CHECK: tile.place = #tile.place<registers>
// CHECK: tile.place = #tile.place<shared, offset = 1024, pitch = 72, stages = 2>
// CHECK: tile.place = #tile.place<shared, pitch = 72>
// CHECK: tile.place = #tile.place<shared, offset = 16, stages = 2>
// CHECK: tile.place = #tile.place<shared>
func.func @place(%x: f32) {
  %0 = tile.splat %x {tile.place = #tile.place<inline>} : f32 -> tensor<4xf32>
  %1 = tile.splat %x {tile.place = #tile.place<registers>} : f32 -> tensor<4xf32>
  %2 = tile.splat %x {tile.place = #tile.place<shared, offset = 1024, pitch = 72, stages = 2>} : f32 -> tensor<4xf32>
  %3 = tile.splat %x {tile.place = #tile.place<shared, pitch = 72>} : f32 -> tensor<4xf32>
  %4 = tile.splat %x {tile.place = #tile.place<shared, offset = 16, stages = 2>} : f32 -> tensor<4xf32>
  %5 = tile.splat %x {tile.place = #tile.place<shared>} : f32 -> tensor<4xf32>
  return
}

// CHECK-LABEL: func.func @scalars(
// CHECK: tile.program_id : index
// CHECK: tile.present %{{.*}} : !tile.ref<i32>
// CHECK: tile.load_scalar %{{.*}}[%{{.*}}] else %{{.*}} : !tile.ref<i32> -> index
// CHECK: tile.load_scalar %{{.*}}[%{{.*}}] else %{{.*}} : !tile.ref<i64> -> index
// CHECK: tile.load_scalar %{{.*}}[%{{.*}}] else %{{.*}} : !tile.ref<bf16> -> f32
func.func @scalars(%i32: !tile.ref<i32>, %i64: !tile.ref<i64>,
    %bf16: !tile.ref<bf16>, %x: f32) -> (index, index, f32) {
  %pid = tile.program_id : index
  %given = tile.present %i32 : !tile.ref<i32>
  %0 = tile.load_scalar %i32[%pid] else %pid : !tile.ref<i32> -> index
  %1 = tile.load_scalar %i64[%pid] else %0 : !tile.ref<i64> -> index
  %2 = tile.load_scalar %bf16[%pid] else %x : !tile.ref<bf16> -> f32
  return %0, %1, %2 : index, index, f32
}

// CHECK-LABEL: func.func @slots(
// CHECK: tile.guard %{{.*}} if %{{.*}} : !tile.ref<f32>
// CHECK: tile.prefetch %{{.*}}[%{{.*}}] count 2048 : !tile.ref<f32>
// CHECK: tile.prefetch now %{{.*}}[%{{.*}}] count 64 : !tile.ref<f32>
// CHECK: tile.choose %{{.*}} if %{{.*}} else %{{.*}} : !tile.ref<f32>
// CHECK: tile.check_slots %{{.*}}, slots(%{{.*}}) sources(%{{.*}}) snapshots(%{{.*}} : !tile.ref<i32>) offsets(%{{.*}}) count(%{{.*}}) tokens(%{{.*}}) pool(%{{.*}}) : !tile.ref<i64>, !tile.ref<i32>, !tile.ref<i32>, !tile.ref<i64>
// CHECK: tile.check_slots %{{.*}}, slots(%{{.*}}) sources(%{{.*}}) offsets
func.func @slots(%f: !tile.ref<f32>, %i: !tile.ref<i32>, %s: !tile.ref<i64>,
    %live: i1, %n: index) -> !tile.ref<f32> {
  %0 = tile.guard %f if %live : !tile.ref<f32>
  tile.prefetch %0[%n] count 2048 : !tile.ref<f32>
  tile.prefetch now %0[%n] count 64 : !tile.ref<f32>
  %1 = tile.choose %0 if %live else %f : !tile.ref<f32>
  tile.check_slots %s, slots(%i) sources(%i) snapshots(%i : !tile.ref<i32>) offsets(%s)
      count(%n) tokens(%n) pool(%n)
      : !tile.ref<i64>, !tile.ref<i32>, !tile.ref<i32>, !tile.ref<i64>
  tile.check_slots %s, slots(%i) sources(%i) offsets(%s) count(%n) tokens(%n) pool(%n)
      : !tile.ref<i64>, !tile.ref<i32>, !tile.ref<i32>, !tile.ref<i64>
  return %0 : !tile.ref<f32>
}

// CHECK-LABEL: func.func @memory(
// CHECK: tile.load %{{.*}}[%{{.*}}] stride %{{.*}} valid[%{{.*}}, %{{.*}}] align 16 : !tile.ref<bf16> -> tensor<64x128xbf16>
// CHECK: tile.load %{{.*}}[%{{.*}}] stride %{{.*}} valid[%{{.*}}, %{{.*}}] transposed align 4 : !tile.ref<bf16> -> tensor<128x64xbf16>
// CHECK: tile.load %{{.*}}[%{{.*}}] stride %{{.*}} valid[%{{.*}}] align 2 : !tile.ref<bf16> -> tensor<64xbf16>
// CHECK: tile.load %{{.*}}[%{{.*}}] stride %{{.*}} valid[%{{.*}}, %{{.*}}] rows(%{{.*}}[%{{.*}}] each %{{.*}} of %{{.*}} : !tile.ref<i32>) align 16 : !tile.ref<bf16> -> tensor<64x128xbf16>
// CHECK: tile.store %{{.*}}, %{{.*}}[%{{.*}}] stride %{{.*}} valid[%{{.*}}, %{{.*}}] align 16 : tensor<64x128xbf16>, !tile.ref<bf16>
// CHECK: tile.store %{{.*}}, %{{.*}}[%{{.*}}] stride %{{.*}} valid[%{{.*}}, %{{.*}}] transposed align 1 : tensor<128x64xbf16>, !tile.ref<bf16>
func.func @memory(%ref: !tile.ref<bf16>, %order: !tile.ref<i32>, %i: index) {
  %0 = tile.load %ref[%i] stride %i valid [%i, %i] align 16
      : !tile.ref<bf16> -> tensor<64x128xbf16>
  %1 = tile.load %ref[%i] stride %i valid [%i, %i] transposed align 4
      : !tile.ref<bf16> -> tensor<128x64xbf16>
  %2 = tile.load %ref[%i] stride %i valid [%i] align 2
      : !tile.ref<bf16> -> tensor<64xbf16>
  %3 = tile.load %ref[%i] stride %i valid [%i, %i] rows(%order[%i] each %i of %i : !tile.ref<i32>) align 16
      : !tile.ref<bf16> -> tensor<64x128xbf16>
  tile.store %0, %ref[%i] stride %i valid [%i, %i] align 16
      : tensor<64x128xbf16>, !tile.ref<bf16>
  tile.store %1, %ref[%i] stride %i valid [%i, %i] transposed align 1
      : tensor<128x64xbf16>, !tile.ref<bf16>
  return
}

// CHECK-LABEL: func.func @shape(
// CHECK: tile.splat %{{.*}} : f32 -> tensor<64x128xf32>
// CHECK: tile.iota 1 : tensor<64x128xindex>
// CHECK: tile.row %{{.*}}[63] : tensor<64x128xf32> -> tensor<128xf32>
// CHECK: tile.row %{{.*}}[0] : tensor<128xf32> -> f32
// CHECK: tile.broadcast %{{.*}} along 1 : tensor<128xf32> -> tensor<64x128xf32>
// CHECK: tile.window %{{.*}}[2] : tensor<64x128xf32> -> tensor<16x128xf32>
func.func @shape(%x: f32) -> tensor<64x128xf32> {
  %0 = tile.splat %x : f32 -> tensor<64x128xf32>
  %1 = tile.iota 1 : tensor<64x128xindex>
  %2 = tile.row %0[63] : tensor<64x128xf32> -> tensor<128xf32>
  %3 = tile.row %2[0] : tensor<128xf32> -> f32
  %4 = tile.broadcast %2 along 1 : tensor<128xf32> -> tensor<64x128xf32>
  %5 = tile.window %4[2] : tensor<64x128xf32> -> tensor<16x128xf32>
  return %4 : tensor<64x128xf32>
}

// CHECK-LABEL: func.func @across(
// CHECK: tile.reduce %{{.*}} along 1 : tensor<64x128xf32> -> tensor<64xf32>
// CHECK: tile.reduce %{{.*}} along 0 : tensor<64xf32> -> f32
// CHECK: tile.cumsum %{{.*}} : tensor<64x128xf32>
// CHECK: tile.reduce %{{.*}} along 1 greatest : tensor<64x128xf32> -> tensor<64xf32>
func.func @across(%x: tensor<64x128xf32>) -> f32 {
  %0 = tile.reduce %x along 1 : tensor<64x128xf32> -> tensor<64xf32>
  %1 = tile.reduce %0 along 0 : tensor<64xf32> -> f32
  %2 = tile.cumsum %x : tensor<64x128xf32>
  %3 = tile.reduce %x along 1 greatest : tensor<64x128xf32> -> tensor<64xf32>
  return %1 : f32
}

// CHECK-LABEL: func.func @dot(
// CHECK: tile.dot %{{.*}}, %{{.*}} {trans_b} : tensor<64x128xbf16>, tensor<32x128xbf16> -> tensor<64x32xf32>
// CHECK: tile.dot %{{.*}}, %{{.*}} acc(%{{.*}} : tensor<128x32xf32>) {trans_a, trans_b} : tensor<64x128xbf16>, tensor<32x64xbf16> -> tensor<128x32xf32>
func.func @dot(%a: tensor<64x128xbf16>, %b: tensor<32x128xbf16>,
    %c: tensor<32x64xbf16>, %acc: tensor<128x32xf32>) {
  %0 = tile.dot %a, %b {trans_b} : tensor<64x128xbf16>, tensor<32x128xbf16> -> tensor<64x32xf32>
  %1 = tile.dot %a, %c acc(%acc : tensor<128x32xf32>) {trans_a, trans_b}
      : tensor<64x128xbf16>, tensor<32x64xbf16> -> tensor<128x32xf32>
  return
}

// CHECK-LABEL: func.func @dot_types(
// CHECK: tensor<16x16xtf32>, tensor<16x16xtf32>
// CHECK: tensor<16x16xf16>, tensor<16x16xf16>
// CHECK: tensor<16x16xf32>, tensor<16x16xf32>
func.func @dot_types(%a: tensor<16x16xtf32>, %b: tensor<16x16xf16>, %c: tensor<16x16xf32>) {
  %0 = tile.dot %a, %a : tensor<16x16xtf32>, tensor<16x16xtf32> -> tensor<16x16xf32>
  %1 = tile.dot %b, %b : tensor<16x16xf16>, tensor<16x16xf16> -> tensor<16x16xf32>
  %2 = tile.dot %c, %c : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
  return
}

// CHECK-LABEL: func.func @gram(
// CHECK: tile.decayed_gram lhs(%{{.*}}, %{{.*}} : tensor<64x128xf32>, tensor<64x128xf32>) rhs(%{{.*}}) decay(%{{.*}}) leaf 16 operand bf16 strict [true, false] : tensor<64x128xf32> -> tensor<64x64xf32>, tensor<64x64xf32>
// CHECK: tile.unit_tril_inverse %{{.*}} : tensor<64x64xf32>
func.func @gram(%k: tensor<64x128xf32>, %q: tensor<64x128xf32>,
    %g: tensor<64x128xf32>) -> tensor<64x64xf32> {
  %0, %1 = tile.decayed_gram lhs(%k, %q : tensor<64x128xf32>, tensor<64x128xf32>)
      rhs(%k) decay(%g) leaf 16 operand bf16 strict [true, false]
      : tensor<64x128xf32> -> tensor<64x64xf32>, tensor<64x64xf32>
  %2 = tile.unit_tril_inverse %0 : tensor<64x64xf32>
  return %2 : tensor<64x64xf32>
}
