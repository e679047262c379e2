// Promises: PTX text as declarations and statements, names and scopes resolved.
// Does not: know instructions.
#ifndef KDAC_PTXEMULATOR_SYNTAX_H
#define KDAC_PTXEMULATOR_SYNTAX_H

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kdac::ptx {

/// An operand as written.
struct Operand {
  enum Kind : uint8_t {
    Name,
    Integer,
    Float,
    Double,
    Address,
    List,
    Sink,
    Pair
  };
  Kind kind = Sink;
  bool negated = false;       ///< !p
  std::string name;           ///< of Name; base of Address, "": none
  int64_t value = 0;          ///< bits of a constant; offset of Address
  std::vector<Operand> parts; ///< of List and Pair; extra ones of Address
};

/// One instruction.
struct Statement {
  int line = 0;
  std::string text;
  std::string guard; ///< "": none
  bool guardNegated = false;
  std::string opcode;
  std::vector<std::string> mods; ///< what follows the dots
  std::vector<Operand> operands;
};

/// A variable in memory, or a parameter.
struct Variable {
  std::string name, space, type;
  uint32_t align = 1, bytes = 0; ///< 0 bytes: extern
  std::vector<uint8_t> data;     ///< initial value of .global and .const
};

struct EntrySyntax {
  std::string name;
  std::vector<Variable> params;
  std::map<std::string, unsigned> registers; ///< unique name: bits, 1 = pred
  std::map<std::string, int> labels;         ///< unique name: statement
  std::vector<Variable> variables;           ///< .shared and .local
  std::vector<Statement> body;
  unsigned reqntid[3] = {0, 0, 0};
  unsigned cluster[3] = {0, 0, 0}; ///< .reqnctapercluster
  bool explicitCluster = false;
};

struct ModuleSyntax {
  std::string target;
  std::vector<Variable> variables;
  std::vector<EntrySyntax> entries;
};

/// Bytes of a value of a PTX type; 0: not a type.
unsigned bytesOfType(std::string_view type);

/// False, and `error` with the line, where the text is not understood.
bool parseSyntax(std::string_view text, ModuleSyntax &module,
                 std::string &error);

} // namespace kdac::ptx

#endif // KDAC_PTXEMULATOR_SYNTAX_H
