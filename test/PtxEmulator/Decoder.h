// Promises: what decoding functions of one family of instructions work with.
// Does not: run anything.
#ifndef KDAC_PTXEMULATOR_DECODER_H
#define KDAC_PTXEMULATOR_DECODER_H

#include "Program.h"
#include "Syntax.h"

#include <initializer_list>

namespace kdac::ptx {

/// The type of an instruction, its last modifier in most cases.
enum class Type : uint8_t {
  None,
  Pred,
  B8,
  U8,
  S8,
  B16,
  U16,
  S16,
  B32,
  U32,
  S32,
  B64,
  U64,
  S64,
  F16,
  F16x2,
  BF16,
  BF16x2,
  F32,
  F64,
  TF32
};
Type typeNamed(const std::string &name);
unsigned bitsOf(Type type);
bool isSignedType(Type type);

/// One statement on its way to an instruction.
class Decoder {
public:
  Decoder(const EntrySyntax &entry, Program &program,
          const std::map<std::string, uint64_t> &symbols)
      : entry(entry), program(program), symbols(symbols) {}

  /// Lays out registers. Before decode().
  void layout();
  bool decode(const Statement &s, std::string &error);

  // For the families. Each returns false after fail().
  bool fail(const std::string &why);
  const Statement &statement() const { return *s; }
  /// Removes the modifier; false: it is not there.
  bool take(const char *mod);
  void drop(std::initializer_list<const char *> mods);
  /// Removes and returns the last modifier as a type.
  Type takeType();
  const std::string *nextMod() const;
  /// What is left of the modifiers must be nothing.
  bool done();
  bool arity(size_t least, size_t most = 0);
  /// The operand as a register or constant of `bits`; where `exact` is false, a
  /// wider register will do.
  bool value(const Operand &op, Type type, bool exact = true);
  bool destination(const Operand &op, Type type, bool exact = true);
  bool predicate(const Operand &op, bool sinkAllowed = false);
  /// "[base + offset]": base as a reference, offset into the instruction.
  bool address(const Operand &op);
  bool integer(const Operand &op, int64_t &value);
  void push(Ref ref) { refs.push_back(ref); }
  Ref constant(uint64_t bits, unsigned width);
  bool list(const Operand &op, Type type, bool isDestination, bool exact);
  bool setSpace();
  bool label(const Operand &op);
  bool symbol(const std::string &name, uint64_t &value) const;
  Program &programOf() { return program; }

  Instruction inst;

private:
  bool find(const std::string &name, Ref &ref) const;

  const EntrySyntax &entry;
  Program &program;
  const std::map<std::string, uint64_t> &symbols;
  std::map<std::string, Ref> registers;
  std::map<std::pair<uint64_t, unsigned>, uint32_t> known; ///< constants
  const Statement *s = nullptr;
  std::vector<std::string> mods;
  std::vector<Ref> refs;
  std::string *error = nullptr;
};

using DecodeFunction = bool (*)(Decoder &d);
struct Opcode {
  const char *name;
  DecodeFunction decode;
};
/// Tables of the families.
const std::vector<Opcode> &arithmeticOpcodes();
const std::vector<Opcode> &floatOpcodes();
const std::vector<Opcode> &convertOpcodes();
const std::vector<Opcode> &memoryOpcodes();
const std::vector<Opcode> &controlOpcodes();
const std::vector<Opcode> &warpOpcodes();
const std::vector<Opcode> &matrixOpcodes();
const std::vector<Opcode> &wgmmaOpcodes();
const std::vector<Opcode> &asyncOpcodes();
const std::vector<Opcode> &mbarrierOpcodes();

} // namespace kdac::ptx

#endif // KDAC_PTXEMULATOR_DECODER_H
