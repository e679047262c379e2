// kdac-c/kdac.h over the C++ runtime: handles in, values out.
#include "CHandles.h"

#include <cstdlib>

using namespace kdac;
using namespace kdac::capi;

static_assert(
    static_cast<int>(ErrorCode::Ok) == KDAC_OK &&
        static_cast<int>(ErrorCode::InvalidArgument) == KDAC_INVALID_ARGUMENT &&
        static_cast<int>(ErrorCode::NotFound) == KDAC_NOT_FOUND &&
        static_cast<int>(ErrorCode::Corrupt) == KDAC_CORRUPT &&
        static_cast<int>(ErrorCode::Unsupported) == KDAC_UNSUPPORTED &&
        static_cast<int>(ErrorCode::Unavailable) == KDAC_UNAVAILABLE &&
        static_cast<int>(ErrorCode::Io) == KDAC_IO &&
        static_cast<int>(ErrorCode::Device) == KDAC_DEVICE,
    "codes of C and C++ are the same numbers");

//===-- Status ------------------------------------------------------------===//

kdac_status *capi::toC(Status status) {
  return status.ok() ? nullptr : new kdac_status{std::move(status)};
}

kdac_status *capi::invalid(const std::string &message) {
  return toC(Status(ErrorCode::InvalidArgument, message));
}

int64_t kdac_abi_version(void) { return KDAC_ABI_VERSION; }

kdac_code kdac_status_code(const kdac_status *status) {
  return status ? static_cast<kdac_code>(status->status.code()) : KDAC_OK;
}

const char *kdac_status_message(const kdac_status *status) {
  return status ? status->status.message().c_str() : "";
}

void kdac_status_free(kdac_status *status) { delete status; }

//===-- Devices -----------------------------------------------------------===//

/// The N of "cuda:N", or nothing.
static std::optional<int> ordinalOf(const std::string &name) {
  if (name.compare(0, 5, "cuda:") != 0 || name.size() < 6 || name.size() > 9)
    return std::nullopt;
  for (size_t i = 5; i < name.size(); ++i)
    if (name[i] < '0' || name[i] > '9')
      return std::nullopt;
  return std::atoi(name.c_str() + 5);
}

kdac_status *kdac_device_open(const char *name,
                              const kdac_device_options *options,
                              kdac_device **out_device) {
  if (!name || !out_device)
    return invalid(name ? "out_device is null" : "name is null");
  *out_device = nullptr;
  kdac_device_options o{};
  if (options)
    if (Status s = readStruct(options, "kdac_device_options", o); !s.ok())
      return toC(s);
  constexpr int64_t maxThreads = 4096;
  if (o.threads < 0 || o.threads > maxThreads)
    return invalid("threads = " + std::to_string(o.threads) +
                   " is not from 0 to " + std::to_string(maxThreads));
  if (std::string(name) == "host") {
    *out_device = new kdac_device{
        std::nullopt,
        std::make_shared<HostThreads>(static_cast<int>(o.threads))};
    return nullptr;
  }
  std::optional<int> ordinal = ordinalOf(name);
  if (!ordinal)
    return invalid("device '" + std::string(name) +
                   "' is not supported; use host, cuda:0, cuda:1, ...");
  StatusOr<Device> gpu =
      Device::open(*ordinal, o.library ? o.library : "libcuda.so.1",
                   static_cast<cuda::Context>(o.cuda_context));
  if (!gpu.ok())
    return toC(gpu.status());
  *out_device = new kdac_device{std::move(*gpu), nullptr};
  return nullptr;
}

void kdac_device_close(kdac_device *device) { delete device; }

kdac_status *kdac_device_get_info(const kdac_device *device,
                                  kdac_device_info *out_info) {
  if (!device)
    return invalid("device is null");
  kdac_device_info info{};
  info.name = "host";
  info.driver = "";
  info.is_host = !device->gpu;
  if (device->gpu) {
    const DeviceInfo &gpu = device->gpu->info();
    info.name = gpu.name.c_str();
    info.driver = gpu.driver.c_str();
    info.compute_major = gpu.computeMajor;
    info.compute_minor = gpu.computeMinor;
    info.multiprocessors = gpu.multiprocessors;
    info.shared_bytes_per_block = gpu.sharedBytesPerBlock;
  } else {
    info.threads = device->host->pool.threads();
  }
  return toC(writeStruct(info, "kdac_device_info", out_info));
}

//===-- Packs -------------------------------------------------------------===//

static kdac_pack *packOf(PackReader reader, Receipts receipts) {
  auto *pack = new kdac_pack{std::move(reader), std::move(receipts), {}};
  for (const PackVariant &v : pack->reader.manifest().variants)
    pack->names.push_back(v.name());
  return pack;
}

kdac_status *kdac_pack_open_file(const char *path, kdac_pack **out_pack) {
  if (!path || !out_pack)
    return invalid(path ? "out_pack is null" : "path is null");
  *out_pack = nullptr;
  StatusOr<PackReader> reader = PackReader::open(path);
  if (!reader.ok())
    return toC(reader.status());
  StatusOr<Receipts> receipts = Receipts::read(receiptsPath(path));
  if (!receipts.ok())
    return toC(receipts.status());
  *out_pack = packOf(std::move(*reader), std::move(*receipts));
  return nullptr;
}

kdac_status *kdac_pack_open_memory(const void *bytes, int64_t size,
                                   const char *name, kdac_pack **out_pack) {
  if (!bytes || !out_pack)
    return invalid(bytes ? "out_pack is null" : "bytes is null");
  *out_pack = nullptr;
  if (size < 0)
    return invalid("size = " + std::to_string(size) + " is negative");
  StatusOr<PackReader> reader = PackReader::fromBytes(
      std::string(static_cast<const char *>(bytes), static_cast<size_t>(size)),
      name ? name : "in memory");
  if (!reader.ok())
    return toC(reader.status());
  *out_pack = packOf(std::move(*reader), Receipts());
  return nullptr;
}

kdac_status *kdac_pack_add_receipts(kdac_pack *pack, const char *path) {
  if (!pack || !path)
    return invalid(pack ? "path is null" : "pack is null");
  StatusOr<Receipts> more = Receipts::read(path);
  if (!more.ok())
    return toC(more.status());
  for (const Receipt &receipt : more->all())
    pack->receipts.add(receipt);
  return nullptr;
}

void kdac_pack_close(kdac_pack *pack) { delete pack; }

int64_t kdac_pack_count(const kdac_pack *pack) {
  return pack ? static_cast<int64_t>(pack->names.size()) : 0;
}

const char *kdac_pack_name(const kdac_pack *pack, int64_t index) {
  if (index < 0 || index >= kdac_pack_count(pack))
    return nullptr;
  return pack->names[static_cast<size_t>(index)].c_str();
}

//===-- Kernels -----------------------------------------------------------===//

static kdac_status *load(kdac_device &device, const kdac_pack &pack,
                         const PackVariant &variant, kdac_kernel **out) {
  auto kernel = std::make_unique<kdac_kernel>();
  StatusOr<CallLayout> layout = CallLayout::of(variant);
  if (!layout.ok())
    return toC(layout.status());
  kernel->layout = std::move(*layout);
  kernel->name = variant.name();
  kernel->host = device.host;
  if (device.gpu) {
    StatusOr<GpuKernel> gpu =
        GpuKernel::load(*device.gpu, pack.reader, variant);
    if (!gpu.ok())
      return toC(gpu.status());
    kernel->origin = gpu->origin();
    kernel->trust =
        trustOf(variant, gpu->image(), device.gpu->info().name, pack.receipts);
    kernel->gpu = std::move(*gpu);
  } else {
    StatusOr<HostKernel> host = HostKernel::load(pack.reader, variant);
    if (!host.ok())
      return toC(host.status());
    kernel->origin = host->origin();
    kernel->trust = {true, "no assembler of the list made it"};
    kernel->onHost = std::move(*host);
  }
  *out = kernel.release();
  return nullptr;
}

static Status checkHandles(const kdac_device *device, const kdac_pack *pack,
                           kdac_kernel **out) {
  const char *null = !device ? "device"
                     : !pack ? "pack"
                     : !out  ? "out_kernel"
                             : nullptr;
  if (null)
    return Status(ErrorCode::InvalidArgument, std::string(null) + " is null");
  *out = nullptr;
  return Status::success();
}

/// The request's options that are said, by their names on command lines.
static Request requestOf(const kdac_request &r) {
  Request request;
  auto text = [&](const char *name, const char *value) {
    if (value)
      request.options.emplace_back(name, value);
  };
  auto number = [&](const char *name, int64_t value) {
    if (value != 0)
      request.options.emplace_back(name, std::to_string(value));
  };
  auto real = [&](const char *name, double value) {
    char spelled[40];
    std::snprintf(spelled, sizeof spelled, "%.17g", value);
    if (value != 0)
      request.options.emplace_back(name, spelled);
  };
  text("recurrence", r.recurrence);
  text("form", r.form);
  number("key-dim", r.key_dim);
  number("value-dim", r.value_dim);
  text("dtype", r.dtype);
  text("state-dtype", r.state_dtype);
  text("state-layout", r.state_layout);
  text("gate", r.gate);
  real("lower-bound", r.lower_bound);
  text("gate-dtype", r.gate_dtype);
  text("beta", r.beta);
  if (r.l2norm != KDAC_UNSET)
    text("l2norm", r.l2norm == KDAC_YES ? "true" : "false");
  text("offsets", r.offset_dtype);
  text("precision", r.precision);
  text("slots", r.slots);
  if (r.snapshots != KDAC_UNSET)
    text("snapshots", r.snapshots == KDAC_YES ? "true" : "false");
  if (r.log != KDAC_UNSET)
    text("log", r.log == KDAC_YES ? "true" : "false");
  number("conv", r.conv);
  text("cache-layout", r.cache_layout);
  text("norm", r.norm);
  real("norm-eps", r.norm_eps);
  for (int64_t i = 0; r.strides && i < r.stride_count; ++i)
    if (r.strides[i].tensor)
      request.strides.push_back({r.strides[i].tensor, r.strides[i].elements});
  return request;
}

kdac_status *kdac_kernel_load(kdac_device *device, const kdac_pack *pack,
                              const kdac_request *request,
                              kdac_kernel **out_kernel) {
  if (Status s = checkHandles(device, pack, out_kernel); !s.ok())
    return toC(s);
  kdac_request r;
  if (Status s = readStruct(request, "kdac_request", r); !s.ok())
    return toC(s);
  StatusOr<const PackVariant *> variant =
      selectVariant(pack->reader, device->place(), requestOf(r));
  return variant.ok() ? load(*device, *pack, **variant, out_kernel)
                      : toC(variant.status());
}

kdac_status *kdac_kernel_load_named(kdac_device *device, const kdac_pack *pack,
                                    const char *name,
                                    kdac_kernel **out_kernel) {
  if (Status s = checkHandles(device, pack, out_kernel); !s.ok())
    return toC(s);
  if (!name)
    return invalid("name is null");
  StatusOr<const PackVariant *> variant =
      selectNamed(pack->reader, device->place(), name);
  if (variant.ok() && !isRecurrent((*variant)->variant.form))
    return invalid(std::string(name) +
                   " is no recurrence; there is no call for it but in the C++ "
                   "runtime");
  return variant.ok() ? load(*device, *pack, **variant, out_kernel)
                      : toC(variant.status());
}

void kdac_kernel_close(kdac_kernel *kernel) { delete kernel; }

kdac_status *kdac_kernel_get_info(const kdac_kernel *kernel,
                                  kdac_kernel_info *out_info) {
  if (!kernel)
    return invalid("kernel is null");
  kdac_kernel_info info{};
  info.name = kernel->name.c_str();
  info.origin = kernel->origin.c_str();
  info.key_dim = kernel->packed().variant.keyDim;
  info.value_dim = kernel->packed().variant.valueDim;
  info.is_verified = kernel->trust.verified;
  info.why = kernel->trust.why.c_str();
  return toC(writeStruct(info, "kdac_kernel_info", out_info));
}

kdac_status *kdac_kernel_workspace_bytes(const kdac_kernel *kernel,
                                         const kdac_call *call,
                                         int64_t *out_bytes) {
  if (!kernel || !out_bytes)
    return invalid(kernel ? "out_bytes is null" : "kernel is null");
  kdac_call c;
  if (Status s = readStruct(call, "kdac_call", c); !s.ok())
    return toC(s);
  CallLayout::Arguments arguments;
  if (Status s = kernel->layout.fill(c, arguments); !s.ok())
    return toC(s);
  StatusOr<int64_t> bytes = workspaceBytes(kernel->packed(), arguments.argv);
  if (!bytes.ok())
    return toC(bytes.status().with(kernel->name));
  *out_bytes = *bytes;
  return nullptr;
}

/// The workspace that is there is large enough; checkCall sees to a null one.
static Status checkWorkspace(const kdac_kernel &kernel, const kdac_call &call,
                             CallArguments argv) {
  if (!call.workspace || kernel.packed().workspace.empty())
    return Status::success();
  StatusOr<int64_t> bytes = workspaceBytes(kernel.packed(), argv);
  if (!bytes.ok())
    return bytes.status().with(kernel.name);
  if (call.workspace_bytes >= *bytes)
    return Status::success();
  return Status(ErrorCode::InvalidArgument,
                kernel.name + ": workspace_bytes = " +
                    std::to_string(call.workspace_bytes) +
                    ", but this call needs " + std::to_string(*bytes));
}

kdac_status *kdac_kernel_launch(const kdac_kernel *kernel, void *stream,
                                const kdac_call *call) {
  if (!kernel)
    return invalid("kernel is null");
  kdac_call c;
  if (Status s = readStruct(call, "kdac_call", c); !s.ok())
    return toC(s);
  CallLayout::Arguments arguments;
  if (Status s = kernel->layout.fill(c, arguments); !s.ok())
    return toC(s);
  if (Status s = checkWorkspace(*kernel, c, arguments.argv); !s.ok())
    return toC(s);
  if (kernel->gpu)
    return toC(kernel->gpu->launch(static_cast<cuda::Stream>(stream),
                                   arguments.argv, c.overlap != 0));
  std::lock_guard<std::mutex> turn(kernel->host->mutex);
  return toC(kernel->onHost->launch(kernel->host->pool, arguments.argv));
}
