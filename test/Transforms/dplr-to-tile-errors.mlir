// RUN: kdac-opt %s --verify-diagnostics --dplr-to-tile

// expected-error @below {{expected a tile.schedule; run dplr-select-schedule first}}
func.func @no_schedule(%q: tensor<?x?x64xbf16>, %s: f32)
    -> (tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>)
    attributes {dplr.form = #dplr.form<chunk>} {
  %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xbf16>) k(%q : tensor<?x?x64xbf16>)
      v(%q : tensor<?x?x64xbf16>) scale(%s)
      {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
      -> tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
  return %o, %ht : tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
}
