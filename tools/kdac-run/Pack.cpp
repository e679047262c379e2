// The packs, as bytes of this program: the assembler reads the files.
#include "Commands.h"

extern "C" {
extern const char kdac_run_pack[];
extern const char kdac_run_pack_end[];
extern const char kdac_run_gpu_pack[];
extern const char kdac_run_gpu_pack_end[];
}

__asm__(".section .rodata\n"
        ".balign 64\n"
        ".globl kdac_run_pack\n"
        "kdac_run_pack:\n"
        ".incbin \"" KDAC_RUN_PACK "\"\n"
        ".globl kdac_run_pack_end\n"
        "kdac_run_pack_end:\n"
        ".balign 64\n"
        ".globl kdac_run_gpu_pack\n"
        "kdac_run_gpu_pack:\n"
        ".incbin \"" KDAC_RUN_GPU_PACK "\"\n"
        ".globl kdac_run_gpu_pack_end\n"
        "kdac_run_gpu_pack_end:\n"
        ".text\n");

namespace kdac::runtool {

std::string carriedPack(bool isGpu) {
  return isGpu ? std::string(kdac_run_gpu_pack, kdac_run_gpu_pack_end)
               : std::string(kdac_run_pack, kdac_run_pack_end);
}

} // namespace kdac::runtool
