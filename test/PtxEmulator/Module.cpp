// Modules: from syntax to programs, and grids of clusters.
#include "Decoder.h"
#include "Machine.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace kdac::ptx {

Module::Module() = default;
Module::~Module() = default;

namespace {

uint32_t alignUp(uint32_t x, uint32_t align) {
  return (x + align - 1) / align * align;
}

using Symbols = std::map<std::string, uint64_t>;

void placeParams(const EntrySyntax &entry, Program &program, Symbols &symbols) {
  uint32_t at = 0;
  for (const Variable &v : entry.params) {
    at = alignUp(at, v.align);
    symbols[v.name] = at;
    program.params.push_back({at, v.bytes});
    at += v.bytes;
  }
  program.paramBytes = at;
}

/// Static arrays first, then the dynamic part, whose names all mean its start.
void placeShared(const std::vector<const Variable *> &variables,
                 Program &program, Symbols &symbols) {
  uint32_t at = 0, align = 16;
  for (const Variable *v : variables)
    if (v->space == "shared" && v->bytes) {
      at = alignUp(at, v->align);
      symbols[v->name] = sharedBase + at;
      at += v->bytes;
    }
  for (const Variable *v : variables)
    if (v->space == "shared" && !v->bytes)
      align = std::max(align, v->align);
  at = at ? alignUp(at, align) : 0;
  for (const Variable *v : variables)
    if (v->space == "shared" && !v->bytes)
      symbols[v->name] = sharedBase + at;
  program.staticShared = at;
}

void placeLocal(const EntrySyntax &entry, Program &program, Symbols &symbols) {
  uint32_t at = 0;
  for (const Variable &v : entry.variables)
    if (v.space == "local") {
      at = alignUp(at, v.align);
      symbols[v.name] = at;
      at += v.bytes;
    }
  program.localBytes = alignUp(at, 16);
}

/// Which instructions use accumulators or A registers of wgmmas.
void findProductRegisters(Program &program) {
  std::vector<bool> ofProduct(program.registerBytes / 128 + 1);
  auto each = [](const Instruction &i, auto f) {
    for (unsigned k = 0; k < i.count; ++k)
      if (!i.ops[k].constant && i.ops[k].bits == 32)
        f(i.ops[k].offset / 128);
  };
  for (const Instruction &i : program.code)
    if (i.isProduct)
      each(i, [&](uint32_t r) { ofProduct[r] = true; });
  for (Instruction &i : program.code)
    if (!i.isProduct)
      each(i, [&](uint32_t r) { i.touchesProduct |= ofProduct[r]; });
}

/// Which loads bring nothing but operands of mma. Of those, rows that nobody
/// wrote do no harm where the kernel drops the rows of D that they reach.
void findMatrixLoads(Program &program) {
  std::vector<bool> readElsewhere(program.registerBytes / 128 + 1);
  for (const Instruction &i : program.code)
    for (unsigned k = i.isProduct ? 0 : i.dests; k < i.count && !i.isMma; ++k)
      if (!i.ops[k].constant)
        readElsewhere[i.ops[k].offset / 128] = true;
  for (Instruction &i : program.code) {
    i.peeks = i.isLoad;
    for (unsigned k = 0; k < i.dests; ++k)
      i.peeks &= !readElsewhere[i.ops[k].offset / 128];
  }
}

/// Every entry of the module ends, even one whose text does not say so.
bool decodeAll(const EntrySyntax &entry, Program &program,
               const Symbols &symbols, std::string &error) {
  Decoder decoder(entry, program, symbols);
  decoder.layout();
  for (const Statement &s : entry.body)
    if (!decoder.decode(s, error))
      return false;
  Statement last;
  last.line = entry.body.empty() ? 0 : entry.body.back().line;
  last.text = "end of " + entry.name;
  last.opcode = "exit";
  if (!decoder.decode(last, error))
    return false;
  findMatrixLoads(program);
  if (program.usesWgmma)
    findProductRegisters(program);
  return true;
}

} // namespace

std::unique_ptr<Module> Module::parse(std::string_view text,
                                      std::string &error) {
  ModuleSyntax syntax;
  if (!parseSyntax(text, syntax, error))
    return nullptr;
  std::unique_ptr<Module> module(new Module());
  module->globalMemory = std::make_unique<Memory>();
  module->globalMemory->startAt(0x600000000000);
  Symbols moduleSymbols;
  for (const Variable &v : syntax.variables)
    if (v.space == "global" || v.space == "const") {
      std::vector<uint8_t> data = v.data;
      data.resize(v.bytes);
      module->globals.push_back(std::move(data));
      moduleSymbols[v.name] =
          module->globalMemory->add(module->globals.back().data(), v.bytes);
    }
  for (const EntrySyntax &entry : syntax.entries) {
    auto program = std::make_unique<Program>();
    Symbols symbols = moduleSymbols;
    std::vector<const Variable *> variables;
    for (const Variable &v : syntax.variables)
      variables.push_back(&v);
    for (const Variable &v : entry.variables)
      variables.push_back(&v);
    program->name = entry.name;
    std::copy(entry.reqntid, entry.reqntid + 3, program->reqntid);
    std::copy(entry.cluster, entry.cluster + 3, program->cluster);
    program->explicitCluster = entry.explicitCluster;
    placeParams(entry, *program, symbols);
    placeShared(variables, *program, symbols);
    placeLocal(entry, *program, symbols);
    if (!decodeAll(entry, *program, symbols, error))
      return nullptr;
    module->programs[entry.name] = std::move(program);
  }
  return module;
}

std::vector<std::string> Module::entries() const {
  std::vector<std::string> names;
  for (auto &[name, program] : programs)
    names.push_back(name);
  return names;
}

const std::vector<Parameter> *
Module::parameters(const std::string &entry) const {
  auto it = programs.find(entry);
  return it == programs.end() ? nullptr : &it->second->params;
}

uint32_t Module::staticShared(const std::string &entry) const {
  auto it = programs.find(entry);
  return it == programs.end() ? 0 : it->second->staticShared;
}

static std::string triple(const unsigned *sizes) {
  return std::to_string(sizes[0]) + " x " + std::to_string(sizes[1]) + " x " +
         std::to_string(sizes[2]);
}

unsigned Module::clusterWidth(const std::string &entry) const {
  auto it = programs.find(entry);
  return it == programs.end() ? 0 : it->second->cluster[0];
}

std::string Module::clusterRefusal(const Launch &launch) const {
  auto it = programs.find(launch.entry);
  if (it == programs.end())
    return "";
  const Program &program = *it->second;
  const unsigned *size = clusterOf(program, launch), *grid = launch.grid;
  const unsigned *want = program.cluster;
  constexpr unsigned portable = 8;
  if (!size[0])
    return program.explicitCluster
               ? program.name + " must be launched in clusters, but neither "
                                "it nor the launch says of what size"
               : "";
  if (want[0] && !std::equal(want, want + 3, size))
    return program.name + " needs clusters of " + triple(want) +
           " blocks, but got " + triple(size);
  if (uint64_t(size[0]) * size[1] * size[2] > portable)
    return program.name + ": clusters of " + triple(size) +
           " blocks, but not every GPU takes more than " +
           std::to_string(portable);
  for (int i = 0; i < 3; ++i)
    if (!size[i] || grid[i] % size[i])
      return program.name + ": a grid of " + triple(grid) +
             " blocks is no multiple of clusters of " + triple(size);
  return "";
}

static std::string refusal(const Program &program, const Launch &launch) {
  const unsigned *want = program.reqntid;
  if (want[0])
    for (int i = 0; i < 3; ++i)
      if (want[i] != launch.block[i])
        return program.name + " needs blocks of " + triple(want) + " threads";
  unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  if (threads == 0 || threads > 1024)
    return "a block of " + std::to_string(threads) + " threads";
  if (launch.params.size() < program.paramBytes)
    return program.name + " takes " + std::to_string(program.paramBytes) +
           " bytes of parameters, but got " +
           std::to_string(launch.params.size());
  return "";
}

std::string Module::launch(const Launch &launch, const Memory &memory,
                           const Options &options, Stats *stats) const {
  auto it = programs.find(launch.entry);
  if (it == programs.end())
    return "no entry " + launch.entry;
  const Program &program = *it->second;
  if (std::string why = refusal(program, launch); !why.empty())
    return why;
  if (std::string why = clusterRefusal(launch); !why.empty())
    return why;
  uint64_t clusters = 1;
  for (int i = 0; i < 3; ++i)
    clusters *= launch.grid[i] / std::max(1u, clusterOf(program, launch)[i]);
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  std::string error;
  Stats total;
  auto work = [&] {
    std::vector<uint8_t> registers;
    for (uint64_t number; (number = next++) < clusters;) {
      Cluster cluster(program, memory, globalMemory.get(), launch, options,
                      number, registers);
      bool ok = cluster.run();
      std::lock_guard<std::mutex> lock(mutex);
      total.warpInstructions += cluster.stats.warpInstructions;
      total.threadInstructions += cluster.stats.threadInstructions;
      if (ok)
        continue;
      if (error.empty())
        error = cluster.error;
      next = clusters;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < options.threads; ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &t : threads)
    t.join();
  if (stats) {
    stats->warpInstructions += total.warpInstructions;
    stats->threadInstructions += total.threadInstructions;
  }
  return error;
}

} // namespace kdac::ptx
