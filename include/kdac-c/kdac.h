/* Promises: kdac's packs, kernels and devices from C, with a stable ABI: find a
 * kernel that fits, load it, launch it. Links neither LLVM nor libcuda. Does
 * not: compile kernels, allocate device memory, synchronise, print, or exit.
 *
 * Failure is a value: every function that can fail returns a kdac_status *,
 * NULL on success, else an object with a code and a sentence that the caller
 * frees. Handles may be used from any thread, and closed in any order. Structs
 * begin with struct_size, to be set to sizeof; all other fields may be 0, which
 * means "not said". docs/EMBEDDING.md shows it all in one engine. */
#ifndef KDAC_C_KDAC_H
#define KDAC_C_KDAC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KDAC_API __attribute__((visibility("default")))
#define KDAC_CHECKED __attribute__((warn_unused_result))
#else
#define KDAC_API
#define KDAC_CHECKED
#endif

/* Raised when something is added. Structs only grow at their end. */
#define KDAC_ABI_VERSION 1
KDAC_API int64_t kdac_abi_version(void);

/* ---- Status ---- */

typedef struct kdac_status kdac_status;

typedef enum kdac_code {
  KDAC_OK = 0,
  KDAC_INVALID_ARGUMENT = 1, /* something the kernel cannot take */
  KDAC_NOT_FOUND = 2,        /* no such file, variant, device or symbol */
  KDAC_CORRUPT = 3,          /* damaged, truncated or of another kind */
  KDAC_UNSUPPORTED = 4,      /* valid, but not here or in this version */
  KDAC_UNAVAILABLE = 5,      /* a driver or device is missing */
  KDAC_IO = 6,               /* the operating system refused */
  KDAC_DEVICE = 7            /* the GPU driver reported an error */
} kdac_code;

/* KDAC_OK for NULL. */
KDAC_API kdac_code kdac_status_code(const kdac_status *status);
/* One sentence, without a full stop; "" for NULL. Lives as long as status. */
KDAC_API const char *kdac_status_message(const kdac_status *status);
/* NULL is allowed. */
KDAC_API void kdac_status_free(kdac_status *status);

/* ---- Devices ---- */

typedef struct kdac_device kdac_device;

typedef struct kdac_device_options {
  int64_t struct_size;
  int64_t threads;     /* host: in all; 0: one per core */
  void *cuda_context;  /* GPU: a CUcontext of the caller, which must outlive
                          the device; NULL: the primary context */
  const char *library; /* GPU: another driver library; NULL: libcuda.so.1 */
} kdac_device_options;

/* name is "host" or "cuda:0", "cuda:1", ...; options may be NULL. */
KDAC_API KDAC_CHECKED kdac_status *
kdac_device_open(const char *name, const kdac_device_options *options,
                 kdac_device **out_device);
KDAC_API void kdac_device_close(kdac_device *device);

typedef struct kdac_device_info {
  int64_t struct_size;
  const char *name;   /* "NVIDIA H200", "host"; lives as long as the device */
  const char *driver; /* "580.159.04"; "" on the host */
  int64_t is_host;
  int64_t compute_major, compute_minor; /* GPU: 9 and 0 of sm_90a */
  int64_t multiprocessors;              /* GPU */
  int64_t shared_bytes_per_block;       /* GPU */
  int64_t threads;                      /* host */
} kdac_device_info;

/* Fills *out_info, whose struct_size the caller has set. */
KDAC_API KDAC_CHECKED kdac_status *
kdac_device_get_info(const kdac_device *device, kdac_device_info *out_info);

/* ---- Packs ---- */

typedef struct kdac_pack kdac_pack;

/* Reads and verifies every byte; receipts of self-tests are taken from
 * PATH.checked where kdac-pack check has left them. */
KDAC_API KDAC_CHECKED kdac_status *kdac_pack_open_file(const char *path,
                                                       kdac_pack **out_pack);
/* The same for size bytes, which are copied; name is how errors call them. */
KDAC_API KDAC_CHECKED kdac_status *kdac_pack_open_memory(const void *bytes,
                                                         int64_t size,
                                                         const char *name,
                                                         kdac_pack **out_pack);
/* Takes the receipts of the file at path too; no file is no receipts. Not to
 * be called while kernels are being loaded from the pack. */
KDAC_API KDAC_CHECKED kdac_status *kdac_pack_add_receipts(kdac_pack *pack,
                                                          const char *path);
KDAC_API void kdac_pack_close(kdac_pack *pack);

KDAC_API int64_t kdac_pack_count(const kdac_pack *pack);
/* The name of variant index, or NULL; lives as long as the pack. */
KDAC_API const char *kdac_pack_name(const kdac_pack *pack, int64_t index);

/* ---- Kernels ---- */

typedef struct kdac_kernel kdac_kernel;

/* The distance between two tokens of the tensor called tensor, in elements. */
typedef struct kdac_stride {
  const char *tensor; /* q, k, v, g, beta, a, b or out */
  int64_t elements;
} kdac_stride;

enum { KDAC_UNSET = 0, KDAC_NO = 1, KDAC_YES = 2 };

/* What the caller has. What is not said takes the default of the recurrence,
 * as in kdac compile, because another value computes something else; only
 * offset_dtype and precision match any variant then. `kdac list` has all
 * spellings. */
typedef struct kdac_request {
  int64_t struct_size;
  const char *recurrence;     /* kda, gated_delta, delta, gla, ... */
  const char *form;           /* chunk (prefill) or step (decode) */
  int64_t key_dim, value_dim; /* K and V */
  const char *dtype;          /* of q, k, v, beta, out: bf16, f16, f32 */
  const char *state_dtype;    /* f32, bf16 */
  const char *state_layout;   /* vk: [N, HV, V, K], kv: [N, HV, K, V] */
  const char *gate;           /* bounded, softplus, identity, none */
  double lower_bound;         /* of the bounded gate, < 0 */
  const char *gate_dtype;     /* bf16, f16, f32 */
  const char *beta;           /* sigmoid, 2sigmoid, identity, none */
  int64_t l2norm;             /* KDAC_UNSET, KDAC_NO or KDAC_YES */
  const char *offset_dtype;   /* i32, i64 */
  const char *precision;      /* fast, default, high */
  const char *slots;          /* states in a pool: none, i32, i64 */
  int64_t snapshots;          /* KDAC_YES: keep the state of every token */
  int64_t conv;               /* width of the convolution; 0: none */
  const char *cache_layout;   /* of its caches: full, history */
  const char *norm;           /* of the output: none, sigmoid, silu */
  double norm_eps;
  const kdac_stride *strides; /* of tensors that are not contiguous */
  int64_t stride_count;
  int64_t log; /* KDAC_YES: keep tokens, commit those that are accepted */
} kdac_request;

/* Finds the variant that fits the request on this device and loads it, with
 * everything a launch needs: a later launch loads nothing, also while a stream
 * is being captured. When none fits, the sentence says for each why. The kernel
 * keeps what it needs of device and pack alive. */
KDAC_API KDAC_CHECKED kdac_status *kdac_kernel_load(kdac_device *device,
                                                    const kdac_pack *pack,
                                                    const kdac_request *request,
                                                    kdac_kernel **out_kernel);
/* The same for a variant's name, with or without its target. */
KDAC_API KDAC_CHECKED kdac_status *
kdac_kernel_load_named(kdac_device *device, const kdac_pack *pack,
                       const char *name, kdac_kernel **out_kernel);
KDAC_API void kdac_kernel_close(kdac_kernel *kernel);

typedef struct kdac_kernel_info {
  int64_t struct_size;
  const char *name;   /* of the variant; strings live as long as the kernel */
  const char *origin; /* "cubin sm_90a", "host-so x86-64-v3", ... */
  int64_t key_dim, value_dim;
  /* 0 if a listed assembler made the code and kdac-pack check has not passed on
   * this kind of GPU; why says it. */
  int64_t is_verified;
  const char *why;
} kdac_kernel_info;

KDAC_API KDAC_CHECKED kdac_status *
kdac_kernel_get_info(const kdac_kernel *kernel, kdac_kernel_info *out_info);

/* One call. Pointers are device addresses on a GPU. Shapes: q, k, a, b are
 * [tokens, H, K]; v, out, z [tokens, HV, V]; g [tokens, HV, K] or [tokens, HV];
 * beta [tokens, HV]; A_log [HV]; dt_bias [HV, K] or [HV]; h0, ht
 * [N, HV, V, K] or [N, HV, K, V]. Without offsets there are N sequences of T
 * tokens each, one after the other; with offsets [N + 1], sequence n is tokens
 * offsets[n] .. offsets[n + 1] of T in all. docs/DECODE.md has pools of states,
 * caches of convolutions and the status word. Tensors that the variant does not
 * have must be NULL; those that `kdac-pack explain` says may be null may be. */
typedef struct kdac_call {
  int64_t struct_size;
  const void *q, *k, *v, *g, *beta;
  const void *A_log, *dt_bias; /* f32 */
  const void *a, *b;
  const void *q_conv, *k_conv, *v_conv; /* weights of convolutions */
  void *q_cache, *k_cache, *v_cache;    /* their last inputs */
  const void *z, *norm_weight;          /* of the output's norm; weight f32 */
  const void *h0;
  const void *slots, *sources, *snapshots; /* of a pool of states */
  const void *offsets;
  void *out, *ht;
  void *workspace; /* kdac_kernel_workspace_bytes of it */
  int64_t workspace_bytes;
  void *status; /* int64_t in device memory */
  int64_t N, T;
  int64_t H, HV; /* key and value heads; HV 0: H */
  int64_t pool;  /* slots of the pool */
  /* Between slots and heads of a pool, and slots of caches, in elements; 0:
   * contiguous. */
  int64_t slot_pitch, head_pitch;
  int64_t q_cache_pitch, k_cache_pitch, v_cache_pitch;
  /* Between two tokens, in elements; 0: contiguous. Heads and channels of a
   * token are contiguous, so a slice of a fused projection is a tensor. */
  int64_t q_stride, k_stride, v_stride, g_stride, beta_stride, a_stride,
      b_stride, z_stride, out_stride;
  float scale; /* 0: K^-0.5 */
  /* 1: a GPU may begin with this call before the kernel ahead of it in the
   * stream has ended, which then may still write this call's inputs but none of
   * its pool, indices, caches and parameters (docs/DECODE.md). */
  int64_t overlap;
  const void *accepted; /* of a variant with a log: commits so many tokens */
} kdac_call;

/* Bytes of device memory that a call of these sizes needs as workspace; 0 where
 * a null workspace will do. Looks at sizes, and at offsets being NULL or not.
 * More tokens never need less; fewer sequences of as many tokens may need more.
 * Calls that may run at the same time need workspaces of their own. */
KDAC_API KDAC_CHECKED kdac_status *
kdac_kernel_workspace_bytes(const kdac_kernel *kernel, const kdac_call *call,
                            int64_t *out_bytes);

/* Checks the call and enqueues it on stream, a CUstream of the device's context
 * (or cudaStream_t; NULL: the default stream). Allocates no device memory and
 * does not wait. On the host, runs the call to its end; stream is ignored, and
 * calls from several threads on one device take turns. Nothing has run if it
 * fails with KDAC_INVALID_ARGUMENT. */
KDAC_API KDAC_CHECKED kdac_status *kdac_kernel_launch(const kdac_kernel *kernel,
                                                      void *stream,
                                                      const kdac_call *call);

#ifdef __cplusplus
}
#endif

#endif /* KDAC_C_KDAC_H */
