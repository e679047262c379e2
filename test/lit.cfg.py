# Every directory of .mlir and .test files runs as one ctest test (lit.cmake).
import os
import lit.formats

config.name = "kdac"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".mlir", ".test"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.kdac_binary_dir, "test")
config.excludes = ["Inputs"]

# FileCheck, not, split-file, kdac and kdac-opt; python3 for scripts.
path = [config.kdac_bin_dir, config.llvm_bin_dir, config.environment["PATH"]]
config.environment["PATH"] = os.pathsep.join(path)
config.substitutions.append(("%source_dir", config.kdac_source_dir))
config.substitutions.append(("%libdir", config.kdac_lib_dir))
config.substitutions.append(("%python", config.python))
# `%exits 2 kdac ...` fails unless the exit code is exactly 2.
exits = os.path.join(config.test_source_root, "exits.py")
config.substitutions.append(("%exits", f"{config.python} {exits}"))
config.substitutions.append(("%ptxas", config.ptxas))
# The tiny checkpoints of cmake/KdacTinyModels.cmake: %tiny_models/48b, .../k3.
config.substitutions.append(
    ("%tiny_models", os.path.join(config.kdac_binary_dir, "tiny-models")))
# A folder with a libcuda.so.1 that runs PTX on this processor.
emulator = os.path.join(config.kdac_binary_dir, "lib", "ptx-emulator")
config.substitutions.append(("%emulator", emulator))
if os.path.exists(os.path.join(emulator, "libcuda.so.1")):
    config.available_features.add("emulator")

# `REQUIRES: ptxas` marks tests that assemble.
if config.ptxas:
    config.available_features.add("ptxas")
