// C in the form of triton.tools.compile: the same symbols and linker lines,
// over the runtime's C ABI instead of a module of its own: any number of
// contexts, threads, no exit, floats as floats.
#include "EmbedText.h"
#include "Sha256.h"
#include "TritonKernels.h"
#include "kdac/Pack/Triton.h"

#include <algorithm>

namespace kdac {

namespace {

using triton::Kernel;

/// The names of one kernel in C.
struct Names {
  std::string base;     ///< NAME_stem
  std::string function; ///< base_hash_suffix
  std::string file;     ///< base.hash_suffix
  std::string algo;     ///< "_warps4xstages2"
  size_t index;         ///< in the table of kernels
};

/// Triton's hint of 16: what a dispatcher of its linker tests before a call.
bool isHinted(const LaunchArg &a) {
  return triton::isPointer(a.arg) && a.alignment % 16 == 0;
}

Names namesOf(const Kernel &kernel, const embed::Function &function,
              size_t index) {
  std::string signature, suffix;
  for (size_t i = 0; i < kernel.launch->args.size(); ++i) {
    const LaunchArg &a = kernel.launch->args[i];
    signature += tritonType(a.arg) + (isHinted(a) ? ":16 " : " ");
    suffix += std::to_string(i) + (isHinted(a) ? "d" : "");
  }
  std::string meta = "warps" + std::to_string(kernel.warps) + "xstages" +
                     std::to_string(triton::stagesOf(*kernel.variant));
  std::string hash = hex(sha256({signature, meta})).substr(0, 8);
  const std::string &base = function.symbol;
  return {base, base + "_" + hash + "_" + suffix,
          base + "." + hash + "_" + suffix, "_" + meta, index};
}

std::string cTypeOf(const Arg &arg) {
  if (triton::isPointer(arg))
    return "CUdeviceptr";
  return arg.kind == ArgKind::Scale ? "float" : "int64_t";
}

std::string parametersOf(const Kernel &kernel) {
  std::string text;
  for (const LaunchArg &a : kernel.launch->args)
    text += (text.empty() ? "" : ", ") + cTypeOf(a.arg) + " " + a.arg.name;
  return text;
}

/// cuda.h where there is one; else what these files use of it.
constexpr char includes[] = R"(#ifndef TT_KERNEL_INCLUDES
#define TT_KERNEL_INCLUDES

#if defined(__has_include) && !defined(KDAC_NO_CUDA_H)
#if !__has_include(<cuda.h>)
#define KDAC_NO_CUDA_H
#endif
#endif
#ifdef KDAC_NO_CUDA_H
typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef struct CUstream_st *CUstream;
#define CUDA_ERROR_INVALID_VALUE 1
#else
#include <cuda.h>
#endif
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#endif

)";

std::string headerOf(const Kernel &kernel, const Names &names,
                     const std::string &name) {
  return "/* Written by kdac embed --triton-aot; do not edit.\n * " +
         std::string(equationOf(kernel.variant->variant)) +
         ".\n * Loads into the current context at its first call there. "
         "Returns "
         "CUDA's codes;\n * " +
         name + "_error() is the sentence. */\n" + includes + "void unload_" +
         names.function + "(void);\nvoid load_" + names.function +
         "(void);\n// tt-linker: " + names.function + ":" +
         parametersOf(kernel) + ":" + names.algo +
         "\n// tt-linker-backend: cuda\nCUresult " + names.function +
         "(CUstream stream, " + parametersOf(kernel) + ");\n";
}

std::string sourceOf(const Kernel &kernel, const Names &names,
                     const std::string &name) {
  std::string fields;
  for (const LaunchArg &a : kernel.launch->args)
    fields += "  call." + a.arg.name + " = " +
              (triton::isPointer(a.arg) ? "(void *)(uintptr_t)" : "") +
              a.arg.name + ";\n" +
              (a.arg.kind == ArgKind::Workspace
                   ? "  call.workspace_bytes = INT64_MAX; /* the caller's word "
                     "*/\n"
                   : "");
  std::string index = std::to_string(names.index);
  return "/* Written by kdac embed --triton-aot; do not edit. */\n#include \"" +
         name + "_pack.h\"\n#include \"" + names.file + ".h\"\n\nvoid unload_" +
         names.function + "(void) { " + name + "_unload(" + index +
         "); }\n\nvoid load_" + names.function + "(void) { (void)" + name +
         "_load(" + index + "); }\n\nCUresult " + names.function +
         "(CUstream stream, " + parametersOf(kernel) +
         ") {\n  kdac_call call = {0};\n  call.struct_size = sizeof call;\n" +
         fields + "  return (CUresult)" + name + "_launch(" + index +
         ", stream, &call);\n}\n";
}

/// What the kernels' sources share.
constexpr char packHeader[] =
    R"(/* Written by kdac embed --triton-aot; do not edit. */
#ifndef NAME_PACK_H
#define NAME_PACK_H

#include <kdac-c/kdac.h>

#ifdef __GNUC__
#pragma GCC visibility push(hidden)
#endif

/* Codes are CUresults. Kernels are numbered. All may be called by any thread. */
int NAME_load(int kernel);
void NAME_unload(int kernel); /* everywhere; no launch of it may be under way */
int NAME_launch(int kernel, void *stream, const kdac_call *call);

/* The sentence about the last failure on this thread, "" if there was none. */
const char *NAME_error(void);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
)";

constexpr char packSource[] = R"(
/* One entry for every context that a kernel was used in. */
enum { kernelCount = COUNT, contextLimit = 64 };
static struct Entry {
  void *context;
  kdac_device *device;
  kdac_kernel *kernel[kernelCount];
} entries[contextLimit];
static int entryCount;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread char message[1024];

const char *NAME_error(void) { return message; }

static int fail(int code, const char *text) {
  snprintf(message, sizeof message, "%s", text);
  return code;
}

static int failWith(kdac_status *status) {
  static const int codes[] = {0, 1, 500, 200, 209, 100, 304, 999};
  int code = fail(codes[kdac_status_code(status)], kdac_status_message(status));
  kdac_status_free(status);
  return code;
}

static int find(void *library, const char *name, void *slot) {
  void *symbol = library ? dlsym(library, name) : NULL;
  memcpy(slot, &symbol, sizeof symbol); /* C has no cast to a function */
  return symbol != NULL;
}

static int (*getCurrent)(void **), (*getDevice)(int *);
static int hasDriver;
static pthread_once_t driverOnce = PTHREAD_ONCE_INIT;

static void findDriver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  hasDriver = find(library, "cuCtxGetCurrent", &getCurrent) &&
              find(library, "cuCtxGetDevice", &getDevice);
}

/* The context that is current on this thread, and its device. */
static int whereAmI(void **context, char *device, size_t size) {
  int code, ordinal = 0;
  pthread_once(&driverOnce, findDriver);
  if (!hasDriver)
    return fail(100, "no CUDA driver: libcuda.so.1 is not there");
  code = getCurrent(context);
  if (code)
    return fail(code, "cuCtxGetCurrent failed");
  if (!*context)
    return fail(201, "no CUDA context is current on this thread");
  code = getDevice(&ordinal);
  snprintf(device, size, "cuda:%d", ordinal);
  return code ? fail(code, "cuCtxGetDevice failed") : 0;
}

/* The entry of a context, made at its first use. */
static int entryOf(void *context, const char *name, struct Entry **entry) {
  kdac_device_options options = {0};
  kdac_status *status;
  int i;
  for (i = 0; i < entryCount; ++i)
    if (entries[i].context == context) {
      *entry = &entries[i];
      return 0;
    }
  if (entryCount == contextLimit)
    return fail(2, "kernels are in use in 64 contexts, which is the limit");
  *entry = &entries[entryCount];
  options.struct_size = sizeof options;
  options.cuda_context = context;
  status = kdac_device_open(name, &options, &(*entry)->device);
  if (status)
    return failWith(status);
  (*entry)->context = context;
  ++entryCount;
  return 0;
}

static int loadInto(struct Entry *entry, int kernel) {
  kdac_pack *pack;
  kdac_status *status;
  if (entry->kernel[kernel])
    return 0;
  status = kdac_pack_open_memory(NAME_pack, SIZE, "NAME", &pack);
  if (status)
    return failWith(status);
  status = kdac_kernel_load_named(entry->device, pack, names[kernel],
                                  &entry->kernel[kernel]);
  kdac_pack_close(pack);
  return status ? failWith(status) : 0;
}

static int loaded(int kernel, kdac_kernel **out_kernel) {
  struct Entry *entry = NULL;
  void *context;
  char device[32];
  int code = whereAmI(&context, device, sizeof device);
  if (code)
    return code;
  pthread_mutex_lock(&mutex);
  code = entryOf(context, device, &entry);
  if (!code)
    code = loadInto(entry, kernel);
  if (!code)
    *out_kernel = entry->kernel[kernel];
  pthread_mutex_unlock(&mutex);
  return code;
}

int NAME_load(int kernel) {
  kdac_kernel *unused;
  return loaded(kernel, &unused);
}

void NAME_unload(int kernel) {
  int i;
  pthread_mutex_lock(&mutex);
  for (i = 0; i < entryCount; ++i) {
    kdac_kernel_close(entries[i].kernel[kernel]);
    entries[i].kernel[kernel] = NULL;
  }
  pthread_mutex_unlock(&mutex);
}

int NAME_launch(int kernel, void *stream, const kdac_call *call) {
  kdac_kernel *code;
  kdac_status *status;
  int result = loaded(kernel, &code);
  if (result)
    return result;
  status = kdac_kernel_launch(code, stream, call);
  return status ? failWith(status) : 0;
}
)";

std::string replaced(std::string text, const std::string &from,
                     const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string packSourceOf(const PackReader &pack, const std::string &name,
                         const std::vector<embed::Function> &functions) {
  std::string names = "static const char *const names[] = {\n";
  for (const embed::Function &f : functions)
    names += "    \"" + f.stem + "\",\n";
  std::string body =
      replaced(packSource, "COUNT", std::to_string(functions.size()));
  body = replaced(body, "SIZE", std::to_string(pack.file().size()));
  return "/* Written by kdac embed --triton-aot; do not edit. */\n#include \"" +
         name +
         "_pack.h\"\n\n#include <dlfcn.h>\n#include <pthread.h>\n#include "
         "<stdio.h>\n#include <string.h>\n\n" +
         embed::wordsOf(pack.file(), name) + names + "};\n" +
         replaced(body, "NAME", name);
}

} // namespace

StatusOr<std::vector<NamedFile>> tritonAot(const PackReader &pack,
                                           const std::string &name) {
  if (Status status = embed::checkName(name); !status.ok())
    return status;
  StatusOr<std::vector<Kernel>> kernels = triton::kernelsOf(pack);
  if (!kernels.ok())
    return kernels.status();
  std::vector<embed::Function> functions = embed::functionsOf(pack, name);
  std::vector<NamedFile> files = {
      {name + "_pack.h", replaced(packHeader, "NAME", name)},
      {name + "_pack.c", packSourceOf(pack, name, functions)}};
  for (size_t i = 0; i < functions.size(); ++i) {
    auto kernel =
        std::find_if(kernels->begin(), kernels->end(), [&](const Kernel &k) {
          return k.variant == functions[i].variant;
        });
    Names names = namesOf(*kernel, functions[i], i);
    files.push_back({names.file + ".h", headerOf(*kernel, names, name)});
    files.push_back({names.file + ".c", sourceOf(*kernel, names, name)});
  }
  return files;
}

} // namespace kdac
