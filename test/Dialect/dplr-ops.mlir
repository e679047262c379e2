// Every dplr op and every optional part prints and parses back.
// RUN: kdac-opt %s | kdac-opt | FileCheck %s
// RUN: kdac-opt %s --mlir-print-op-generic | kdac-opt | FileCheck %s

// CHECK-LABEL: func.func @l2norm(
// CHECK: dplr.l2norm %{{.*}} eps 9.9999999999999995E-7 : tensor<?x?x128xbf16>
func.func @l2norm(%k: tensor<?x?x128xbf16>) -> tensor<?x?x128xbf16> {
  %0 = dplr.l2norm %k eps 1.0e-06 : tensor<?x?x128xbf16>
  return %0 : tensor<?x?x128xbf16>
}

// CHECK-LABEL: func.func @log_decay_identity(
// CHECK: dplr.log_decay <identity> %{{.*}} : tensor<?x?x64xf32> -> tensor<?x?x64xf32>
func.func @log_decay_identity(%g: tensor<?x?x64xf32>) -> tensor<?x?x64xf32> {
  %0 = dplr.log_decay <identity> %g : tensor<?x?x64xf32> -> tensor<?x?x64xf32>
  return %0 : tensor<?x?x64xf32>
}

// CHECK-LABEL: func.func @log_decay_softplus_per_head(
// CHECK: dplr.log_decay <softplus> %{{.*}} a_log(%{{.*}} : tensor<?xf32>) dt_bias(%{{.*}} : tensor<?xf32>) : tensor<?x?xf16> -> tensor<?x?xf32>
func.func @log_decay_softplus_per_head(%g: tensor<?x?xf16>, %a: tensor<?xf32>,
    %b: tensor<?xf32>) -> tensor<?x?xf32> {
  %0 = dplr.log_decay <softplus> %g a_log(%a : tensor<?xf32>)
      dt_bias(%b : tensor<?xf32>) : tensor<?x?xf16> -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// CHECK-LABEL: func.func @log_decay_bounded_per_channel(
// CHECK: dplr.log_decay <bounded> %{{.*}} a_log(%{{.*}} : tensor<?xf32>) dt_bias(%{{.*}} : tensor<?x128xf32>) bound -5.000000e+00 : tensor<?x?x128xbf16> -> tensor<?x?x128xf32>
func.func @log_decay_bounded_per_channel(%g: tensor<?x?x128xbf16>,
    %a: tensor<?xf32>, %b: tensor<?x128xf32>) -> tensor<?x?x128xf32> {
  %0 = dplr.log_decay <bounded> %g a_log(%a : tensor<?xf32>)
      dt_bias(%b : tensor<?x128xf32>) bound -5.0
      : tensor<?x?x128xbf16> -> tensor<?x?x128xf32>
  return %0 : tensor<?x?x128xf32>
}

// CHECK-LABEL: func.func @log_decay_bounded_bare(
// CHECK: dplr.log_decay <bounded> %{{.*}} bound -1.000000e+00 : tensor<?x?x32xf32> -> tensor<?x?x32xf32>
func.func @log_decay_bounded_bare(%g: tensor<?x?x32xf32>) -> tensor<?x?x32xf32> {
  %0 = dplr.log_decay <bounded> %g bound -1.0 : tensor<?x?x32xf32> -> tensor<?x?x32xf32>
  return %0 : tensor<?x?x32xf32>
}

// CHECK-LABEL: func.func @write_strength(
// CHECK: dplr.write_strength <identity> %{{.*}} : tensor<?x?xf32>
// CHECK: dplr.write_strength <sigmoid> %{{.*}} : tensor<?x?xf32>
// CHECK: dplr.write_strength <two_sigmoid> %{{.*}} : tensor<?x?xf32>
func.func @write_strength(%b: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %0 = dplr.write_strength <identity> %b : tensor<?x?xf32>
  %1 = dplr.write_strength <sigmoid> %0 : tensor<?x?xf32>
  %2 = dplr.write_strength <two_sigmoid> %1 : tensor<?x?xf32>
  return %2 : tensor<?x?xf32>
}

// CHECK-LABEL: func.func @recurrence_linear(
// CHECK: dplr.recurrence q(%{{.*}} : tensor<?x?x64xf32>) k(%{{.*}} : tensor<?x?x64xf32>) v(%{{.*}} : tensor<?x?x32xf32>) scale(%{{.*}}) {layout = #dplr.layout<kv>, precision = #dplr.precision<high>} -> tensor<?x?x32xf32>, tensor<?x?x64x32xf32>
func.func @recurrence_linear(%q: tensor<?x?x64xf32>, %v: tensor<?x?x32xf32>,
    %s: f32) -> tensor<?x?x32xf32> {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%v : tensor<?x?x32xf32>) scale(%s)
      {layout = #dplr.layout<kv>, precision = #dplr.precision<high>}
      -> tensor<?x?x32xf32>, tensor<?x?x64x32xf32>
  return %o : tensor<?x?x32xf32>
}

// CHECK-LABEL: func.func @recurrence_every_part(
// CHECK: dplr.recurrence
// CHECK-SAME: decay(%{{.*}} : tensor<?x?x128xf32>)
// CHECK-SAME: beta(%{{.*}} : tensor<?x?xbf16>)
// CHECK-SAME: initial(%{{.*}} : tensor<?x?x64x128xf32>)
// CHECK-SAME: offsets(%{{.*}} : tensor<?xi64>)
// CHECK-SAME: {delta, layout = #dplr.layout<vk>, precision = #dplr.precision<fast>}
func.func @recurrence_every_part(%q: tensor<?x?x128xbf16>, %v: tensor<?x?x64xbf16>,
    %g: tensor<?x?x128xf32>, %b: tensor<?x?xbf16>, %h0: tensor<?x?x64x128xf32>,
    %offsets: tensor<?xi64>, %s: f32) -> tensor<?x?x64x128xf32> {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x128xbf16>)
      k(%q : tensor<?x?x128xbf16>) v(%v : tensor<?x?x64xbf16>)
      decay(%g : tensor<?x?x128xf32>) beta(%b : tensor<?x?xbf16>)
      initial(%h0 : tensor<?x?x64x128xf32>) offsets(%offsets : tensor<?xi64>)
      scale(%s)
      {delta, layout = #dplr.layout<vk>, precision = #dplr.precision<fast>}
      -> tensor<?x?x64xbf16>, tensor<?x?x64x128xf32>
  return %ht : tensor<?x?x64x128xf32>
}

// CHECK-LABEL: func.func @recurrence_erase_pair(
// CHECK: dplr.recurrence
// CHECK-SAME: decay(%{{.*}} : tensor<?xf32>)
// CHECK-SAME: erase(%{{.*}} : tensor<?x?x64xf16>, %{{.*}} : tensor<?x?x64xf16>)
// CHECK-SAME: precision = #dplr.precision<default>
func.func @recurrence_erase_pair(%q: tensor<?x?x64xf16>, %g: tensor<?xf32>,
    %s: f32) -> tensor<?x?x64xf16> {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf16>) k(%q : tensor<?x?x64xf16>)
      v(%q : tensor<?x?x64xf16>) decay(%g : tensor<?xf32>)
      erase(%q : tensor<?x?x64xf16>, %q : tensor<?x?x64xf16>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xf16>, tensor<?x?x64x64xbf16>
  return %o : tensor<?x?x64xf16>
}

// CHECK-LABEL: func.func @recurrence_pool(
// CHECK: slots(%{{.*}} : tensor<?xi32>) sources(%{{.*}} : tensor<?xi32>) snapshots(%{{.*}} : tensor<?xi32>) scale
func.func @recurrence_pool(%q: tensor<?x?x64xf32>, %pool: tensor<?x?x64x64xf32>,
    %i: tensor<?xi32>, %s: f32) -> tensor<?x?x64x64xf32> {
  %o, %after = dplr.recurrence q(%q : tensor<?x?x64xf32>)
      k(%q : tensor<?x?x64xf32>) v(%q : tensor<?x?x64xf32>)
      initial(%pool : tensor<?x?x64x64xf32>) slots(%i : tensor<?xi32>)
      sources(%i : tensor<?xi32>) snapshots(%i : tensor<?xi32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
  return %after : tensor<?x?x64x64xf32>
}

// CHECK-LABEL: func.func @layer(
// CHECK: dplr.short_conv <history> %{{.*}} weight(%{{.*}} : tensor<?x128x4xbf16>) cache(%{{.*}} : tensor<?x3x?x128xbf16>) slots(%{{.*}} : tensor<?xi64>) offsets(%{{.*}} : tensor<?xi32>) : tensor<?x?x128xbf16>
// CHECK: dplr.gated_rmsnorm <sigmoid> %{{.*}} gate(%{{.*}}) weight(%{{.*}} : tensor<128xf32>) eps 1.000000e-05 : tensor<?x?x128xbf16>, tensor<?x?x128xbf16>
func.func @layer(%x: tensor<?x?x128xbf16>, %w: tensor<?x128x4xbf16>,
    %c: tensor<?x3x?x128xbf16>, %slots: tensor<?xi64>, %offsets: tensor<?xi32>,
    %nw: tensor<128xf32>) -> tensor<?x?x128xbf16> {
  %y, %after = dplr.short_conv <history> %x weight(%w : tensor<?x128x4xbf16>)
      cache(%c : tensor<?x3x?x128xbf16>) slots(%slots : tensor<?xi64>)
      offsets(%offsets : tensor<?xi32>) : tensor<?x?x128xbf16>
  %z = dplr.gated_rmsnorm <sigmoid> %y gate(%x) weight(%nw : tensor<128xf32>)
      eps 1.0e-5 : tensor<?x?x128xbf16>, tensor<?x?x128xbf16>
  return %z : tensor<?x?x128xbf16>
}

// CHECK-LABEL: func.func @rows(
// CHECK: %[[SUM:.*]], %[[Y:.*]] = dplr.rmsnorm %{{.*}} branch(%{{.*}} : tensor<?x?xbf16>) weight(%{{.*}} : tensor<?xf32>) eps(%{{.*}}) up_to 2304 : tensor<?x?xbf16>
// CHECK: dplr.rmsnorm %[[SUM]] weight(%{{.*}} : tensor<?xf32>) eps(%{{.*}}) up_to 64 : tensor<?x?xbf16>
// CHECK: dplr.gated_product <situ> %{{.*}}, %[[Y]] beta(%{{.*}}) linear(%{{.*}}) : tensor<?x?xbf16>
// CHECK: dplr.gated_product <silu> %{{.*}}, %{{.*}} : tensor<?x?xbf16>
// CHECK: dplr.add %{{.*}}, %{{.*}} : tensor<?x?xbf16>
// CHECK: dplr.gather %{{.*}} rows(%{{.*}} : tensor<?xi32>) : tensor<?x?xbf16>
// CHECK: dplr.combine %{{.*}} rows(%{{.*}} : tensor<?x?xi32>) scales(%{{.*}} : tensor<?x?xf32>) : tensor<?x?xbf16>
// CHECK: dplr.latent %{{.*}} weight(%{{.*}} : tensor<?xf32>) eps(%{{.*}}) at(%{{.*}}, %{{.*}} : tensor<?xi32>) table(%{{.*}} : tensor<?x?xi32>) of(%{{.*}}) into(%{{.*}}) up_to 512 : tensor<?x?xbf16>
// CHECK: dplr.mix %{{.*}} query(%{{.*}} : tensor<?xf32>) eps(%{{.*}}) up_to 7168 : tensor<?x?x?xbf16> -> tensor<?x?xbf16>
func.func @rows(%x: tensor<?x?xbf16>, %b: tensor<?x?xbf16>, %w: tensor<?xf32>,
    %e: f32, %i: tensor<?xi32>, %j: tensor<?x?xi32>, %c: tensor<?x?xf32>,
    %n: i64, %all: tensor<?x?x?xbf16>)
    -> tensor<?x?xbf16>
    attributes {dplr.form = #dplr.form<rows>} {
  %s, %y = dplr.rmsnorm %x branch(%b : tensor<?x?xbf16>)
      weight(%w : tensor<?xf32>) eps(%e) up_to 2304 : tensor<?x?xbf16>
  %s2, %y2 = dplr.rmsnorm %s weight(%w : tensor<?xf32>) eps(%e) up_to 64
      : tensor<?x?xbf16>
  %p = dplr.gated_product <situ> %y2, %y beta(%e) linear(%e) : tensor<?x?xbf16>
  %q = dplr.gated_product <silu> %p, %x : tensor<?x?xbf16>
  %a = dplr.add %q, %x : tensor<?x?xbf16>
  %g = dplr.gather %a rows(%i : tensor<?xi32>) : tensor<?x?xbf16>
  %m = dplr.combine %g rows(%j : tensor<?x?xi32>) scales(%c : tensor<?x?xf32>)
      : tensor<?x?xbf16>
  %l = dplr.latent %m weight(%w : tensor<?xf32>) eps(%e) at(%i, %i : tensor<?xi32>)
      table(%j : tensor<?x?xi32>) of(%n) into(%x) up_to 512 : tensor<?x?xbf16>
  %r = dplr.mix %all query(%w : tensor<?xf32>) eps(%e) up_to 7168
      : tensor<?x?x?xbf16> -> tensor<?x?xbf16>
  return %r : tensor<?x?xbf16>
}

// CHECK-LABEL: func.func @attention(
// CHECK: dplr.latent_attention %{{.*}} pages(%{{.*}}) table(%{{.*}} : tensor<?x?xi32>) slots(%{{.*}} : tensor<?xi32>) lengths(%{{.*}} : tensor<?xi32>) scale(%{{.*}}) up_to 576 values 512 : tensor<?x?x?xbf16>
func.func @attention(%q: tensor<?x?x?xbf16>, %c: tensor<?x?x?xbf16>,
    %t: tensor<?x?xi32>, %s: tensor<?xi32>, %l: tensor<?xi32>, %x: f32)
    -> tensor<?x?x?xbf16>
    attributes {dplr.form = #dplr.form<attention>} {
  %o = dplr.latent_attention %q pages(%c) table(%t : tensor<?x?xi32>)
      slots(%s : tensor<?xi32>) lengths(%l : tensor<?xi32>) scale(%x)
      up_to 576 values 512 : tensor<?x?x?xbf16>
  return %o : tensor<?x?x?xbf16>
}

// CHECK: dplr.grouped_matmul %{{.*}} by(%{{.*}} : tensor<?x?x?xbf16>) tiles(%{{.*}} : tensor<?xi32>) starts(%{{.*}} : tensor<?xi32>) order(%{{.*}} : tensor<?xi32>) each(%{{.*}}) : tensor<?x?xbf16>, tensor<?x?xf32>
// CHECK: dplr.grouped_matmul %{{.*}} by(%{{.*}} : tensor<?x?x?xbf16>) gated <situ> up(%{{.*}} : tensor<?x?x?xbf16>) beta(%{{.*}}) linear(%{{.*}}) tiles(
func.func @matmul(%x: tensor<?x?xbf16>, %w: tensor<?x?x?xbf16>, %t: tensor<?xi32>, %n: i64, %b: f32)
    -> (tensor<?x?xbf16>, tensor<?x?xf32>) {
  %y, %s = dplr.grouped_matmul %x by(%w : tensor<?x?x?xbf16>) tiles(%t : tensor<?xi32>)
      starts(%t : tensor<?xi32>) order(%t : tensor<?xi32>) each(%n) : tensor<?x?xbf16>, tensor<?x?xf32>
  %z, %r = dplr.grouped_matmul %x by(%w : tensor<?x?x?xbf16>) gated <situ> up(%w : tensor<?x?x?xbf16>)
      beta(%b) linear(%b) tiles(%t : tensor<?xi32>) starts(%t : tensor<?xi32>) order(%t : tensor<?xi32>)
      each(%n) : tensor<?x?xbf16>, tensor<?x?xf32>
  return %y, %r : tensor<?x?xbf16>, tensor<?x?xf32>
}

// CHECK: dplr.prompt_attention %{{.*}} expanded(%{{.*}}) shared(%{{.*}} : tensor<?x?xbf16>) offsets(%{{.*}}, %{{.*}} : tensor<?xi32>) before(%{{.*}}, %{{.*}} : tensor<?x?x?xf32>, tensor<?x?xf32>) later(%{{.*}}) scale(%{{.*}}) up_to 192 values 128 : tensor<?x?x?xbf16>
func.func @prompt(%q: tensor<?x?x?xbf16>, %kv: tensor<?x?x?xbf16>,
    %r: tensor<?x?xbf16>, %t: tensor<?xi32>, %k: tensor<?xi32>,
    %b: tensor<?x?x?xf32>, %m: tensor<?x?xf32>, %n: i64, %x: f32)
    -> (tensor<?x?x?xbf16>, tensor<?x?x?xf32>, tensor<?x?xf32>)
    attributes {dplr.form = #dplr.form<prompt>} {
  %o, %a, %l = dplr.prompt_attention %q expanded(%kv) shared(%r : tensor<?x?xbf16>)
      offsets(%t, %k : tensor<?xi32>) before(%b, %m : tensor<?x?x?xf32>, tensor<?x?xf32>)
      later(%n) scale(%x) up_to 192 values 128 : tensor<?x?x?xbf16>
  return %o, %a, %l : tensor<?x?x?xbf16>, tensor<?x?x?xf32>, tensor<?x?xf32>
}

// CHECK-LABEL: func.func @form(
// CHECK-SAME: dplr.form = #dplr.form<chunk>
func.func @form() attributes {dplr.form = #dplr.form<chunk>} { return }
// CHECK: dplr.form = #dplr.form<step>
func.func private @step() attributes {dplr.form = #dplr.form<step>}
