#include "Decoder.h"

#include <cstring>

namespace kdac::ptx {

namespace {

struct TypeRow {
  const char *name;
  Type type;
  unsigned bits;
};
constexpr TypeRow types[] = {
    {"pred", Type::Pred, 1},      {"b8", Type::B8, 8},
    {"u8", Type::U8, 8},          {"s8", Type::S8, 8},
    {"b16", Type::B16, 16},       {"u16", Type::U16, 16},
    {"s16", Type::S16, 16},       {"b32", Type::B32, 32},
    {"u32", Type::U32, 32},       {"s32", Type::S32, 32},
    {"b64", Type::B64, 64},       {"u64", Type::U64, 64},
    {"s64", Type::S64, 64},       {"f16", Type::F16, 16},
    {"f16x2", Type::F16x2, 32},   {"bf16", Type::BF16, 16},
    {"bf16x2", Type::BF16x2, 32}, {"f32", Type::F32, 32},
    {"f64", Type::F64, 64},       {"tf32", Type::TF32, 32},
};

const std::map<std::string, Special> &specials() {
  static const std::map<std::string, Special> names = {
      {"%tid.x", TidX},
      {"%tid.y", TidY},
      {"%tid.z", TidZ},
      {"%ntid.x", NtidX},
      {"%ntid.y", NtidY},
      {"%ntid.z", NtidZ},
      {"%ctaid.x", CtaidX},
      {"%ctaid.y", CtaidY},
      {"%ctaid.z", CtaidZ},
      {"%nctaid.x", NctaidX},
      {"%nctaid.y", NctaidY},
      {"%nctaid.z", NctaidZ},
      {"%laneid", LaneId},
      {"%warpid", WarpId},
      {"%nwarpid", NWarpId},
      {"%smid", SmId},
      {"%nsmid", NSmId},
      {"%dynamic_smem_size", DynamicSmem},
      {"%total_smem_size", TotalSmem},
      {"%cluster_ctaid.x", ClusterCtaidX},
      {"%cluster_ctaid.y", ClusterCtaidY},
      {"%cluster_ctaid.z", ClusterCtaidZ},
      {"%cluster_nctaid.x", ClusterNctaidX},
      {"%cluster_nctaid.y", ClusterNctaidY},
      {"%cluster_nctaid.z", ClusterNctaidZ},
      {"%clusterid.x", ClusteridX},
      {"%clusterid.y", ClusteridY},
      {"%clusterid.z", ClusteridZ},
      {"%nclusterid.x", NclusteridX},
      {"%nclusterid.y", NclusteridY},
      {"%nclusterid.z", NclusteridZ},
      {"%cluster_ctarank", ClusterCtarank},
      {"%cluster_nctarank", ClusterNctarank},
      {"%is_explicit_cluster", IsExplicitCluster},
      {"%lanemask_eq", LaneMaskEq},
      {"%lanemask_lt", LaneMaskLt},
      {"%lanemask_le", LaneMaskLe},
      {"%lanemask_gt", LaneMaskGt},
      {"%lanemask_ge", LaneMaskGe},
      {"WARP_SZ", SpecialCount}};
  return names;
}

uint32_t floatBits(double value) {
  float narrow = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof bits);
  return bits;
}

const std::map<std::string, DecodeFunction> &opcodes() {
  static const std::map<std::string, DecodeFunction> table = [] {
    std::map<std::string, DecodeFunction> all;
    for (auto *family :
         {&arithmeticOpcodes(), &floatOpcodes(), &convertOpcodes(),
          &memoryOpcodes(), &controlOpcodes(), &warpOpcodes(), &matrixOpcodes(),
          &wgmmaOpcodes(), &asyncOpcodes(), &mbarrierOpcodes()})
      for (const Opcode &opcode : *family)
        all[opcode.name] = opcode.decode;
    return all;
  }();
  return table;
}

} // namespace

Type typeNamed(const std::string &name) {
  for (const TypeRow &row : types)
    if (name == row.name)
      return row.type;
  return Type::None;
}

unsigned bitsOf(Type type) {
  for (const TypeRow &row : types)
    if (row.type == type)
      return row.bits;
  return 0;
}

bool isSignedType(Type type) {
  return type == Type::S8 || type == Type::S16 || type == Type::S32 ||
         type == Type::S64;
}

void Decoder::layout() {
  uint32_t at = SpecialCount * warpSize * 4;
  // Wide ones first, predicates last: everything is aligned.
  for (unsigned bits : {64u, 32u, 16u, 1u})
    for (auto &[name, width] : entry.registers)
      if (width == bits || (width == 8 && bits == 16)) {
        registers[name] = {at, static_cast<uint8_t>(bits), false};
        at += bits == 1 ? 4 : warpSize * (bits == 64 ? 8 : 4);
      }
  program.registerBytes = at;
}

bool Decoder::fail(const std::string &why) {
  if (error->empty())
    *error = "line " + std::to_string(s->line) + ": " + why + ": " + s->text;
  return false;
}

bool Decoder::decode(const Statement &statement, std::string &message) {
  s = &statement;
  error = &message;
  mods = statement.mods;
  refs.clear();
  inst = Instruction();
  inst.line = statement.line;
  if (!statement.guard.empty()) {
    Ref guard;
    if (!find(statement.guard, guard) || guard.bits != 1)
      return fail("no such predicate " + statement.guard);
    inst.guard = static_cast<int32_t>(guard.offset);
    inst.guardNegated = statement.guardNegated;
  }
  auto it = opcodes().find(statement.opcode);
  if (it == opcodes().end())
    return fail("this instruction is not supported");
  if (!it->second(*this))
    return fail("this form is not supported");
  inst.count = static_cast<uint16_t>(refs.size());
  program.pool.emplace_back(new Ref[refs.size() + 1]);
  std::copy(refs.begin(), refs.end(), program.pool.back().get());
  inst.ops = program.pool.back().get();
  program.code.push_back(inst);
  program.text.push_back(statement.text);
  return true;
}

bool Decoder::find(const std::string &name, Ref &ref) const {
  auto it = registers.find(name);
  if (it != registers.end()) {
    ref = it->second;
    return true;
  }
  auto special = specials().find(name);
  if (special == specials().end() || special->second == SpecialCount)
    return false;
  uint8_t bits = special->second == IsExplicitCluster ? 1 : 32;
  ref = {special->second * warpSize * 4, bits, false};
  return true;
}

bool Decoder::take(const char *mod) {
  for (size_t i = 0; i < mods.size(); ++i)
    if (mods[i] == mod) {
      mods.erase(mods.begin() + static_cast<long>(i));
      return true;
    }
  return false;
}

void Decoder::drop(std::initializer_list<const char *> names) {
  for (const char *name : names)
    take(name);
}

Type Decoder::takeType() {
  if (mods.empty())
    return Type::None;
  Type type = typeNamed(mods.back());
  if (type != Type::None)
    mods.pop_back();
  return type;
}

const std::string *Decoder::nextMod() const {
  return mods.empty() ? nullptr : &mods.front();
}

bool Decoder::done() {
  return mods.empty() ||
         fail("modifier ." + mods.front() + " is not supported");
}

bool Decoder::arity(size_t least, size_t most) {
  size_t n = s->operands.size();
  return (n >= least && n <= std::max(least, most)) ||
         fail("unexpected number of operands");
}

Ref Decoder::constant(uint64_t bits, unsigned width) {
  unsigned slot = width == 64 ? 8 : 4;
  auto [it, isNew] = known.emplace(std::make_pair(bits, slot), 0);
  if (isNew) {
    std::vector<uint8_t> &pool = program.constants;
    pool.resize((pool.size() + 7) / 8 * 8);
    it->second = static_cast<uint32_t>(pool.size());
    for (unsigned lane = 0; lane < warpSize; ++lane)
      for (unsigned i = 0; i < slot; ++i)
        pool.push_back(static_cast<uint8_t>(bits >> (8 * i)));
  }
  return {it->second, static_cast<uint8_t>(width), true};
}

bool Decoder::symbol(const std::string &name, uint64_t &value) const {
  auto it = symbols.find(name);
  if (it == symbols.end())
    return false;
  value = it->second;
  return true;
}

bool Decoder::value(const Operand &op, Type type, bool exact) {
  unsigned bits = bitsOf(type);
  if (op.negated && type != Type::Pred)
    return fail("'!' before a value that is no predicate");
  Ref ref;
  uint64_t address;
  switch (op.kind) {
  case Operand::Name:
    if (find(op.name, ref)) {
      if (ref.bits < bits || (exact && ref.bits != std::max(bits, 16u) &&
                              !(ref.bits == 1 && bits == 1)))
        return fail("register " + op.name + " has another width");
      push(ref);
      return true;
    }
    if (op.name == "WARP_SZ") {
      push(constant(warpSize, bits));
      return true;
    }
    if (!symbol(op.name, address))
      return fail("unknown name " + op.name);
    push(constant(address, bits));
    return true;
  case Operand::Integer:
    if (type == Type::F32 || type == Type::F64)
      return fail("expected a floating-point constant");
    push(constant(bits >= 64 ? static_cast<uint64_t>(op.value)
                             : static_cast<uint64_t>(op.value) &
                                   ((uint64_t(1) << bits) - 1),
                  bits));
    return true;
  case Operand::Float:
    if (bits != 32)
      return fail("a 32-bit constant in an operand of another width");
    push(constant(static_cast<uint32_t>(op.value), 32));
    return true;
  case Operand::Double: {
    double number;
    std::memcpy(&number, &op.value, sizeof number);
    if (type == Type::F32 || type == Type::B32)
      push(constant(floatBits(number), 32));
    else if (bits == 64)
      push(constant(static_cast<uint64_t>(op.value), 64));
    else
      return fail("a floating-point constant in an operand of another type");
    return true;
  }
  default:
    return fail("expected a register or constant");
  }
}

bool Decoder::destination(const Operand &op, Type type, bool exact) {
  if (op.kind == Operand::Sink) {
    push(Ref());
    return true;
  }
  Ref ref;
  if (op.kind != Operand::Name || !find(op.name, ref) ||
      ref.offset < SpecialCount * warpSize * 4)
    return fail("expected a register to write to");
  unsigned bits = bitsOf(type);
  if (ref.bits < bits ||
      (exact && ref.bits != std::max(bits, 16u) && ref.bits != bits))
    return fail("register " + op.name + " has another width");
  push(ref);
  inst.dests = static_cast<uint16_t>(refs.size());
  return true;
}

bool Decoder::predicate(const Operand &op, bool sinkAllowed) {
  if (op.kind == Operand::Sink && sinkAllowed) {
    push(Ref());
    return true;
  }
  Ref ref;
  if (op.kind == Operand::Integer) {
    uint32_t bits = op.value ? allLanes : 0;
    Ref mask = constant(bits, 32);
    mask.bits = 1;
    push(mask);
    return true;
  }
  if (op.kind != Operand::Name || !find(op.name, ref) || ref.bits != 1)
    return fail("expected a predicate");
  push(ref);
  return true;
}

bool Decoder::address(const Operand &op) {
  if (op.kind != Operand::Address || !op.parts.empty())
    return fail("expected an address");
  uint64_t base = 0;
  Ref ref;
  if (op.name.empty() || symbol(op.name, base)) {
    push(constant(base + static_cast<uint64_t>(op.value), 64));
    inst.offset = 0;
    return true;
  }
  if (!find(op.name, ref) || ref.bits < 32)
    return fail("expected a base register");
  push(ref);
  inst.offset = op.value;
  return true;
}

bool Decoder::integer(const Operand &op, int64_t &value) {
  if (op.kind != Operand::Integer)
    return fail("expected an integer constant");
  value = op.value;
  return true;
}

bool Decoder::list(const Operand &op, Type type, bool isDestination,
                   bool exact) {
  if (op.kind != Operand::List)
    return fail("expected a list of registers");
  for (const Operand &part : op.parts)
    if (!(isDestination ? destination(part, type, exact)
                        : value(part, type, exact)))
      return false;
  return true;
}

bool Decoder::setSpace() {
  if (take("global") || take("const"))
    inst.space = Space::Global;
  else if (take("shared") || take("shared::cta"))
    inst.space = Space::Shared;
  else if (take("shared::cluster"))
    inst.space = Space::Cluster;
  else if (take("param") || take("param::entry"))
    inst.space = Space::Param;
  else if (take("local"))
    inst.space = Space::Local;
  else
    inst.space = Space::Generic;
  return true;
}

bool Decoder::label(const Operand &op) {
  auto it = entry.labels.find(op.name);
  if (op.kind != Operand::Name || it == entry.labels.end())
    return fail("unknown label " + op.name);
  inst.target = it->second;
  return true;
}

} // namespace kdac::ptx
