// kdac_call to the arguments of a launch, by the names in the pack.
#include "CHandles.h"

#include <cmath>
#include <cstddef>

namespace kdac::capi {

namespace {

struct Field {
  const char *name;
  size_t offset;
};

#define FIELD(name) {#name, offsetof(kdac_call, name)}
constexpr Field pointerFields[] = {
    FIELD(q),         FIELD(k),       FIELD(v),           FIELD(g),
    FIELD(beta),      FIELD(A_log),   FIELD(dt_bias),     FIELD(a),
    FIELD(b),         FIELD(q_conv),  FIELD(k_conv),      FIELD(v_conv),
    FIELD(q_cache),   FIELD(k_cache), FIELD(v_cache),     FIELD(z),
    FIELD(h0),        FIELD(slots),   FIELD(norm_weight), FIELD(sources),
    FIELD(snapshots), FIELD(offsets), FIELD(out),         FIELD(ht),
    FIELD(workspace), FIELD(status),  FIELD(accepted)};
constexpr Field sizeFields[] = {FIELD(N),
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
                                FIELD(out_stride)};
constexpr Field scaleFields[] = {FIELD(scale)};
#undef FIELD

template <size_t count>
const Field *find(const Field (&fields)[count], const std::string &name) {
  for (const Field &field : fields)
    if (field.name == name)
      return &field;
  return nullptr;
}

bool isPointer(ArgKind kind) {
  return kind == ArgKind::Input || kind == ArgKind::Output ||
         kind == ArgKind::Workspace;
}

const Field *fieldOf(const Arg &arg) {
  if (isPointer(arg.kind))
    return find(pointerFields, arg.name);
  return arg.kind == ArgKind::Size ? find(sizeFields, arg.name)
                                   : find(scaleFields, arg.name);
}

template <typename T> T valueAt(const kdac_call &call, size_t offset) {
  T value;
  std::memcpy(&value, reinterpret_cast<const char *>(&call) + offset,
              sizeof value);
  return value;
}

template <typename T> void put(uint64_t &slot, T value) {
  static_assert(sizeof(T) <= sizeof slot);
  std::memcpy(&slot, &value, sizeof value);
}

/// What precedes `suffix` in `name`, or nothing.
std::optional<std::string> stemOf(const std::string &name,
                                  std::string_view suffix) {
  if (name.size() <= suffix.size() ||
      name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0)
    return std::nullopt;
  return name.substr(0, name.size() - suffix.size());
}

/// The default of a token stride, from the tensor's shape: "[tokens, HV, K]".
Status bindStride(const PackVariant &variant, const std::string &tensor,
                  Binding &binding) {
  for (const LaunchArg &a : variant.launches[0].args) {
    if (a.arg.name != tensor || !isPointer(a.arg.kind))
      continue;
    const std::string &shape = a.arg.shape;
    binding.unsaid =
        shape.find("HV") != std::string::npos ? Per::ValueHead : Per::KeyHead;
    if (shape.find(", K]") != std::string::npos)
      binding.width = variant.variant.keyDim;
    else if (shape.find(", V]") != std::string::npos)
      binding.width = variant.variant.valueDim;
    return Status::success();
  }
  return Status(ErrorCode::Unsupported,
                "a stride of the unknown tensor '" + tensor + "'");
}

/// The default of the pitch of a pool or of a convolution's cache.
Status bindPitch(const Variant &v, const std::string &of, Binding &binding) {
  int64_t entries = cacheEntries(v);
  if (of == "slot" || of == "head") {
    binding.unsaid = of == "slot" ? Per::ValueHead : Per::One;
    binding.width = v.keyDim * v.valueDim;
  } else if (of == "q_cache" || of == "k_cache") {
    binding.unsaid = Per::KeyHead;
    binding.width = v.keyDim * entries;
  } else if (of == "v_cache") {
    binding.unsaid = Per::ValueHead;
    binding.width = v.valueDim * entries;
  } else {
    return Status(ErrorCode::Unsupported,
                  "a pitch of the unknown tensor '" + of + "'");
  }
  return Status::success();
}

Status bindSize(const PackVariant &variant, const std::string &name,
                Binding &binding) {
  if (auto tensor = stemOf(name, "_stride"))
    return bindStride(variant, *tensor, binding);
  if (auto of = stemOf(name, "_pitch"))
    return bindPitch(variant.variant, *of, binding);
  return Status::success();
}

int64_t valueHeads(const kdac_call &call) {
  return call.HV == 0 ? call.H : call.HV;
}

} // namespace

StatusOr<CallLayout> CallLayout::of(const PackVariant &variant) {
  CallLayout layout;
  layout.name = variant.name();
  layout.keyDim = variant.variant.keyDim;
  const std::vector<LaunchArg> &args = variant.launches[0].args;
  if (args.size() > maxArgs)
    return Status(ErrorCode::Unsupported,
                  layout.name + " has " + std::to_string(args.size()) +
                      " arguments, but this runtime passes at most 64");
  for (const LaunchArg &a : args) {
    const Field *field = fieldOf(a.arg);
    if (!field)
      return Status(ErrorCode::Unsupported,
                    layout.name + " has an argument '" + a.arg.name +
                        "' that this runtime does not know");
    Binding binding;
    binding.kind = a.arg.kind;
    binding.offset = field->offset;
    if (a.arg.kind == ArgKind::Size)
      if (Status s = bindSize(variant, a.arg.name, binding); !s.ok())
        return s.with(layout.name);
    layout.bindings.push_back(binding);
  }
  for (const Field &field : pointerFields) {
    // One workspace may serve all kernels of an engine.
    bool known = field.offset == offsetof(kdac_call, workspace);
    for (const LaunchArg &a : args)
      known |= isPointer(a.arg.kind) && a.arg.name == field.name;
    if (!known)
      layout.foreign.push_back({field.name, field.offset});
  }
  return layout;
}

Status CallLayout::fillOne(const Binding &binding, const kdac_call &call,
                           uint64_t &slot) const {
  if (isPointer(binding.kind)) {
    put(slot, valueAt<const void *>(call, binding.offset));
    return Status::success();
  }
  if (binding.kind == ArgKind::Scale) {
    float scale = valueAt<float>(call, binding.offset);
    if (scale == 0)
      scale = static_cast<float>(1 / std::sqrt(static_cast<double>(keyDim)));
    put(slot, scale);
    return Status::success();
  }
  int64_t size = valueAt<int64_t>(call, binding.offset);
  if (binding.offset == offsetof(kdac_call, HV))
    size = valueHeads(call);
  int64_t count = binding.unsaid == Per::ValueHead ? valueHeads(call)
                  : binding.unsaid == Per::KeyHead ? call.H
                                                   : 1;
  if (binding.unsaid != Per::Nothing && size == 0 &&
      __builtin_mul_overflow(count, binding.width, &size))
    return Status(ErrorCode::InvalidArgument, name + ": a token of " +
                                                  std::to_string(count) +
                                                  " heads exceeds 64 bits");
  put(slot, size);
  return Status::success();
}

Status CallLayout::fill(const kdac_call &call, Arguments &out) const {
  for (const Foreign &field : foreign)
    if (valueAt<const void *>(call, field.offset))
      return Status(ErrorCode::InvalidArgument,
                    name + ": argument " + field.name +
                        " is given, but this variant has none");
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (Status s = fillOne(bindings[i], call, out.slots[i]); !s.ok())
      return s;
    out.argv[i] = &out.slots[i];
  }
  return Status::success();
}

} // namespace kdac::capi
