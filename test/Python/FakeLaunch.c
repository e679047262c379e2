/* Promises: a libcuda for Triton's compiled launcher, whose "functions" are
 * host kernels of kdac in this process and whose device memory is this
 * process's: a launch runs all program instances at once. Checks that the block
 * is what the caller said in KDAC_BLOCK. Does not: have anything else of a
 * driver. */
#include <stdint.h>
#include <stdlib.h>

typedef struct Config { /* CUlaunchConfig */
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  void *stream, *attributes;
  unsigned attributeCount;
} Config;
typedef void (*Kernel)(void **arguments, int64_t begin, int64_t end,
                       void *scratch);

enum { success = 0, invalidValue = 1, scratchBytes = 64 << 20 };
static int context;

int cuGetErrorString(int code, const char **text) {
  (void)code;
  return *text = "a fake error", success;
}
int cuPointerGetAttribute(void *out, int attribute, uint64_t pointer) {
  (void)attribute;
  return *(uint64_t *)out = pointer, success;
}
int cuCtxGetCurrent(void **out) { return *out = &context, success; }
int cuCtxSetCurrent(void *unused) { return (void)unused, success; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, success; }
int cuDevicePrimaryCtxRetain(void **out, int device) {
  (void)device;
  return *out = &context, success;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  return (void)function, (void)attribute, (void)value, success;
}
int cuLaunchKernelEx(const Config *config, Kernel kernel, void **parameters,
                     void **extra) {
  const char *block = getenv("KDAC_BLOCK");
  void *scratch;
  if (extra || config->gridY != 1 || config->gridZ != 1 ||
      config->blockY != 1 || config->blockZ != 1 || !block ||
      (int)config->blockX != atoi(block))
    return invalidValue;
  scratch = aligned_alloc(64, scratchBytes);
  kernel(parameters, 0, config->gridX, scratch);
  free(scratch);
  return success;
}
