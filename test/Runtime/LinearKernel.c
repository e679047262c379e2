/* Promises: linear attention, step form, K = V = 32, f32, by hand, with the
 * host entry's signature: a kernel for tests of the runtime that needs no
 * compiler of ours. FAULT makes it wrong in one way, for tests of testers.
 * Does not: share code with the oracle. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { dim = 32 };
enum {
  faultNone,
  faultWrong,
  faultUnwritten,
  faultCrash,
  faultHang,
  faultState,
  needsScratch /* no fault: insists on Triton's two null pointers */
};
#ifndef FAULT
#define FAULT faultNone
#endif

/* Arguments in ABI order. */
enum {
  Q,
  K,
  V,
  H0,
  OFFSETS,
  OUT,
  HT,
  N,
  T,
  H,
  HV,
  QS,
  KS,
  VS,
  OS,
  SCALE,
  GLOBAL,
  PROFILE
};

static int64_t size(void *const *args, int i) { return *(int64_t *)args[i]; }
static float *floats(void *const *args, int i) { return *(float **)args[i]; }

static void token(float *state, const float *q, const float *k, const float *v,
                  float *out, float scale) {
  for (int j = 0; j < dim; ++j) {
    float sum = 0;
    for (int i = 0; i < dim; ++i) {
      state[j * dim + i] += k[i] * v[j];
      sum += state[j * dim + i] * q[i];
    }
    if (FAULT == faultWrong)
      sum *= 1.01f;
    if (FAULT != faultUnwritten || j != dim - 1)
      out[j] = sum * scale;
  }
}

static void instance(void *const *args, int64_t index) {
  int64_t heads = size(args, HV), n = index / heads, head = index % heads;
  int64_t keyHead = head / (heads / size(args, H));
  const int32_t *offsets = *(int32_t **)args[OFFSETS];
  int64_t begin = offsets ? offsets[n] : n * size(args, T);
  int64_t end = offsets ? offsets[n + 1] : (n + 1) * size(args, T);
  float state[dim * dim] = {0};
  if (floats(args, H0))
    memcpy(state, floats(args, H0) + index * dim * dim, sizeof state);
  for (int64_t t = begin; t < end; ++t)
    token(state, floats(args, Q) + t * size(args, QS) + keyHead * dim,
          floats(args, K) + t * size(args, KS) + keyHead * dim,
          floats(args, V) + t * size(args, VS) + head * dim,
          floats(args, OUT) + t * size(args, OS) + head * dim,
          *(float *)args[SCALE]);
  if (FAULT == faultState)
    state[0] += 1.0f;
  if (floats(args, HT))
    memcpy(floats(args, HT) + index * dim * dim, state, sizeof state);
}

static void run(void *const *args, int64_t begin, int64_t end, void *scratch) {
  if (FAULT == faultCrash)
    abort();
  if (FAULT == needsScratch &&
      (floats(args, GLOBAL) != NULL || floats(args, PROFILE) != NULL))
    return;
  if (FAULT == faultHang)
    for (;;)
      pause();
  memset(scratch, 0x5a, 64); /* scratch of the promised size exists */
  for (int64_t i = begin; i < end; ++i)
    instance(args, i);
}

/* One symbol per target of the variant. */
void kdac_linear_step_k32v32_f32_f32vk_none_host(void *const *args,
                                                 int64_t begin, int64_t end,
                                                 void *scratch) {
  run(args, begin, end, scratch);
}
void kdac_linear_step_k32v32_f32_f32vk_none_sm_90a(void *const *args,
                                                   int64_t begin, int64_t end,
                                                   void *scratch) {
  run(args, begin, end, scratch);
}
