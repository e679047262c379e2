/* Calls a kernel in the form of triton.tools.compile (KERNEL, LOAD, UNLOAD and
 * ERROR are its names) in the contexts of two fake GPUs. Prints what is wrong;
 * exit code 0 if nothing is. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { dim = 32 };
const char *ERROR(void);

static int (*retain)(void **, int), (*push)(void *), (*pop)(void **);
static int *loads;
static int faults;

static void expect(int good, const char *what) {
  if (!good)
    printf("AotCaller: %s; the last error is '%s'\n", what, ERROR());
  faults += !good;
}

static void find(void *library, const char *name, void *slot) {
  void *symbol = dlsym(library, name);
  memcpy(slot, &symbol, sizeof symbol);
  if (!symbol)
    exit(3);
}

static float *floats(float value) {
  float *memory = aligned_alloc(64, dim * sizeof *memory);
  int i;
  for (i = 0; i < dim; ++i)
    memory[i] = value * (float)(i % 3);
  return memory;
}

static CUdeviceptr address(const float *memory) {
  return (CUdeviceptr)(uintptr_t)memory;
}

/* One token, one head, no state: out = scale (k . q) v. */
static CUresult call(const float *q, const float *k, const float *v,
                     float *out) {
  return KERNEL(NULL, address(q), address(k), address(v), 0, 0, address(out), 0,
                1, 1, 1, 1, 0, 0, 0, 0, 0.5f);
}

int main(void) {
  float *q = floats(1), *k = floats(2), *v = floats(3), *out = floats(0);
  float sum = 0;
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
  int device, i, round;
  find(library, "cuDevicePrimaryCtxRetain", &retain);
  find(library, "cuCtxPushCurrent_v2", &push);
  find(library, "cuCtxPopCurrent_v2", &pop);
  find(library, "fakeCudaLoads", &loads);
  for (i = 0; i < dim; ++i)
    sum += q[i] * k[i];

  expect(call(q, k, v, out) == 201, "a call without a context must say so");
  expect(strstr(ERROR(), "no CUDA context") != NULL, "no sentence about it");
  for (round = 0; round < 2; ++round)
    for (device = 0; device < 2; ++device) {
      retain(&context, device);
      push(context);
      LOAD();
      memset(out, 0, dim * sizeof *out);
      expect(call(q, k, v, out) == 0, "a call failed");
      for (i = 0; i < dim; ++i)
        expect(out[i] == 0.5f * sum * v[i], "a wrong value");
      expect(call(q + 1, k, v, out) == CUDA_ERROR_INVALID_VALUE,
             "a misaligned pointer must be refused");
      expect(strstr(ERROR(), "argument q = ") != NULL, "no sentence about it");
      pop(&context);
    }
  expect(*loads == 2, "one load for each context");
  UNLOAD();
  push(context);
  expect(call(q, k, v, out) == 0, "a call after unloading failed");
  expect(*loads == 3, "a load after unloading");
  return faults != 0;
}
