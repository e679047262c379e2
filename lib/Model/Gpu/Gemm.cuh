// Promises: bf16 products of many rows by wgmma, dense or grouped by expert,
// with the gated activation behind them where asked. Twin: HostOps::matmul and
// HostMoe.cpp. Needs sm_90a.
#ifndef KDAC_LIB_MODEL_GPU_GEMM_CUH
#define KDAC_LIB_MODEL_GPU_GEMM_CUH

#include "Elementwise.cuh"

namespace kdac::model::gpu {

constexpr int tileM = 128, tileN = 128, tileK = 64, stages = 3;
constexpr int tileBytes = tileM * tileK * 2; ///< of a; b's tile is as large

/// 64 sums of one thread: 16 groups of 8 columns, in each two of row lane / 4
/// and two of row lane / 4 + 8.
struct Sums {
  float v[64];
};

// The sums pass through every instruction, so that the compiler moves nothing
// across the waits.
#define KDAC_SUMS(s)                                                           \
  "+f"(s.v[0]), "+f"(s.v[1]), "+f"(s.v[2]), "+f"(s.v[3]), "+f"(s.v[4]),        \
      "+f"(s.v[5]), "+f"(s.v[6]), "+f"(s.v[7]), "+f"(s.v[8]), "+f"(s.v[9]),    \
      "+f"(s.v[10]), "+f"(s.v[11]), "+f"(s.v[12]), "+f"(s.v[13]),              \
      "+f"(s.v[14]), "+f"(s.v[15]), "+f"(s.v[16]), "+f"(s.v[17]),              \
      "+f"(s.v[18]), "+f"(s.v[19]), "+f"(s.v[20]), "+f"(s.v[21]),              \
      "+f"(s.v[22]), "+f"(s.v[23]), "+f"(s.v[24]), "+f"(s.v[25]),              \
      "+f"(s.v[26]), "+f"(s.v[27]), "+f"(s.v[28]), "+f"(s.v[29]),              \
      "+f"(s.v[30]), "+f"(s.v[31]), "+f"(s.v[32]), "+f"(s.v[33]),              \
      "+f"(s.v[34]), "+f"(s.v[35]), "+f"(s.v[36]), "+f"(s.v[37]),              \
      "+f"(s.v[38]), "+f"(s.v[39]), "+f"(s.v[40]), "+f"(s.v[41]),              \
      "+f"(s.v[42]), "+f"(s.v[43]), "+f"(s.v[44]), "+f"(s.v[45]),              \
      "+f"(s.v[46]), "+f"(s.v[47]), "+f"(s.v[48]), "+f"(s.v[49]),              \
      "+f"(s.v[50]), "+f"(s.v[51]), "+f"(s.v[52]), "+f"(s.v[53]),              \
      "+f"(s.v[54]), "+f"(s.v[55]), "+f"(s.v[56]), "+f"(s.v[57]),              \
      "+f"(s.v[58]), "+f"(s.v[59]), "+f"(s.v[60]), "+f"(s.v[61]),              \
      "+f"(s.v[62]), "+f"(s.v[63])

DEVICE void fence(Sums &s) {
  asm volatile("wgmma.fence.sync.aligned;" : KDAC_SUMS(s)::"memory");
}
/// What ordinary copies wrote is seen by the matrix instructions.
DEVICE void fenceProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void commitProducts(Sums &s) {
  asm volatile("wgmma.commit_group.sync.aligned;" : KDAC_SUMS(s)::"memory");
}
DEVICE void awaitProducts(Sums &s) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" : KDAC_SUMS(s)::"memory");
}
/// Rows of 64 elements, 128 bytes, swizzled; 8 rows after 1024 bytes.
DEVICE uint64_t descriptor(uint32_t address) {
  return uint64_t(address >> 4 & 0x3fff) | uint64_t(1) << 16 |
         uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
/// s += a b^T for 64 rows of a, 128 of b, 16 columns of both.
DEVICE void multiply(Sums &s, uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, "
               "%8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, "
               "%24, %25, %26, %27, %28, %29, %30, %31, "
               "%32, %33, %34, %35, %36, %37, %38, %39, "
               "%40, %41, %42, %43, %44, %45, %46, %47, "
               "%48, %49, %50, %51, %52, %53, %54, %55, "
               "%56, %57, %58, %59, %60, %61, %62, %63}, "
               "%64, %65, 1, 1, 1, 0, 0;"
               : KDAC_SUMS(s)
               : "l"(a), "l"(b)
               : "memory");
}
/// Where a tile's 16 bytes of row `row`, columns 8 `chunk` and on, are.
DEVICE uint32_t swizzled(int row, int chunk) {
  return static_cast<uint32_t>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

/// What a block computes: up to 128 rows of c from row `row` on, whose inputs
/// are rows `from` of a.
struct GemmTile {
  int row, rows, n;
  const bf16 *b, *b2;
};

template <bool isDual> DEVICE GemmTile tileOf(const GemmArgs &g) {
  GemmTile t = {};
  // Blocks that run together are a square of c, so that they share inputs.
  int columns = isDual ? tileN / 2 : tileN;
  int blocksN = (g.n + columns - 1) / columns;
  int inBand = blockX() % (bandTiles * blocksN);
  int tile = blockX() / (bandTiles * blocksN) * bandTiles + inBand % bandTiles;
  t.n = inBand / bandTiles * columns;
  int64_t offset = 0;
  if (tile >= g.tilesM)
    return t;
  if (g.tiles) {
    int expert = g.tiles[2 * tile];
    t.row = g.tiles[2 * tile + 1];
    t.rows = expert < 0 ? 0 : least(tileM, g.starts[expert + 1] - t.row);
    offset = int64_t(expert) * g.n * g.k;
  } else {
    t.row = tile * tileM;
    t.rows = least(tileM, g.m - t.row);
  }
  t.b = static_cast<const bf16 *>(g.b) + offset;
  t.b2 = isDual ? static_cast<const bf16 *>(g.b2) + offset : nullptr;
  return t;
}

/// The copies of one thread: chunk `chunk` of four rows of a and four of b.
struct Copies {
  const bf16 *a[4], *b[4];
  bool hasA[4], hasB[4];
  int chunk, row;
};

template <bool isDual>
DEVICE Copies copiesOf(const GemmArgs &g, const GemmTile &t) {
  Copies c;
  c.chunk = thread() & 7;
  c.row = thread() >> 3;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int row = c.row + 32 * i;
    c.hasA[i] = row < t.rows;
    int64_t from = t.row + (c.hasA[i] ? row : 0);
    if (g.order)
      from = g.order[from] / g.perRow;
    c.a[i] = static_cast<const bf16 *>(g.a) + from * g.aStride + c.chunk * 8;
    constexpr int half = tileN / 2;
    bool isSecond = isDual && row >= half;
    int column = t.n + (isSecond ? row - half : row);
    c.hasB[i] = column < g.n && (!isDual || row - (isSecond ? half : 0) < half);
    c.b[i] = (isSecond ? t.b2 : t.b) + int64_t(c.hasB[i] ? column : 0) * g.k +
             c.chunk * 8;
  }
  return c;
}

DEVICE void copyTile(const Copies &c, uint32_t stage, int k, int width) {
  bool inside = k + c.chunk * 8 < width;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t at = swizzled(c.row + 32 * i, c.chunk);
    copyAsync(stage + at, inside ? c.a[i] + k : c.a[i], inside && c.hasA[i]);
    copyAsync(stage + tileBytes + at, inside ? c.b[i] + k : c.b[i],
              inside && c.hasB[i]);
  }
}

template <bool isDual>
DEVICE void storeTile(const GemmArgs &g, const GemmTile &t, const Sums &s) {
  constexpr int width = isDual ? tileN / 2 : tileN;
  int row = warp() * 16 + lane() / 4, column = t.n + (lane() & 3) * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int at = row + half * 8;
    if (at >= t.rows)
      continue;
#pragma unroll
    for (int j = 0; j < width / 8; ++j) {
      int n = column + j * 8;
      if (n >= g.n)
        break;
      float x = s.v[j * 4 + half * 2], y = s.v[j * 4 + half * 2 + 1];
      if (isDual) {
        x = activated(g.activation, x, s.v[(j + 8) * 4 + half * 2]);
        y = activated(g.activation, y, s.v[(j + 8) * 4 + half * 2 + 1]);
      }
      int64_t to = int64_t(t.row + at) * g.cStride + n;
      bool hasSecond = n + 1 < g.n;
      if (g.isF32) {
        static_cast<float *>(g.c)[to] = x;
        if (hasSecond)
          static_cast<float *>(g.c)[to + 1] = y;
      } else if (hasSecond) {
        *reinterpret_cast<uint32_t *>(static_cast<bf16 *>(g.c) + to) =
            pack(x, y);
      } else {
        store(static_cast<bf16 *>(g.c) + to, x);
      }
    }
  }
}

/// Two warpgroups take 64 rows each; every thread copies, two steps ahead. Two
/// blocks of a multiprocessor cover each other's waits.
template <bool isDual> DEVICE void gemm(const GemmArgs &g) {
  extern SHARED char shared[];
  GemmTile t = tileOf<isDual>(g);
  if (t.rows <= 0)
    return;
  uint32_t base = (sharedAddress(shared) + 1023) & ~1023u;
  Copies copies = copiesOf<isDual>(g, t);
  int steps = (g.k + tileK - 1) / tileK;
  auto stage = [&](int step) {
    return base + static_cast<uint32_t>(step % stages) * 2 * tileBytes;
  };
  auto copy = [&](int step) {
    if (step < steps)
      copyTile(copies, stage(step), step * tileK, g.k);
    commitCopies();
  };
  copy(0);
  copy(1);
  Sums s;
#pragma unroll
  for (float &x : s.v)
    x = 0;
  for (int step = 0; step < steps; ++step) {
    waitCopies<1>();
    fenceProxy();
    barrier();
    // Everyone has finished the products of the step before.
    copy(step + 2);
    uint32_t a = stage(step) + static_cast<uint32_t>(warp() / 4) * 8192;
    uint32_t b = stage(step) + tileBytes;
    fence(s);
#pragma unroll
    for (uint32_t k = 0; k < tileK / 16; ++k)
      multiply(s, descriptor(a + k * 32), descriptor(b + k * 32));
    commitProducts(s);
    awaitProducts(s);
  }
  storeTile<isDual>(g, t, s);
}

KERNEL BOUNDS(256, 2) void gemm_bf16(GemmArgs g) {
  beginKernel();
  gemm<false>(g);
}
KERNEL BOUNDS(256, 2) void gemm_gated_bf16(GemmArgs g) {
  beginKernel();
  gemm<true>(g);
}

} // namespace kdac::model::gpu

#endif // KDAC_LIB_MODEL_GPU_GEMM_CUH
