// RUN: kdac-opt %s --split-input-file --verify-diagnostics --dplr-select-schedule="target=sm_90a roles=warps"

// roles-warps-errors.test has the other reasons.
func.func @one_norm(%q: tensor<?x?x64xbf16>, %g: tensor<?x?x64xbf16>, %s: f32) attributes {dplr.form = #dplr.form<chunk>} {
  %k = dplr.l2norm %q eps 0.0 : tensor<?x?x64xbf16>
  // expected-error @below {{cannot have roles warps: they need q and k both normalised in the kernel, or neither; roles split and fused have no such needs}}
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xbf16>) k(%k : tensor<?x?x64xbf16>)
      v(%q : tensor<?x?x64xbf16>) decay(%g : tensor<?x?x64xbf16>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
  return
}
