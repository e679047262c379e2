# The kernels of lib/Model/Gpu as PTX and, where there is a ptxas, machine code:
# KDAC_MODEL_PTX and KDAC_MODEL_CUBIN, made by kdac-model-kernels. Needs a clang
# that knows NVPTX, and nothing of CUDA's SDK (docs/decisions/0016).
find_program(KDAC_CUDA_CLANG NAMES clang++-22 clang++ REQUIRED)
find_program(KDAC_PTXAS ptxas PATHS /usr/local/cuda/bin)
set(KDAC_MODEL_PTX ${PROJECT_BINARY_DIR}/kdac-model.ptx)
set(KDAC_MODEL_CUBIN ${PROJECT_BINARY_DIR}/kdac-model.cubin)
set(folder ${PROJECT_SOURCE_DIR}/lib/Model/Gpu)
file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.cuh)
add_custom_command(OUTPUT ${KDAC_MODEL_PTX}
  COMMAND ${KDAC_CUDA_CLANG} -std=c++20 -O3 -Wall -Wextra -x cuda
    --cuda-device-only --cuda-gpu-arch=sm_90a -nocudainc -nocudalib
    -Wno-unknown-cuda-version -S -o ${KDAC_MODEL_PTX} ${folder}/Kernels.cu
  DEPENDS ${folder}/Kernels.cu ${folder}/Args.h ${headers}
  COMMENT "Compiling the kernels of models" VERBATIM)
if(KDAC_PTXAS)
  set(assemble ${KDAC_PTXAS} -arch=sm_90a -O3 -o ${KDAC_MODEL_CUBIN}
    ${KDAC_MODEL_PTX})
else()
  # The driver compiles the PTX then.
  set(assemble ${CMAKE_COMMAND} -E touch ${KDAC_MODEL_CUBIN})
endif()
add_custom_command(OUTPUT ${KDAC_MODEL_CUBIN}
  COMMAND ${assemble}
  DEPENDS ${KDAC_MODEL_PTX} VERBATIM)
add_custom_target(kdac-model-kernels
  DEPENDS ${KDAC_MODEL_PTX} ${KDAC_MODEL_CUBIN})
