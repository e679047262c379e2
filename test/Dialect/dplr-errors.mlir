// One negative per label of dialect/Dplr/SPEC.md.
// RUN: kdac-opt %s --split-input-file --verify-diagnostics

func.func @l2norm_c1_negative(%k: tensor<?x?x128xbf16>) {
  // expected-error @below {{expected a finite epsilon of at least 0, but got -1}}
  %0 = dplr.l2norm %k eps -1.0 : tensor<?x?x128xbf16>
  return
}

// -----

func.func @l2norm_c1_nan(%k: tensor<?x?x128xbf16>) {
  // expected-error @below {{expected a finite epsilon of at least 0, but got nan}}
  %0 = dplr.l2norm %k eps 0x7FF8000000000000 : tensor<?x?x128xbf16>
  return
}

// -----

func.func @log_decay_c1_a_log(%g: tensor<?x?x64xf32>, %a: tensor<?xf32>) {
  // expected-error @below {{expected no a_log or dt_bias with the identity map}}
  %0 = dplr.log_decay <identity> %g a_log(%a : tensor<?xf32>)
      : tensor<?x?x64xf32> -> tensor<?x?x64xf32>
  return
}

// -----

func.func @log_decay_c2_no_bound(%g: tensor<?x?x64xf32>) {
  // expected-error @below {{expected a bound exactly with the bounded map, but got map bounded without one}}
  %0 = dplr.log_decay <bounded> %g : tensor<?x?x64xf32> -> tensor<?x?x64xf32>
  return
}

// -----

func.func @log_decay_c2_extra_bound(%g: tensor<?x?x64xf32>) {
  // expected-error @below {{expected a bound exactly with the bounded map, but got map softplus with a bound}}
  %0 = dplr.log_decay <softplus> %g bound -5.0 : tensor<?x?x64xf32> -> tensor<?x?x64xf32>
  return
}

// -----

func.func @log_decay_c3(%g: tensor<?x?x64xf32>) {
  // expected-error @below {{expected a negative bound, but got 0}}
  %0 = dplr.log_decay <bounded> %g bound 0.0 : tensor<?x?x64xf32> -> tensor<?x?x64xf32>
  return
}

// -----

func.func @log_decay_c4(%g: tensor<?x?x64xf32>) {
  // expected-error @below {{expected the result's shape to equal the logits'}}
  %0 = dplr.log_decay <identity> %g : tensor<?x?x64xf32> -> tensor<?x?x32xf32>
  return
}

// -----

func.func @log_decay_c5_rank(%g: tensor<?x?x64xf32>, %b: tensor<?xf32>) {
  // expected-error @below {{expected dt_bias of rank 2 for logits of rank 3, but got rank 1}}
  %0 = dplr.log_decay <softplus> %g dt_bias(%b : tensor<?xf32>)
      : tensor<?x?x64xf32> -> tensor<?x?x64xf32>
  return
}

// -----

func.func @log_decay_c5_width(%g: tensor<?x?x64xf32>, %b: tensor<?x32xf32>) {
  // expected-error @below {{expected dt_bias width 64, but got 32}}
  %0 = dplr.log_decay <softplus> %g dt_bias(%b : tensor<?x32xf32>)
      : tensor<?x?x64xf32> -> tensor<?x?x64xf32>
  return
}

// -----

func.func @recurrence_c1(%q: tensor<?x?x?xf32>, %s: f32) {
  // expected-error @below {{expected static key and value widths, but got 'tensor<?x?x?xf32>' and 'tensor<?x?x?xf32>'}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x?xf32>) k(%q : tensor<?x?x?xf32>)
      v(%q : tensor<?x?x?xf32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x?xf32>, tensor<?x?x?x?xf32>
  return
}

// -----

func.func @recurrence_c2(%q: tensor<?x?x128xf32>, %k: tensor<?x?x64xf32>, %s: f32) {
  // expected-error @below {{expected key width to equal query width, but got 64 and 128}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x128xf32>) k(%k : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x128xf32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x128xf32>, tensor<?x?x128x128xf32>
  return
}

// -----

func.func @recurrence_c3(%q: tensor<?x?x128xf32>, %g: tensor<?x?x64xf32>, %s: f32) {
  // expected-error @below {{expected a per-channel decay of width 128, but got 64}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x128xf32>) k(%q : tensor<?x?x128xf32>)
      v(%q : tensor<?x?x128xf32>) decay(%g : tensor<?x?x64xf32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x128xf32>, tensor<?x?x128x128xf32>
  return
}

// -----

func.func @recurrence_c4(%q: tensor<?x?x64xf32>, %s: f32) {
  // expected-error @below {{expected either delta or an erase pair, but got both}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x64xf32>)
      erase(%q : tensor<?x?x64xf32>, %q : tensor<?x?x64xf32>) scale(%s)
      {delta, layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
  return
}

// -----

func.func @recurrence_c5(%q: tensor<?x?x64xf32>, %a: tensor<?x?x32xf32>, %s: f32) {
  // expected-error @below {{expected an erase pair of width 64, but got 64 and 32}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x64xf32>)
      erase(%q : tensor<?x?x64xf32>, %a : tensor<?x?x32xf32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
  return
}

// -----

func.func @recurrence_c6_final(%q: tensor<?x?x64xf32>, %v: tensor<?x?x32xf32>, %s: f32) {
  // expected-error @below {{expected final state [N, HV, 32, 64] in layout vk, but got 'tensor<?x?x64x32xf32>'}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%v : tensor<?x?x32xf32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x32xf32>, tensor<?x?x64x32xf32>
  return
}

// -----

func.func @recurrence_c6_initial(%q: tensor<?x?x64xf32>, %v: tensor<?x?x32xf32>,
    %h0: tensor<?x?x32x64xf32>, %s: f32) {
  // expected-error @below {{expected initial state [N, HV, 64, 32] in layout kv, but got 'tensor<?x?x32x64xf32>'}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%v : tensor<?x?x32xf32>) initial(%h0 : tensor<?x?x32x64xf32>) scale(%s)
      {layout = #dplr.layout<kv>, precision = #dplr.precision<default>}
      -> tensor<?x?x32xf32>, tensor<?x?x64x32xf32>
  return
}

// -----

func.func @recurrence_c7(%q: tensor<?x?x64xf32>, %s: f32) {
  // expected-error @below {{expected output width to equal value width 64, but got 32}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x64xf32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x32xf32>, tensor<?x?x64x64xf32>
  return
}

// -----

func.func @recurrence_c8(%q: tensor<?x2x64xf32>, %v: tensor<?x5x64xf32>, %s: f32) {
  // expected-error @below {{expected value heads to be a multiple of key heads, but got 5 and 2}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x2x64xf32>) k(%q : tensor<?x2x64xf32>)
      v(%v : tensor<?x5x64xf32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x5x64xf32>, tensor<?x5x64x64xf32>
  return
}

// -----

func.func @recurrence_c9(%q: tensor<?x?x64xf32>, %i: tensor<?xi32>, %s: f32) {
  // expected-error @below {{expected sources and snapshots only with slots}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x64xf32>) sources(%i : tensor<?xi32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
  return
}

// -----

func.func @recurrence_c10(%q: tensor<?x?x64xf32>, %i: tensor<?xi32>, %s: f32) {
  // expected-error @below {{expected an initial state with slots: the pool}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x64xf32>) slots(%i : tensor<?xi32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
  return
}

// -----

func.func @recurrence_c11(%q: tensor<?x?x64xf32>, %h0: tensor<?x?x64x64xf32>,
    %i: tensor<?xi32>, %j: tensor<?xi64>, %s: f32) {
  // expected-error @below {{expected slots, sources, snapshots and accepted of one element type, but got 'tensor<?xi32>' and 'tensor<?xi64>'}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x64xf32>) initial(%h0 : tensor<?x?x64x64xf32>)
      slots(%i : tensor<?xi32>) snapshots(%j : tensor<?xi64>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
  return
}

// -----

func.func @recurrence_c12(%q: tensor<?x?x64xf32>, %h0: tensor<?x?x64x64xf32>,
    %i: tensor<?xi32>, %s: f32) {
  // expected-error @below {{expected accepted only with slots and without snapshots}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x64xf32>) initial(%h0 : tensor<?x?x64x64xf32>)
      slots(%i : tensor<?xi32>) snapshots(%i : tensor<?xi32>)
      accepted(%i : tensor<?xi32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
  return
}

// -----

func.func @short_conv_c1(%x: tensor<?x?x64xf32>, %w: tensor<?x64x5xf32>, %c: tensor<?x?x64x5xf32>) {
  // expected-error @below {{expected a weight of 2 to 4 taps, but got 'tensor<?x64x5xf32>'}}
  %y, %a = dplr.short_conv <full> %x weight(%w : tensor<?x64x5xf32>)
      cache(%c : tensor<?x?x64x5xf32>) : tensor<?x?x64xf32>
  return
}

// -----

func.func @short_conv_c2(%x: tensor<?x?x64xf32>, %w: tensor<?x32x4xf32>, %c: tensor<?x?x64x4xf32>) {
  // expected-error @below {{expected a weight of width 64, but got 32}}
  %y, %a = dplr.short_conv <full> %x weight(%w : tensor<?x32x4xf32>)
      cache(%c : tensor<?x?x64x4xf32>) : tensor<?x?x64xf32>
  return
}

// -----

func.func @short_conv_c3_full(%x: tensor<?x?x64xf32>, %w: tensor<?x64x4xf32>, %c: tensor<?x?x64x3xf32>) {
  // expected-error @below {{expected a cache of 4 taps and width 64 in layout full, but got 'tensor<?x?x64x3xf32>'}}
  %y, %a = dplr.short_conv <full> %x weight(%w : tensor<?x64x4xf32>)
      cache(%c : tensor<?x?x64x3xf32>) : tensor<?x?x64xf32>
  return
}

// -----

func.func @short_conv_c3_history(%x: tensor<?x?x64xf32>, %w: tensor<?x64x4xf32>, %c: tensor<?x4x?x64xf32>) {
  // expected-error @below {{expected a cache of 4 taps and width 64 in layout history, but got 'tensor<?x4x?x64xf32>'}}
  %y, %a = dplr.short_conv <history> %x weight(%w : tensor<?x64x4xf32>)
      cache(%c : tensor<?x4x?x64xf32>) : tensor<?x?x64xf32>
  return
}

// -----

func.func @short_conv_c4(%x: tensor<?x?x64xf32>, %w: tensor<?x64x4xf32>, %c: tensor<?x?x64x4xbf16>) {
  // expected-error @below {{expected a cache of the input's element type, but got 'tensor<?x?x64x4xbf16>'}}
  %y, %a = dplr.short_conv <full> %x weight(%w : tensor<?x64x4xf32>)
      cache(%c : tensor<?x?x64x4xbf16>) : tensor<?x?x64xf32>
  return
}

// -----

func.func @short_conv_c5(%x: tensor<?x?x64xf32>, %w: tensor<?x64x4xf32>, %c: tensor<?x?x64x4xf32>, %i: tensor<?xi32>) {
  // expected-error @below {{expected sources and snapshots of a cache only with slots}}
  %y, %a = dplr.short_conv <full> %x weight(%w : tensor<?x64x4xf32>)
      cache(%c : tensor<?x?x64x4xf32>) sources(%i : tensor<?xi32>) : tensor<?x?x64xf32>
  return
}

// -----

func.func @short_conv_c6(%x: tensor<?x?x64xf32>, %w: tensor<?x64x4xf32>, %c: tensor<?x?x64x4xf32>, %i: tensor<?xi32>) {
  // expected-error @below {{expected accepted of a cache only with slots and without snapshots}}
  %y, %a = dplr.short_conv <full> %x weight(%w : tensor<?x64x4xf32>)
      cache(%c : tensor<?x?x64x4xf32>) accepted(%i : tensor<?xi32>) : tensor<?x?x64xf32>
  return
}

// -----

func.func @gated_rmsnorm_c1(%x: tensor<?x?x64xf32>, %w: tensor<64xf32>) {
  // expected-error @below {{expected a finite norm epsilon of at least 0, but got -1.000000e+00}}
  %y = dplr.gated_rmsnorm <silu> %x gate(%x) weight(%w : tensor<64xf32>) eps -1.0
      : tensor<?x?x64xf32>, tensor<?x?x64xf32>
  return
}

// -----

func.func @gated_rmsnorm_c2(%x: tensor<?x?x64xf32>, %w: tensor<32xf32>) {
  // expected-error @below {{expected gate and weight of width 64, but got 64 and 32}}
  %y = dplr.gated_rmsnorm <silu> %x gate(%x) weight(%w : tensor<32xf32>) eps 1.0e-5
      : tensor<?x?x64xf32>, tensor<?x?x64xf32>
  return
}

// -----

// Operand types outside the table of the .td.
func.func @l2norm_element_type(%k: tensor<?x?x128xf64>) {
  // expected-error @below {{must be 3D tensor of bfloat16 type or 16-bit float or 32-bit float values}}
  %0 = "dplr.l2norm"(%k) {eps = 1.0e-6} : (tensor<?x?x128xf64>) -> tensor<?x?x128xf64>
  return
}

// -----

func.func @recurrence_missing_layout(%q: tensor<?x?x64xf32>, %s: f32) {
  // expected-error @below {{requires attribute 'layout'}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x64xf32>) scale(%s) {precision = #dplr.precision<default>}
      -> tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
  return
}

// -----

func.func @latent_attention_c1(%q: tensor<?x?x?xf32>, %t: tensor<?x?xi32>, %n: tensor<?xi32>, %x: f32) {
  // expected-error @below {{expected values of 64 to 1024 elements and 64 to 256 more of a key, both multiples of 64, but got 512 and 32}}
  %o = dplr.latent_attention %q pages(%q) table(%t : tensor<?x?xi32>) slots(%n : tensor<?xi32>)
      lengths(%n : tensor<?xi32>) scale(%x) up_to 544 values 512 : tensor<?x?x?xf32>
  return
}

// -----

func.func @grouped_matmul_c1(%x: tensor<?x?xbf16>, %w: tensor<?x?x?xf16>, %t: tensor<?xi32>, %n: i64) {
  // expected-error @below {{expected weights of the input's type 'bf16', but got 'tensor<?x?x?xf16>'}}
  %y, %s = dplr.grouped_matmul %x by(%w : tensor<?x?x?xf16>) tiles(%t : tensor<?xi32>)
      starts(%t : tensor<?xi32>) order(%t : tensor<?xi32>) each(%n) : tensor<?x?xbf16>, tensor<?x?xf32>
  return
}

// -----

func.func @grouped_matmul_c2(%x: tensor<?x?xbf16>, %w: tensor<?x?x?xbf16>, %t: tensor<?xi32>, %n: i64) {
  // expected-error @below {{expected a kind exactly with up}}
  %y, %s = dplr.grouped_matmul %x by(%w : tensor<?x?x?xbf16>) gated <silu> tiles(%t : tensor<?xi32>)
      starts(%t : tensor<?xi32>) order(%t : tensor<?xi32>) each(%n) : tensor<?x?xbf16>, tensor<?x?xf32>
  return
}

// -----

func.func @grouped_matmul_c3(%x: tensor<?x?xbf16>, %w: tensor<?x?x?xbf16>, %t: tensor<?xi32>, %n: i64, %b: f32) {
  // expected-error @below {{expected beta and linear exactly with situ}}
  %y, %s = dplr.grouped_matmul %x by(%w : tensor<?x?x?xbf16>) gated <silu> up(%w : tensor<?x?x?xbf16>) beta(%b)
      tiles(%t : tensor<?xi32>) starts(%t : tensor<?xi32>) order(%t : tensor<?xi32>) each(%n)
      : tensor<?x?xbf16>, tensor<?x?xf32>
  return
}

// -----

func.func @prompt_attention_c1(%q: tensor<?x?x?xbf16>, %r: tensor<?x?xf32>, %t: tensor<?xi32>,
    %b: tensor<?x?x?xf32>, %m: tensor<?x?xf32>, %n: i64, %x: f32) {
  // expected-error @below {{expected shared parts of the queries' type 'bf16', but got 'f32'}}
  %o, %a, %l = dplr.prompt_attention %q expanded(%q) shared(%r : tensor<?x?xf32>)
      offsets(%t, %t : tensor<?xi32>) before(%b, %m : tensor<?x?x?xf32>, tensor<?x?xf32>)
      later(%n) scale(%x) up_to 192 values 128 : tensor<?x?x?xbf16>
  return
}

// -----

func.func @prompt_attention_c2(%q: tensor<?x?x?xbf16>, %r: tensor<?x?xbf16>, %t: tensor<?xi32>,
    %b: tensor<?x?x?xf32>, %m: tensor<?x?xf32>, %n: i64, %x: f32) {
  // expected-error @below {{expected values of 64 to 1024 elements and 64 to 256 more of a key, both multiples of 64, but got 1088 and 64}}
  %o, %a, %l = dplr.prompt_attention %q expanded(%q) shared(%r : tensor<?x?xbf16>)
      offsets(%t, %t : tensor<?xi32>) before(%b, %m : tensor<?x?x?xf32>, tensor<?x?xf32>)
      later(%n) scale(%x) up_to 1152 values 1088 : tensor<?x?x?xbf16>
  return
}

// -----

func.func @rmsnorm_c1(%x: tensor<?x?xf32>, %w: tensor<?xf32>, %e: f32) {
  // expected-error @below {{expected rows of up to 1 element or more, but got 0}}
  %s, %y = dplr.rmsnorm %x weight(%w : tensor<?xf32>) eps(%e) up_to 0 : tensor<?x?xf32>
  return
}

// -----

func.func @rmsnorm_c2(%x: tensor<?x?xf32>, %b: tensor<?x?xbf16>, %w: tensor<?xf32>, %e: f32) {
  // expected-error @below {{expected a branch of the input's type, but got 'tensor<?x?xbf16>'}}
  %s, %y = dplr.rmsnorm %x branch(%b : tensor<?x?xbf16>) weight(%w : tensor<?xf32>) eps(%e)
      up_to 64 : tensor<?x?xf32>
  return
}

// -----

func.func @rmsnorm_c3(%x: tensor<?x64xf32>, %w: tensor<32xf32>, %e: f32) {
  // expected-error @below {{expected a weight of width 64, but got 32}}
  %s, %y = dplr.rmsnorm %x weight(%w : tensor<32xf32>) eps(%e) up_to 64 : tensor<?x64xf32>
  return
}

// -----

func.func @gated_product_c1_missing(%x: tensor<?x?xf32>, %b: f32) {
  // expected-error @below {{expected beta and linear exactly with situ, but got kind situ}}
  %y = dplr.gated_product <situ> %x, %x beta(%b) : tensor<?x?xf32>
  return
}

// -----

func.func @gated_product_c1_extra(%x: tensor<?x?xf32>, %b: f32) {
  // expected-error @below {{expected beta and linear exactly with situ, but got kind silu}}
  %y = dplr.gated_product <silu> %x, %x beta(%b) linear(%b) : tensor<?x?xf32>
  return
}

// -----

func.func @latent_c1(%x: tensor<?x?xf32>, %w: tensor<?xf32>, %e: f32, %i: tensor<?xi32>, %t: tensor<?x?xi32>, %n: i64) {
  // expected-error @below {{expected rows of up to 1 element or more, but got 0}}
  %y = dplr.latent %x weight(%w : tensor<?xf32>) eps(%e) at(%i, %i : tensor<?xi32>)
      table(%t : tensor<?x?xi32>) of(%n) into(%x) up_to 0 : tensor<?x?xf32>
  return
}

// -----

func.func @latent_c2(%x: tensor<8x?xf32>, %w: tensor<?xf32>, %e: f32, %i: tensor<4xi32>, %t: tensor<?x?xi32>, %n: i64) {
  // expected-error @below {{expected slots and positions for 8 rows, but got 4}}
  %y = dplr.latent %x weight(%w : tensor<?xf32>) eps(%e) at(%i, %i : tensor<4xi32>)
      table(%t : tensor<?x?xi32>) of(%n) into(%x) up_to 64 : tensor<8x?xf32>
  return
}

// -----

func.func @mix_c1(%x: tensor<?x?x?xf32>, %q: tensor<?xf32>, %e: f32) {
  // expected-error @below {{expected rows of up to 1 element or more, but got 0}}
  %y = dplr.mix %x query(%q : tensor<?xf32>) eps(%e) up_to 0 : tensor<?x?x?xf32> -> tensor<?x?xf32>
  return
}

// -----

func.func @mix_c2(%x: tensor<?x4x?xf32>, %q: tensor<?xf32>, %e: f32) {
  // expected-error @below {{expected a result like one tensor of 'tensor<?x4x?xf32>', but got 'tensor<3x?xf32>'}}
  %y = dplr.mix %x query(%q : tensor<?xf32>) eps(%e) up_to 64 : tensor<?x4x?xf32> -> tensor<3x?xf32>
  return
}

// -----

func.func @mix_c3(%x: tensor<?x?x64xf32>, %q: tensor<32xf32>, %e: f32) {
  // expected-error @below {{expected a query of width 64, but got 32}}
  %y = dplr.mix %x query(%q : tensor<32xf32>) eps(%e) up_to 64 : tensor<?x?x64xf32> -> tensor<?x64xf32>
  return
}

// -----

func.func @combine_c1(%x: tensor<?x?xf32>, %i: tensor<?x8xi32>, %s: tensor<?x4xf32>) {
  // expected-error @below {{expected as many scales as indices, but got 'tensor<?x4xf32>' and 'tensor<?x8xi32>'}}
  %y = dplr.combine %x rows(%i : tensor<?x8xi32>) scales(%s : tensor<?x4xf32>) : tensor<?x?xf32>
  return
}
