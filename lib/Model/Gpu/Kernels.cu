// The kernels of GpuOps that do not come out of kdac: one module, compiled by
// clang without CUDA's SDK. docs/decisions/0016.
#include "Elementwise.cuh"
#include "Mla.cuh"
#include "Moe.cuh"
#include "Products.cuh"
