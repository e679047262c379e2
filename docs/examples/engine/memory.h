/* Promises: zeroed memory that the CPU and the device of a session can both
 * read and write, aligned to 64 bytes, for as long as the program runs. Does
 * not: matter to kdac; an engine has its own allocator. */
#ifndef ENGINE_MEMORY_H
#define ENGINE_MEMORY_H

#include <stddef.h>

/* device is "host" or "cuda:N". Returns NULL, or a sentence. */
const char *memory_open(const char *device);
/* NULL if there is none left. */
void *memory_allocate(size_t bytes);
/* Waits for the device. Returns NULL, or a sentence. */
const char *memory_wait(void);

#endif
