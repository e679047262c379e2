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
    FIELD(q),       FIELD(k),       FIELD(v),  FIELD(g),        FIELD(beta),
    FIELD(A_log),   FIELD(dt_bias), FIELD(a),  FIELD(b),        FIELD(h0),
    FIELD(offsets), FIELD(out),     FIELD(ht), FIELD(workspace)};
constexpr Field sizeFields[] = {
    FIELD(N),        FIELD(T),        FIELD(H),           FIELD(HV),
    FIELD(q_stride), FIELD(k_stride), FIELD(v_stride),    FIELD(g_stride),
    FIELD(a_stride), FIELD(b_stride), FIELD(beta_stride), FIELD(out_stride)};
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

/// Reads the shape of the tensor whose stride this is: "[tokens, HV, K]".
Status bindStride(const PackVariant &variant, const std::string &tensor,
                  Binding &binding) {
  for (const LaunchArg &a : variant.launches[0].args) {
    if (a.arg.name != tensor || !isPointer(a.arg.kind))
      continue;
    const std::string &shape = a.arg.shape;
    binding.isStride = true;
    binding.ofValueHeads = shape.find("HV") != std::string::npos;
    if (shape.find(", K]") != std::string::npos)
      binding.width = variant.variant.keyDim;
    else if (shape.find(", V]") != std::string::npos)
      binding.width = variant.variant.valueDim;
    return Status::success();
  }
  return Status(ErrorCode::Unsupported,
                "a stride of the unknown tensor '" + tensor + "'");
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
                      " arguments, but this runtime passes at most 32");
  constexpr std::string_view suffix = "_stride";
  for (const LaunchArg &a : args) {
    const Field *field = fieldOf(a.arg);
    if (!field)
      return Status(ErrorCode::Unsupported,
                    layout.name + " has an argument '" + a.arg.name +
                        "' that this runtime does not know");
    Binding binding{a.arg.kind, field->offset};
    size_t length = a.arg.name.size();
    if (a.arg.kind == ArgKind::Size && length > suffix.size())
      if (Status s = bindStride(
              variant, a.arg.name.substr(0, length - suffix.size()), binding);
          !s.ok())
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
  if (binding.isStride && size == 0 &&
      __builtin_mul_overflow(binding.ofValueHeads ? valueHeads(call) : call.H,
                             binding.width, &size))
    return Status(ErrorCode::InvalidArgument,
                  name + ": a token of " + std::to_string(valueHeads(call)) +
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
