#include "kdac/Target/DataObject.h"
#include "HostMachine.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace kdac {

namespace {

/// An architecture, and a CPU of it: data are the same for all.
struct ArchRow {
  StringLiteral name, cpu;
};
constexpr ArchRow kArchs[] = {
    {"native", "native"}, {"x86-64", "x86-64-v3"}, {"aarch64", "aarch64"}};

void addData(Module &module, StringRef symbol, StringRef bytes) {
  Constant *data = ConstantDataArray::getString(module.getContext(), bytes,
                                                /*AddNull=*/false);
  auto *global =
      new GlobalVariable(module, data->getType(), /*isConstant=*/true,
                         GlobalValue::ExternalLinkage, data, symbol);
  global->setVisibility(GlobalValue::HiddenVisibility);
  global->setAlignment(Align(64));
  global->setSection(".rodata.kdac");
}

} // namespace

std::string dataObjectArchs() {
  std::string names;
  for (const ArchRow &row : kArchs)
    names += (names.empty() ? "" : ", ") + row.name.str();
  return names;
}

Expected<std::string> emitDataObject(StringRef symbol, StringRef bytes,
                                     StringRef arch) {
  const ArchRow *row =
      find_if(kArchs, [&](const ArchRow &row) { return row.name == arch; });
  if (row == std::end(kArchs))
    return createStringError("unknown machine '" + arch +
                             "' for an object file, expected one of " +
                             dataObjectArchs());
  Expected<std::unique_ptr<TargetMachine>> machine =
      createHostMachine(row->cpu);
  if (!machine)
    return machine.takeError();
  LLVMContext context;
  Module module("kdac", context);
  module.setTargetTriple((*machine)->getTargetTriple());
  module.setDataLayout((*machine)->createDataLayout());
  addData(module, symbol, bytes);
  SmallString<0> object;
  raw_svector_ostream os(object);
  legacy::PassManager passes;
  if ((*machine)->addPassesToEmitFile(passes, os, nullptr,
                                      CodeGenFileType::ObjectFile))
    return createStringError("the backend of " + row->name +
                             " cannot write objects");
  passes.run(module);
  return std::string(object);
}

} // namespace kdac
