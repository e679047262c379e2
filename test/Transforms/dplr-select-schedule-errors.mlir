// RUN: kdac-opt %s --split-input-file --verify-diagnostics --dplr-select-schedule=target=sm_90a

func.func @erase_pair_has_no_chunk_form(%q: tensor<?x?x64xbf16>, %s: f32)
    attributes {dplr.form = #dplr.form<chunk>} {
  // expected-error @below {{has no chunk form for a general erase pair yet; use form step}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xbf16>) k(%q : tensor<?x?x64xbf16>)
      v(%q : tensor<?x?x64xbf16>) erase(%q : tensor<?x?x64xbf16>, %q : tensor<?x?x64xbf16>)
      scale(%s) {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
  return
}

// -----

// expected-error @below {{expected one op on rows with form rows, but got 2 ops}}
func.func @two_ops(%x: tensor<?x?xbf16>) attributes {dplr.form = #dplr.form<rows>} {
  %y = dplr.add %x, %x : tensor<?x?xbf16>
  %z = dplr.add %y, %x : tensor<?x?xbf16>
  return
}

// -----

// expected-error @below {{expected one dplr.latent_attention with form attention, but got 1 ops}}
func.func @no_attention(%x: tensor<?x?xbf16>) attributes {dplr.form = #dplr.form<attention>} {
  %y = dplr.add %x, %x : tensor<?x?xbf16>
  return
}

// -----

// expected-error @below {{expected one dplr.grouped_matmul with form matmul, but got 1 ops}}
func.func @no_matmul(%x: tensor<?x?xbf16>) attributes {dplr.form = #dplr.form<matmul>} {
  %y = dplr.add %x, %x : tensor<?x?xbf16>
  return
}

// -----

// expected-error @below {{expected one dplr.prompt_attention with form prompt, but got 1 ops}}
func.func @no_prompt(%x: tensor<?x?xbf16>) attributes {dplr.form = #dplr.form<prompt>} {
  %y = dplr.add %x, %x : tensor<?x?xbf16>
  return
}

// -----

// expected-error @below {{expected a dplr.form of chunk or step}}
func.func @form_is_no_form(%q: tensor<?x?x64xbf16>, %s: f32) attributes {dplr.form = 7 : i64} {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xbf16>) k(%q : tensor<?x?x64xbf16>)
      v(%q : tensor<?x?x64xbf16>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
  return
}

// -----

// expected-error @below {{expected one dplr.recurrence, but got 0}}
func.func @no_recurrence() attributes {dplr.form = #dplr.form<chunk>} { return }

// -----

func.func @operand_is_no_argument(%q: tensor<?x?x64xbf16>, %s: f32)
    attributes {dplr.form = #dplr.form<chunk>} {
  %once = dplr.l2norm %q eps 0.0 : tensor<?x?x64xbf16>
  %twice = dplr.l2norm %once eps 0.0 : tensor<?x?x64xbf16>
  // expected-note @-2 {{it is computed here}}
  // expected-error @below {{expected k to be a function argument behind at most one dplr.l2norm}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xbf16>) k(%twice : tensor<?x?x64xbf16>)
      v(%q : tensor<?x?x64xbf16>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
  return
}

// -----

func.func @normalised_values(%q: tensor<?x?x64xbf16>, %s: f32)
    attributes {dplr.form = #dplr.form<step>} {
  %v = dplr.l2norm %q eps 0.0 : tensor<?x?x64xbf16>
  // expected-error @below {{expected v without a dplr.l2norm}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xbf16>) k(%q : tensor<?x?x64xbf16>)
      v(%v : tensor<?x?x64xbf16>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
  return
}

// -----

func.func @layer_size(%q: tensor<?x?x256xbf16>, %w: tensor<256xf32>, %s: f32)
    attributes {dplr.form = #dplr.form<step>} {
  // expected-error @below {{with its convolution or norm expected a state of at most 32768 elements on sm_90a, but got 65536}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x256xbf16>) k(%q : tensor<?x?x256xbf16>)
      v(%q : tensor<?x?x256xbf16>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x256xbf16>, tensor<?x?x256x256xf32>
  %y = dplr.gated_rmsnorm <silu> %o gate(%q) weight(%w : tensor<256xf32>) eps 1.0e-5
      : tensor<?x?x256xbf16>, tensor<?x?x256xbf16>
  return
}

// -----

func.func @conv_of_beta(%q: tensor<?x?x64xf32>, %b: tensor<?x?xf32>,
    %w: tensor<?x64x2xf32>, %c: tensor<?x?x64x2xf32>, %s: f32)
    attributes {dplr.form = #dplr.form<step>} {
  %a, %after = dplr.short_conv <full> %q weight(%w : tensor<?x64x2xf32>)
      cache(%c : tensor<?x?x64x2xf32>) : tensor<?x?x64xf32>
  // expected-error @below {{expected a dplr.short_conv only before q, k and v}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xf32>) k(%q : tensor<?x?x64xf32>)
      v(%q : tensor<?x?x64xf32>) decay(%a : tensor<?x?x64xf32>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xf32>, tensor<?x?x64x64xf32>
  return
}

// -----

// expected-error @below {{key dim K = 48 is not supported on sm_90a; multiples of 32 up to 256 are, and the host takes any}}
func.func @gpu_widths(%q: tensor<?x?x48xbf16>, %s: f32)
    attributes {dplr.form = #dplr.form<chunk>} {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x48xbf16>) k(%q : tensor<?x?x48xbf16>)
      v(%q : tensor<?x?x48xbf16>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x48xbf16>, tensor<?x?x48x48xf32>
  return
}
