// kdac-graph-test: every GPU variant of a pack through the C ABI, on one or
// more GPUs at once (a thread each): loaded, launched while a stream is being
// captured (which fails if anything allocates, loads or waits), replayed, and
// judged by the oracle. Needs a driver only.
//
// usage: kdac-graph-test PACK [ORDINAL,ORDINAL... [DRIVER]]
#include "kdac-c/kdac.h"
#include "kdac/Reference/Check.h"
#include "kdac/Runtime/Kernel.h"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

using namespace kdac;
using reference::Buffer;
using reference::Case;
using reference::CaseSpec;

namespace {

using Error = std::optional<std::string>;

/// A status as a sentence, freed.
Error errorOf(kdac_status *status) {
  if (!status)
    return std::nullopt;
  std::string text = kdac_status_message(status);
  kdac_status_free(status);
  return text;
}

/// Device copies of a case's buffers, and the call on them.
class DeviceCase {
public:
  DeviceCase(const Device &device, Case &c) : device(device), c(c) {}

  Error upload() {
    for (Buffer &b : c.buffers()) {
      StatusOr<DeviceBuffer> copy =
          DeviceBuffer::allocate(device, static_cast<size_t>(b.wholeBytes()));
      if (!copy.ok())
        return copy.status().message();
      if (Status s =
              copy->upload(b.whole(), static_cast<size_t>(b.wholeBytes()));
          !s.ok())
        return s.message();
      copies.push_back(std::move(*copy));
    }
    return std::nullopt;
  }
  Error download() {
    for (size_t i = 0; i < copies.size(); ++i) {
      Buffer &b = c.buffers()[i];
      if (Status s = copies[i].download(b.whole(),
                                        static_cast<size_t>(b.wholeBytes()));
          !s.ok())
        return s.message();
    }
    return std::nullopt;
  }

  /// The case's arguments by their names, which are those of kdac_call.
  kdac_call call() {
    kdac_call call{};
    call.struct_size = sizeof call;
    std::vector<void *> addresses;
    for (DeviceBuffer &copy : copies)
      addresses.push_back(
          reinterpret_cast<void *>(copy.address() + Buffer::guardBytes));
    void **argv = c.argv(&addresses);
    std::vector<Arg> args = kernelArgs(c.spec().variant);
    for (size_t i = 0; i < args.size(); ++i)
      if (char *field = fieldOf(call, args[i].name))
        std::memcpy(field, argv[i],
                    args[i].kind == ArgKind::Scale ? sizeof(float) : 8);
    return call;
  }

private:
  static char *fieldOf(kdac_call &call, const std::string &name) {
#define FIELD(name)                                                            \
  {                                                                            \
    #name, offsetof(kdac_call, name)                                           \
  }
    static const std::map<std::string, size_t> fields = {FIELD(q),
                                                         FIELD(k),
                                                         FIELD(v),
                                                         FIELD(g),
                                                         FIELD(beta),
                                                         FIELD(A_log),
                                                         FIELD(dt_bias),
                                                         FIELD(a),
                                                         FIELD(b),
                                                         FIELD(q_conv),
                                                         FIELD(k_conv),
                                                         FIELD(v_conv),
                                                         FIELD(q_cache),
                                                         FIELD(k_cache),
                                                         FIELD(v_cache),
                                                         FIELD(z),
                                                         FIELD(norm_weight),
                                                         FIELD(h0),
                                                         FIELD(slots),
                                                         FIELD(sources),
                                                         FIELD(snapshots),
                                                         FIELD(offsets),
                                                         FIELD(out),
                                                         FIELD(ht),
                                                         FIELD(status),
                                                         FIELD(N),
                                                         FIELD(T),
                                                         FIELD(H),
                                                         FIELD(HV),
                                                         FIELD(pool),
                                                         FIELD(slot_pitch),
                                                         FIELD(head_pitch),
                                                         FIELD(q_cache_pitch),
                                                         FIELD(k_cache_pitch),
                                                         FIELD(v_cache_pitch),
                                                         FIELD(q_stride),
                                                         FIELD(k_stride),
                                                         FIELD(v_stride),
                                                         FIELD(g_stride),
                                                         FIELD(beta_stride),
                                                         FIELD(a_stride),
                                                         FIELD(b_stride),
                                                         FIELD(z_stride),
                                                         FIELD(out_stride),
                                                         FIELD(scale)};
#undef FIELD
    auto found = fields.find(name);
    return found == fields.end()
               ? nullptr
               : reinterpret_cast<char *>(&call) + found->second;
  }

  const Device &device;
  Case &c;
  std::vector<DeviceBuffer> copies;
};

/// Launches under capture and replays the graph.
class Replay {
public:
  Replay(const Device &device, cuda::Stream stream)
      : device(device), stream(stream) {}

  Error run(kdac_kernel *kernel, const kdac_call &call, int replays) {
    const cuda::Driver &d = device.driver();
    Device::Scope scope(device);
    if (int code = d.streamBeginCapture(stream, cuda::captureThreadLocal))
      return said("begin of capture", code);
    Error launched = errorOf(kdac_kernel_launch(kernel, stream, &call));
    cuda::Graph graph = nullptr;
    cuda::GraphExec exec = nullptr;
    int ended = d.streamEndCapture(stream, &graph);
    if (launched)
      return launched;
    if (ended)
      return said("end of capture", ended);
    Error error;
    if (int code = d.graphInstantiate(&exec, graph, 0))
      error = said("instantiation", code);
    for (int i = 0; !error && i < replays; ++i)
      if (int code = d.graphLaunch(exec, stream))
        error = said("graph launch", code);
    int waited = d.streamSynchronize(stream);
    if (!error && waited)
      error = said("replay", waited);
    if (exec)
      d.graphExecDestroy(exec);
    d.graphDestroy(graph);
    return error;
  }

private:
  Error said(const char *what, int code) const {
    return device.driver().check(code, what).message();
  }

  const Device &device;
  cuda::Stream stream;
};

std::vector<CaseSpec> casesOf(const Variant &variant) {
  CaseSpec dense, packed;
  dense.variant = packed.variant = variant;
  dense.heads = packed.heads = 2;
  dense.sequences = 2;
  // A convolution wants as many key heads.
  dense.valueHeads = variant.conv ? 2 : 4;
  dense.tokens = variant.form == Form::Chunk ? 150 : 3;
  packed.lengths = variant.form == Form::Chunk ? std::vector<int64_t>{70, 0, 33}
                                               : std::vector<int64_t>{1, 0, 2};
  packed.tokenGap = 16;
  return {dense, packed};
}

class Tester {
public:
  Tester(const std::string &path, int ordinal, const char *driver)
      : path(path), ordinal(ordinal), driver(driver) {}

  /// Runs all variants that have code for the GPU.
  Error run() {
    kdac_device_options options{};
    options.struct_size = sizeof options;
    options.library = driver;
    std::string name = "cuda:" + std::to_string(ordinal);
    kdac_device *handle = nullptr;
    kdac_pack *pack = nullptr;
    Error error = errorOf(kdac_device_open(name.c_str(), &options, &handle));
    if (!error)
      error = errorOf(kdac_pack_open_file(path.c_str(), &pack));
    if (!error)
      error = runAll(handle, pack);
    kdac_pack_close(pack);
    kdac_device_close(handle);
    return error;
  }

  int passed = 0, failed = 0, skipped = 0;

private:
  Error runAll(kdac_device *handle, kdac_pack *pack) {
    StatusOr<PackReader> reader = PackReader::open(path);
    StatusOr<Device> device = Device::open(ordinal, driver);
    for (const Status &s : {reader.status(), device.status()})
      if (!s.ok())
        return s.message();
    StatusOr<StreamHandle> stream = StreamHandle::create(*device);
    if (!stream.ok())
      return stream.status().message();
    for (const PackVariant &v : reader->manifest().variants) {
      kdac_kernel *kernel = nullptr;
      kdac_status *status =
          kdac_kernel_load_named(handle, pack, v.name().c_str(), &kernel);
      bool foreign = kdac_status_code(status) == KDAC_UNSUPPORTED;
      Error error = errorOf(status);
      if (foreign) {
        ++skipped;
        continue;
      }
      for (const CaseSpec &spec : casesOf(v.variant))
        if (!error)
          error = runCase(*device, stream->get(), kernel, spec);
      kdac_kernel_close(kernel);
      error ? ++failed : ++passed;
      if (error)
        std::printf("FAIL cuda:%d %s: %s\n", ordinal, v.name().c_str(),
                    error->c_str());
    }
    return std::nullopt;
  }

  Error runCase(const Device &device, cuda::Stream stream, kdac_kernel *kernel,
                const CaseSpec &spec) {
    Case c = reference::makeCase(spec);
    auto launch = [&](Case &running) -> Error {
      DeviceCase on(device, running);
      if (Error error = on.upload())
        return error;
      kdac_call call = on.call();
      if (Error error = errorOf(kdac_kernel_workspace_bytes(
              kernel, &call, &call.workspace_bytes)))
        return error;
      StatusOr<DeviceBuffer> workspace = DeviceBuffer::allocate(
          device, static_cast<size_t>(call.workspace_bytes));
      if (!workspace.ok())
        return workspace.status().message();
      call.workspace = reinterpret_cast<void *>(workspace->address());
      // What is updated in place is updated by every replay.
      const Variant &v = spec.variant;
      int replays = v.slots || v.conv ? 1 : 2;
      if (Error error = Replay(device, stream).run(kernel, call, replays))
        return error;
      return on.download();
    };
    reference::CheckResult result = reference::check(c, launch);
    if (result.passed())
      return std::nullopt;
    return reference::describe(spec) + ": " + reference::toString(result);
  }

  std::string path;
  int ordinal;
  const char *driver;
};

std::vector<int> ordinalsOf(const char *text) {
  std::vector<int> ordinals;
  for (char *end; *text; text = *end ? end + 1 : end)
    ordinals.push_back(static_cast<int>(std::strtol(text, &end, 10)));
  return ordinals;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: kdac-graph-test PACK [ORDINALS [DRIVER]]\n");
    return 2;
  }
  const char *driver = argc > 3 ? argv[3] : "libcuda.so.1";
  auto loaded = cuda::Driver::load(driver);
  if (!loaded.ok() || !(*loaded)->hasGraphs()) {
    std::fprintf(stderr, "kdac-graph-test: no CUDA driver with graphs\n");
    return 2;
  }
  std::vector<Tester> testers;
  for (int ordinal : ordinalsOf(argc > 2 ? argv[2] : "0"))
    testers.emplace_back(argv[1], ordinal, driver);
  std::atomic<bool> good{true};
  std::vector<std::thread> threads;
  for (Tester &tester : testers)
    threads.emplace_back([&] {
      if (Error error = tester.run()) {
        std::fprintf(stderr, "kdac-graph-test: %s\n", error->c_str());
        good = false;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  int passed = 0, failed = 0, skipped = 0;
  for (const Tester &tester : testers) {
    passed += tester.passed;
    failed += tester.failed;
    skipped += tester.skipped;
  }
  std::printf("graphs: %d passed, %d failed, %d not for this GPU\n", passed,
              failed, skipped);
  return good && failed == 0 && passed > 0 ? 0 : 1;
}
