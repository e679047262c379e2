#include "memory.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The CUDA driver's entry points, found at run time; unused on the host. */
static int (*allocateManaged)(uint64_t *, size_t, unsigned);
static int (*waitForContext)(void);

static int find(void *library, const char *name, void *slot) {
  void *symbol = library ? dlsym(library, name) : NULL;
  memcpy(slot, &symbol, sizeof symbol); /* C has no cast to a function */
  return symbol != NULL;
}

const char *memory_open(const char *device) {
  int (*initialise)(unsigned), (*setCurrent)(void *);
  int (*retain)(void **, int);
  void *context, *library;
  if (strncmp(device, "cuda:", 5) != 0)
    return NULL;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!find(library, "cuInit", &initialise) ||
      !find(library, "cuDevicePrimaryCtxRetain", &retain) ||
      !find(library, "cuCtxSetCurrent", &setCurrent) ||
      !find(library, "cuCtxSynchronize", &waitForContext) ||
      !find(library, "cuMemAllocManaged", &allocateManaged))
    return "no CUDA driver";
  if (initialise(0) || retain(&context, atoi(device + 5)) ||
      setCurrent(context))
    return "no such GPU";
  return NULL;
}

void *memory_allocate(size_t bytes) {
  const unsigned global = 1; /* CU_MEM_ATTACH_GLOBAL */
  uint64_t address = 0;
  void *memory;
  bytes = (bytes + 63) / 64 * 64 + 64;
  if (!allocateManaged)
    memory = aligned_alloc(64, bytes);
  else
    memory = allocateManaged(&address, bytes, global)
                 ? NULL
                 : (void *)(uintptr_t)address;
  return memory ? memset(memory, 0, bytes) : NULL;
}

const char *memory_wait(void) {
  return waitForContext && waitForContext() ? "a kernel failed" : NULL;
}
