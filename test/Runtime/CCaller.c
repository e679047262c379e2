/* Promises: one call through the C ABI as an engine in C makes it.
 * Does not: include anything of kdac but its C header. */
#include "kdac-c/kdac.h"

kdac_status *callFromC(kdac_device *device, const kdac_pack *pack,
                       const float *q, const float *k, const float *v,
                       const float *h0, float *out, float *ht);

kdac_status *callFromC(kdac_device *device, const kdac_pack *pack,
                       const float *q, const float *k, const float *v,
                       const float *h0, float *out, float *ht) {
  kdac_request request = {.struct_size = sizeof request};
  kdac_call call = {.struct_size = sizeof call};
  kdac_kernel *kernel;
  kdac_status *status;
  request.recurrence = "linear";
  request.form = "step";
  request.key_dim = request.value_dim = 32;
  request.dtype = "f32";
  status = kdac_kernel_load(device, pack, &request, &kernel);
  if (status)
    return status;
  call.q = q;
  call.k = k;
  call.v = v;
  call.h0 = h0;
  call.out = out;
  call.ht = ht;
  call.N = 2;
  call.T = 3;
  call.H = 2;
  call.HV = 4;
  call.scale = 0.5f;
  status = kdac_kernel_launch(kernel, 0, &call);
  kdac_kernel_close(kernel);
  return status;
}
