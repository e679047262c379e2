# The packs that kdac-run carries, and small random checkpoints with what the f64
# reference expects of them. KDAC_RUN_PACK, KDAC_RUN_GPU_PACK and KDAC_TINY_MODELS
# are their paths, kdac-run-pack and kdac-tiny-models the targets that make them.
set(KDAC_RUN_PACK ${PROJECT_BINARY_DIR}/kdac-run.kdac)
set(KDAC_RUN_GPU_PACK ${PROJECT_BINARY_DIR}/kdac-run-gpu.kdac)
foreach(pack IN ITEMS kdac-run kdac-run-gpu)
  add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/${pack}.kdac
    COMMAND kdac compile ${PROJECT_SOURCE_DIR}/packs/${pack}.yaml
      -o ${PROJECT_BINARY_DIR}/${pack}.kdac
    DEPENDS ${PROJECT_SOURCE_DIR}/packs/${pack}.yaml kdac
    COMMENT "Compiling the kernels of ${pack}.kdac" VERBATIM)
endforeach()
add_custom_target(kdac-run-pack DEPENDS ${KDAC_RUN_PACK} ${KDAC_RUN_GPU_PACK})

# A Python with NumPy: Debian's, if the first one in the path has none.
foreach(candidate IN ITEMS ${KDAC_NUMPY_PYTHON} python3 /usr/bin/python3)
  execute_process(COMMAND ${candidate} -c "import numpy"
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(status EQUAL 0)
    set(KDAC_NUMPY_PYTHON ${candidate} CACHE STRING "a Python with NumPy")
    break()
  endif()
endforeach()
if(NOT KDAC_NUMPY_PYTHON)
  message(FATAL_ERROR "no Python with NumPy: install python3-numpy, or set "
    "KDAC_NUMPY_PYTHON")
endif()

set(KDAC_TINY_MODELS ${PROJECT_BINARY_DIR}/tiny-models)
set(KDAC_TINY_MODEL_FILES)
foreach(kind IN ITEMS 48b k3 wide)
  set(folder ${KDAC_TINY_MODELS}/${kind})
  list(APPEND KDAC_TINY_MODEL_FILES ${folder}/expected.json)
  add_custom_command(OUTPUT ${folder}/expected.json
    COMMAND ${KDAC_NUMPY_PYTHON}
      ${PROJECT_SOURCE_DIR}/python/tiny_checkpoint.py ${kind} ${folder}
    COMMAND ${KDAC_NUMPY_PYTHON}
      ${PROJECT_SOURCE_DIR}/python/model_reference.py ${folder}
    DEPENDS ${PROJECT_SOURCE_DIR}/python/tiny_checkpoint.py
      ${PROJECT_SOURCE_DIR}/python/model_reference.py
    COMMENT "Making the tiny ${kind} checkpoint" VERBATIM)
endforeach()
add_custom_target(kdac-tiny-models DEPENDS ${KDAC_TINY_MODEL_FILES})
