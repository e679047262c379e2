// An unknown target is refused before anything else, with the ones that exist.
// RUN: kdac-opt %s --verify-diagnostics --dplr-select-schedule=target=sm_999
// RUN: not kdac-opt %s --dplr-select-schedule="target=host chunk=48" 2>&1 | FileCheck %s --check-prefix=CHUNK

// expected-error @below {{unknown target 'sm_999', expected one of host, sm_80, sm_89, sm_90a, sm_100a, sm_120}}
module {
  // CHUNK: error: 'func.func' op expected powers of two with leaf <= chunk, but got chunk 48
  func.func @kernel(%q: tensor<?x?x64xbf16>, %s: f32)
      -> (tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>)
      attributes {dplr.form = #dplr.form<chunk>} {
    %o, %ht = dplr.recurrence q(%q : tensor<?x?x64xbf16>) k(%q : tensor<?x?x64xbf16>)
        v(%q : tensor<?x?x64xbf16>) scale(%s)
        {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
        -> tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
    return %o, %ht : tensor<?x?x64xbf16>, tensor<?x?x64x64xf32>
  }
}
