/* A small engine around kdac's kernels: prefills two prompts of different
 * lengths in one packed call, then decodes both, one token each at a time.
 *
 *     engine [FILE [DEVICE]]
 *
 * runs on DEVICE (host, cuda:0, ...), prints a line, and writes all inputs and
 * outputs to FILE, so that a test can compare them with an oracle. */
#include "kernels.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { heads = 3, dim = 64, sequences = 2, steps = 5 };
enum { width = heads * dim, row = 3 * width }; /* a fused projection: q k v */
enum { betaRow = 8 }; /* padded: a call's pointers are multiples of 16 bytes */
enum { states = sequences * heads * dim * dim };
enum { prompt0 = 37, prompt1 = 70 };
enum { prefillTokens = prompt0 + prompt1 };
enum { tokens = prefillTokens + steps * sequences };

/* Everything a run needs; prefill tokens first, then those of each step. */
typedef struct Session {
  kdac_device *device;
  kernels_kernels kernels;
  uint16_t *fused, *gate, *beta,
      *out;               /* [tokens, row | width | betaRow | width] */
  float *A_log, *dt_bias; /* [heads], [heads, dim] */
  float *state[2];        /* [sequences, heads, dim, dim], V first */
  int32_t *offsets;       /* of the prompts: [sequences + 1] */
  void *workspace;
  int64_t workspaceBytes;
} Session;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "engine: %s: %s\n", what, why);
  exit(1); /* an engine would return it */
}

static void check(kdac_status *status, const char *what) {
  if (status)
    fail(what, kdac_status_message(status));
}

static void *allocate(size_t bytes) {
  void *memory = memory_allocate(bytes);
  if (!memory)
    fail("memory", "none left");
  return memory;
}

/* ---- What a model would compute ---- */

static float uniform(void) { /* in [-1, 1) */
  static uint64_t seed = 1;
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (float)(int32_t)(seed >> 32) / 2147483648.0f;
}

static uint16_t bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void fill(uint16_t *to, size_t count, float scale) {
  for (size_t i = 0; i < count; ++i)
    to[i] = bf16(scale * uniform());
}

static void project(Session *s) {
  fill(s->fused, (size_t)tokens * row, 1);
  fill(s->gate, (size_t)tokens * width, 2);
  fill(s->beta, (size_t)tokens * betaRow, 2);
  for (int i = 0; i < heads; ++i)
    s->A_log[i] = uniform();
  for (int i = 0; i < width; ++i)
    s->dt_bias[i] = uniform();
}

/* ---- The two calls ---- */

/* All prompts at once: packed sequences, from zero states to state[0]. */
static void prefill(Session *s) {
  kernels_kda_chunk_k64v64_bf16_f32vk_bounded_args args = {0};
  args.q = s->fused;
  args.k = s->fused + width;
  args.v = s->fused + 2 * width;
  args.q_stride = args.k_stride = args.v_stride = row;
  args.beta_stride = betaRow;
  args.g = s->gate;
  args.beta = s->beta;
  args.A_log = s->A_log;
  args.dt_bias = s->dt_bias;
  args.offsets = s->offsets;
  args.out = s->out;
  args.ht = s->state[0];
  args.N = sequences;
  args.T = prefillTokens;
  args.H = args.HV = heads;
  check(kernels_kda_chunk_k64v64_bf16_f32vk_bounded_workspace_bytes(
            &s->kernels, &args, &s->workspaceBytes),
        "workspace");
  s->workspace = allocate((size_t)s->workspaceBytes);
  args.workspace = s->workspace;
  args.workspace_bytes = s->workspaceBytes;
  check(kernels_kda_chunk_k64v64_bf16_f32vk_bounded(&s->kernels, NULL, &args),
        "prefill");
}

/* One token of every sequence, from state[step % 2] to the other. */
static void decode(Session *s, int step) {
  kernels_kda_step_k64v64_bf16_f32vk_bounded_args args = {0};
  size_t first = (size_t)prefillTokens + (size_t)step * sequences;
  args.q = s->fused + first * row;
  args.k = args.q + width;
  args.v = args.q + 2 * width;
  args.q_stride = args.k_stride = args.v_stride = row;
  args.beta_stride = betaRow;
  args.g = s->gate + first * width;
  args.beta = s->beta + first * betaRow;
  args.A_log = s->A_log;
  args.dt_bias = s->dt_bias;
  args.h0 = s->state[step % 2];
  args.ht = s->state[(step + 1) % 2];
  args.out = s->out + first * width;
  args.N = sequences;
  args.T = 1;
  args.H = args.HV = heads;
  check(kernels_kda_step_k64v64_bf16_f32vk_bounded(&s->kernels, NULL, &args),
        "decode");
}

/* ---- The session ---- */

static void open(Session *s, const char *device) {
  const char *problem = memory_open(device);
  if (problem)
    fail(device, problem);
  memset(s, 0, sizeof *s);
  check(kdac_device_open(device, NULL, &s->device), "device");
  check(kernels_load(s->device, &s->kernels), "kernels");
  s->fused = allocate((size_t)tokens * row * 2);
  s->gate = allocate((size_t)tokens * width * 2);
  s->beta = allocate((size_t)tokens * betaRow * 2);
  s->out = allocate((size_t)tokens * width * 2);
  s->A_log = allocate(heads * 4);
  s->dt_bias = allocate(width * 4);
  s->offsets = allocate((sequences + 1) * 4);
  s->offsets[1] = prompt0;
  s->offsets[2] = prompt0 + prompt1;
  for (int i = 0; i < 2; ++i)
    s->state[i] = allocate(states * 4);
}

static void save(const Session *s, const char *path) {
  const int64_t header[] = {heads, dim, sequences, steps, prompt0, tokens};
  const struct {
    const void *data;
    size_t bytes;
  } parts[] = {{header, sizeof header},
               {s->fused, (size_t)tokens * row * 2},
               {s->gate, (size_t)tokens * width * 2},
               {s->beta, (size_t)tokens * betaRow * 2},
               {s->A_log, heads * 4},
               {s->dt_bias, width * 4},
               {s->out, (size_t)tokens * width * 2},
               {s->state[steps % 2], states * 4}};
  FILE *file = fopen(path, "wb");
  int good = file != NULL;
  for (size_t i = 0; good && i < sizeof parts / sizeof *parts; ++i)
    good = fwrite(parts[i].data, 1, parts[i].bytes, file) == parts[i].bytes;
  if (!file || fclose(file) != 0 || !good)
    fail(path, "cannot be written");
}

int main(int argc, char **argv) {
  Session session;
  const char *problem;
  open(&session, argc > 2 ? argv[2] : "host");
  project(&session);
  prefill(&session);
  for (int step = 0; step < steps; ++step)
    decode(&session, step);
  problem = memory_wait();
  if (problem)
    fail("device", problem);
  printf("engine: %d sequences, %d tokens prefilled, %d decoded\n", sequences,
         prefillTokens, steps * sequences);
  if (argc > 1)
    save(&session, argv[1]);
  kernels_close(&session.kernels);
  kdac_device_close(session.device);
  return 0;
}
