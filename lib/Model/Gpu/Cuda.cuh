// Promises: what kernels need of CUDA C++, without its SDK: clang's builtins,
// conversions, warp reductions, asynchronous copies. Does not: know any kernel.
#ifndef KDAC_LIB_MODEL_GPU_CUDA_CUH
#define KDAC_LIB_MODEL_GPU_CUDA_CUH

#define KERNEL extern "C" __attribute__((global))
#define DEVICE static inline __attribute__((device, always_inline))
#define DEVICE_MEMBER __attribute__((device, always_inline))
#define SHARED __attribute__((shared))
#define BOUNDS(threads, blocks) __attribute__((launch_bounds(threads, blocks)))

using int32_t = int;
using int64_t = long long;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long long;
using bf16 = __bf16;

#include "Args.h"

namespace kdac::model::gpu {

/// 16 bytes, as the memory system likes them.
struct alignas(16) Quad {
  uint32_t w[4];
};

DEVICE int thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE int threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE int lane() { return thread() & 31; }
DEVICE int warp() { return thread() >> 5; }
DEVICE int blockX() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE int blockY() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE int blockZ() { return __nvvm_read_ptx_sreg_ctaid_z(); }
DEVICE int gridX() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE void barrier() { __syncthreads(); }

// Kernels overlap: a block may start while the kernel before it still runs. By
// the rule that a kernel lets the next one start only behind its own wait,
// every kernel but the last one before it is complete by then.
/// Until the kernel before this one is complete and its writes are seen.
DEVICE void awaitPrevious() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
/// The next kernel's blocks may take multiprocessors that this one leaves.
DEVICE void allowNext() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
DEVICE void beginKernel() {
  awaitPrevious();
  allowNext();
}

DEVICE int least(int a, int b) { return a < b ? a : b; }
DEVICE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
DEVICE float greatest(float a, float b) { return a > b ? a : b; }

DEVICE float bits(uint32_t x) { return __builtin_bit_cast(float, x); }
DEVICE float low(uint32_t pair) { return bits(pair << 16); }
DEVICE float high(uint32_t pair) { return bits(pair & 0xffff0000u); }
/// Two values as bf16, `a` in the low half.
DEVICE uint32_t pack(float a, float b) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  return pair;
}

DEVICE float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
constexpr float log2e = 1.44269504088896340736f;
DEVICE float exp(float x) { return exp2(x * log2e); }
DEVICE float rsqrt(float x) { return 1 / __nvvm_sqrt_rn_f(x); }
DEVICE float sigmoid(float x) { return 1 / (1 + exp(-x)); }
/// By its series where the quotient would cancel.
DEVICE float tanh(float x) {
  float square = x * x;
  if (square < 0.01f)
    return x * (1 + square * (-1.0f / 3 +
                              square * (2.0f / 15 - square * 17.0f / 315)));
  return 1 - 2 / (1 + exp(2 * x));
}

DEVICE float shuffleXor(float x, int mask) {
  return __nvvm_shfl_sync_bfly_f32(0xffffffffu, x, mask, 31);
}
DEVICE int shuffleXor(int x, int mask) {
  return __nvvm_shfl_sync_bfly_i32(0xffffffffu, x, mask, 31);
}
/// Of lane `from`.
DEVICE float shuffleFrom(float x, int from) {
  return __nvvm_shfl_sync_idx_f32(0xffffffffu, x, from, 31);
}
DEVICE int shuffleFrom(int x, int from) {
  return __nvvm_shfl_sync_idx_i32(0xffffffffu, x, from, 31);
}
/// Of the whole warp, on every lane; always in the same order.
DEVICE float warpSum(float x) {
  for (int mask = 16; mask > 0; mask >>= 1)
    x += shuffleXor(x, mask);
  return x;
}
template <typename T> DEVICE float load(const T *p) {
  return static_cast<float>(*p);
}
template <typename T> DEVICE void store(T *p, float x) {
  *p = static_cast<T>(x);
}

/// Eight elements from a multiple of 16 bytes, as they are stored.
template <typename T> struct Eight;
template <> struct Eight<bf16> {
  Quad q;
  DEVICE_MEMBER float operator[](int i) const {
    return i & 1 ? high(q.w[i >> 1]) : low(q.w[i >> 1]);
  }
};
template <> struct Eight<float> {
  Quad q[2];
  DEVICE_MEMBER float operator[](int i) const {
    return bits(q[i >> 2].w[i & 3]);
  }
};
template <typename T> DEVICE Eight<T> loadEight(const T *p) {
  return *reinterpret_cast<const Eight<T> *>(p);
}
/// Eight elements out of f32 values by index.
template <typename T, typename Value> DEVICE Eight<T> roundEight(Value value) {
  Eight<T> out;
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      out.q.w[i] = pack(value(2 * i), value(2 * i + 1));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      out.q[i >> 2].w[i & 3] = __builtin_bit_cast(uint32_t, value(i));
  }
  return out;
}
/// Read once, so that it need not stay in any cache.
DEVICE Quad streamQuad(const void *p) {
  Quad q;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(q.w[0]), "=r"(q.w[1]), "=r"(q.w[2]), "=r"(q.w[3])
               : "l"(p));
  return q;
}
DEVICE Eight<bf16> streamEight(const bf16 *p) { return {streamQuad(p)}; }
DEVICE Eight<float> streamEight(const float *p) {
  return {{streamQuad(p), streamQuad(p + 4)}};
}

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_CUDA_CUH
