// Kernels in the form of triton.tools.compile, compiled by the C compiler of
// the machine and run on a fake driver.
#include "Fixture.h"
#include "kdac/Pack/Triton.h"

#include <cstdlib>

using namespace kdac;

namespace {

struct TemporaryFolder {
  std::string path = "/tmp/kdac-aot-XXXXXX";
  TemporaryFolder() { EXPECT_NE(::mkdtemp(path.data()), nullptr); }
  ~TemporaryFolder() { run("rm -rf " + path); }
  static int run(const std::string &command) {
    return std::system(command.c_str());
  }
};

TEST(TritonAot, RunsInTheCurrentContext) {
  PackWriter writer;
  fixture::addLinear(writer, "sm_90a", {{ImageKind::Cubin, "sm_90a"}},
                     fixture::readFile(LINEAR_KERNEL));
  StatusOr<PackReader> pack = fixture::read(writer);
  ASSERT_TRUE(pack.ok());
  auto files = tritonAot(*pack, "mine");
  ASSERT_TRUE(files.ok()) << files.status().message();
  TemporaryFolder folder;
  std::string sources, header, function;
  for (const NamedFile &file : *files) {
    std::string path = folder.path + "/" + file.path;
    std::ofstream(path, std::ios::binary) << file.bytes;
    if (path.back() == 'c')
      sources += " '" + path + "'";
    size_t at = file.bytes.find("// tt-linker: ");
    if (at == std::string::npos)
      continue;
    header = path;
    function = file.bytes.substr(at + 14);
    function = function.substr(0, function.find(':'));
  }
  std::string program = folder.path + "/caller";
  ASSERT_EQ(TemporaryFolder::run(
                "cc -std=c11 -D_GNU_SOURCE -DKDAC_NO_CUDA_H -Wall -Wextra "
                "-Werror -DKERNEL=" +
                function + " -DLOAD=load_" + function + " -DUNLOAD=unload_" +
                function + " -DERROR=mine_error -I" + INCLUDE_FOLDER +
                " -include '" + header + "' " + AOT_CALLER + sources + " -o " +
                program + " " + LIBKDAC + " -ldl -lpthread -Wl,-rpath," +
                LIBKDAC_FOLDER),
            0);
  ASSERT_EQ(TemporaryFolder::run(std::string("ln -s ") + FAKE_CUDA + " " +
                                 folder.path + "/libcuda.so.1"),
            0);
  EXPECT_EQ(TemporaryFolder::run("KDAC_FAKE_GPUS=2 LD_LIBRARY_PATH=" +
                                 folder.path + " " + program),
            0);
}

} // namespace
