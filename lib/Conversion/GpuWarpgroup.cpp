// Hopper's instructions: mbarriers, named barriers, wgmma. What LLVM and ptxas
// need to keep wgmma asynchronous is in docs/decisions/0015-warp-roles.md.
#include "GpuEmitter.h"

using namespace mlir;

namespace kdac {

GpuEmitter::Values GpuEmitter::assembly(StringRef text, StringRef constraints,
                                        TypeRange results,
                                        ValueRange operands) {
  SmallVector<Type> types(results);
  if (types.size() > 1)
    types = {LLVM::LLVMStructType::getLiteral(getContext(), types)};
  auto op = LLVM::InlineAsmOp::create(
      *this, types, operands, text, constraints,
      /*has_side_effects=*/true, /*is_align_stack=*/false,
      LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
  if (results.size() <= 1)
    return Values(op->getResults());
  Values values;
  for (size_t i = 0; i < results.size(); ++i)
    values.push_back(LLVM::ExtractValueOp::create(*this, op.getResult(0), i));
  return values;
}

Value GpuEmitter::bitAnd(Value a, int64_t b) {
  return createOrFold<arith::AndIOp>(a, i32(b));
}
Value GpuEmitter::bitXor(Value a, Value b) {
  return createOrFold<arith::XOrIOp>(a, b);
}
Value GpuEmitter::shiftLeft(Value a, int64_t b) {
  return createOrFold<arith::ShLIOp>(a, i32(b));
}
Value GpuEmitter::shiftRight(Value a, int64_t b) {
  return createOrFold<arith::ShRUIOp>(a, i32(b));
}

Value GpuEmitter::address(Value pointer) {
  return LLVM::PtrToIntOp::create(*this, getI32Type(), pointer);
}

Value GpuEmitter::shuffle(Value x, Value fromLane) {
  return NVVM::ShflOp::create(*this, x.getType(), i32(-1), x, fromLane, i32(31),
                              NVVM::ShflKind::idx, UnitAttr());
}

Value GpuEmitter::anyLane(Value condition) {
  return NVVM::VoteSyncOp::create(*this, getI1Type(), i32(-1), condition,
                                  NVVM::VoteSyncKind::any);
}

Value GpuEmitter::multiprocessors() {
  return assembly("mov.u32 $0, %nsmid;", "=r", getI32Type(), {})[0];
}

void GpuEmitter::warpSync() {
  assembly("bar.warp.sync -1;", "~{memory}", {}, {});
}

void GpuEmitter::namedBarrier(Value id, int64_t count) {
  assembly("bar.sync $0, $1;", "r,n,~{memory}", {}, {id, i32(count)});
}

void GpuEmitter::setRegisters(int64_t count, int64_t atLaunch) {
  if (count == atLaunch)
    return;
  std::string text = "setmaxnreg.";
  text += count > atLaunch ? "inc" : "dec";
  assembly(text + ".sync.aligned.u32 " + std::to_string(count) + ";", "", {},
           {});
}

//===-- mbarriers
//----------------------------------------------------------===//

void GpuEmitter::initBarrier(Value barrier, Value arrivals) {
  assembly("mbarrier.init.shared.b64 [$0], $1;",
           getConstantIntValue(arrivals) ? "r,n,~{memory}" : "r,r,~{memory}",
           {}, {barrier, arrivals});
}

void GpuEmitter::arrive(Value barrier) {
  assembly("mbarrier.arrive.shared.b64 _, [$0];", "r,~{memory}", {}, barrier);
}

void GpuEmitter::arriveAfterCopies(Value barrier) {
  assembly("cp.async.mbarrier.arrive.noinc.shared.b64 [$0];", "r,~{memory}", {},
           barrier);
}

void GpuEmitter::waitBarrier(Value barrier, Value parity, bool cluster) {
  std::string kind = cluster ? "acquire.cluster.shared::cta" : "shared";
  assembly("{ .reg .pred done; again: mbarrier.try_wait.parity." + kind +
               ".b64 done, [$0], $1; @!done bra again; }",
           "r,r,~{memory}", {}, {barrier, parity});
}

void GpuEmitter::publishBarriers() {
  assembly("fence.mbarrier_init.release.cluster;", "~{memory}", {}, {});
}

void GpuEmitter::proxyFence() {
  assembly("fence.proxy.async.shared::cta;", "~{memory}", {}, {});
}

void GpuEmitter::awaitLaunch() {
  assembly("griddepcontrol.wait;", "~{memory}", {}, {});
}

void GpuEmitter::startNext() {
  assembly("griddepcontrol.launch_dependents;", "~{memory}", {}, {});
}

//===-- Bulk copies
//--------------------------------------------------------===//

void GpuEmitter::arriveExpecting(Value barrier, int64_t bytes) {
  assembly("mbarrier.arrive.expect_tx.shared.b64 _, [$0], $1;", "r,n,~{memory}",
           {}, {barrier, i32(bytes)});
}

void GpuEmitter::bulkLoad(Value shared, Value global, int64_t bytes,
                          Value barrier) {
  assembly("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
           "[$0], [$1], $2, [$3];",
           "r,l,n,r,~{memory}", {}, {shared, global, i32(bytes), barrier});
}

void GpuEmitter::copyFetching(Value shared, Value global, Value count) {
  assembly("cp.async.cg.shared.global.L2::256B [$0], [$1], 16, $2;",
           "r,l,r,~{memory}", {}, {address(shared), global, count});
}

void GpuEmitter::prefetch(Value global, int64_t bytes) {
  assembly("cp.async.bulk.prefetch.L2.global [$0], $1;", "l,n", {},
           {global, i32(bytes)});
}

void GpuEmitter::prefetchLines(Value pointer, int64_t bytes) {
  constexpr int64_t line = 128;
  for (int64_t first = 0; first < bytes; first += line)
    assembly("prefetch.global.L2 [$0 + " + std::to_string(first) + "];", "l",
             {}, pointer);
}

void GpuEmitter::bulkStore(Value global, Value shared, int64_t bytes) {
  assembly("cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2; "
           "cp.async.bulk.commit_group;",
           "l,r,n,~{memory}", {}, {global, shared, i32(bytes)});
}

void GpuEmitter::waitBulkStores(int64_t left, bool read) {
  assembly("cp.async.bulk.wait_group" + std::string(read ? ".read " : " ") +
               std::to_string(left) + ";",
           "~{memory}", {}, {});
}

//===-- Clusters
//-----------------------------------------------------------===//

Value GpuEmitter::inBlock(Value address, Value rank) {
  return assembly("mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r",
                  getI32Type(), {address, rank})[0];
}

void GpuEmitter::arriveInCluster(Value clusterBarrier) {
  assembly("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [$0];",
           "r,~{memory}", {}, clusterBarrier);
}

void GpuEmitter::storeInCluster(Value words, Value clusterTo,
                                int64_t constant) {
  Values operands = {clusterTo};
  for (int64_t i = 0; i < 4; ++i)
    operands.push_back(LLVM::ExtractElementOp::create(*this, words, i32(i)));
  assembly("st.shared::cluster.v4.b32 [$0 + " + std::to_string(constant) +
               "], {$1, $2, $3, $4};",
           "r,r,r,r,r,~{memory}", {}, operands);
}

void GpuEmitter::clusterProxyFence() {
  assembly("fence.proxy.async.shared::cluster;", "~{memory}", {}, {});
}

void GpuEmitter::bulkSend(Value clusterTo, Value shared, int64_t bytes,
                          Value clusterBarrier) {
  assembly("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::"
           "bytes [$0], [$1], $2, [$3];",
           "r,r,n,r,~{memory}", {},
           {clusterTo, shared, i32(bytes), clusterBarrier});
}

void GpuEmitter::clusterBarrier() {
  assembly("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;",
           "~{memory}", {}, {});
}

//===-- Matrices
//-----------------------------------------------------------===//

void GpuEmitter::stmatrix(Value pointer, ValueRange words, bool transposed,
                          int64_t constant) {
  std::string text = "stmatrix.sync.aligned.m8n8.x";
  text += std::to_string(words.size());
  text += transposed ? ".trans.shared.b16" : ".shared.b16";
  text += " [$0 + " + std::to_string(constant) + "], {$1";
  std::string constraints = "r,r";
  for (size_t i = 2; i <= words.size(); ++i) {
    text += ", $" + std::to_string(i);
    constraints += ",r";
  }
  Values operands = {address(pointer)};
  operands.append(words.begin(), words.end());
  assembly(text + "};", constraints + ",~{memory}", {}, operands);
}

/// Operands of an assembly's text, from number `first` on.
static std::string list(size_t first, size_t count) {
  std::string text;
  for (size_t i = first; i < first + count; ++i)
    text += (i == first ? "$" : ", $") + std::to_string(i);
  return "{" + text + "}";
}

void GpuEmitter::storeIf(Value condition, ValueRange elements, Value pointer,
                         int64_t constant) {
  Value flag = arith::ExtUIOp::create(*this, getI32Type(), condition);
  Values operands = {address(pointer)};
  operands.append(elements.begin(), elements.end());
  operands.push_back(flag);
  std::string count = std::to_string(elements.size());
  std::string text = "{ .reg .pred q; setp.ne.b32 q, $";
  text += std::to_string(elements.size() + 1);
  text += ", 0; @q st.shared.v" + count + ".f32 [$0 + ";
  text += std::to_string(constant) + "], " + list(1, elements.size()) + "; }";
  std::string constraints = "r";
  for (size_t i = 0; i < elements.size(); ++i)
    constraints += ",f";
  assembly(text, constraints + ",r,~{memory}", {}, operands);
}

Value GpuEmitter::mulPairs(Value a, Value b, Type element) {
  auto pair = VectorType::get({2}, element);
  Value product =
      LLVM::FMulOp::create(*this, LLVM::BitcastOp::create(*this, pair, a),
                           LLVM::BitcastOp::create(*this, pair, b));
  return LLVM::BitcastOp::create(*this, getI32Type(), product);
}

/// PTX ISA, "Matrix descriptor": fields in units of 16 bytes; bit 62 says
/// 128-byte swizzle.
Value GpuEmitter::matrixDescriptor(Value address, int64_t leading,
                                   int64_t strided) {
  Value low = arith::ExtUIOp::create(*this, getI64Type(),
                                     shiftRight(bitAnd(address, 0x3ffff), 4));
  int64_t fields =
      (leading >> 4) << 16 | (strided >> 4) << 32 | int64_t(1) << 62;
  return arith::OrIOp::create(*this, low, i64(fields));
}

/// A product of `a`, registers or the descriptor of a matrix, and `right`;
/// `flags` follow the signs.
void GpuEmitter::issueProduct(MutableArrayRef<Value> sums, ValueRange a,
                              Value right, bool fresh, StringRef flags) {
  size_t count = sums.size(), first = fresh ? count : 2 * count;
  std::string constraints, ties;
  for (size_t i = 0; i < count; ++i) {
    constraints += i ? ",=f" : "=f";
    ties += "," + std::to_string(i);
  }
  if (!fresh)
    constraints += ties;
  bool isMatrix = a.size() == 1;
  constraints += isMatrix ? ",l,l" : ",r,r,r,r,l";
  std::string left =
      isMatrix ? "$" + std::to_string(first) : list(first, a.size());
  std::string text =
      "{ .reg .pred p; setp.ne.b32 p, " + std::string(fresh ? "0" : "1") +
      ", 0; wgmma.mma_async.sync.aligned.m64n" + std::to_string(2 * count) +
      "k16.f32.bf16.bf16 " + list(0, count) + ", " + left + ", $" +
      std::to_string(first + a.size()) + ", p, 1, 1" + flags.str() + "; }";
  Values operands;
  if (!fresh)
    operands.append(sums.begin(), sums.end());
  operands.append(a.begin(), a.end());
  operands.push_back(right);
  SmallVector<Type> types(count, getF32Type());
  llvm::copy(assembly(text, constraints, types, operands), sums.begin());
}

void GpuEmitter::warpgroupProduct(MutableArrayRef<Value> sums, ValueRange a,
                                  Value descriptor, bool fresh,
                                  bool transposed) {
  issueProduct(sums, a, descriptor, fresh, transposed ? ", 1" : ", 0");
}

void GpuEmitter::warpgroupProduct(MutableArrayRef<Value> sums, Value left,
                                  Value right, bool fresh) {
  issueProduct(sums, left, right, fresh, ", 0, 0");
}

/// `text` as an instruction that reads `a` and may change `sums`.
void GpuEmitter::tied(StringRef text, MutableArrayRef<Value> sums,
                      ValueRange a) {
  std::string constraints, ties;
  for (size_t i = 0; i < sums.size(); ++i) {
    constraints += i ? ",=f" : "=f";
    ties += "," + std::to_string(i);
  }
  constraints += ties;
  for (size_t i = 0; i < a.size(); ++i)
    constraints += constraints.empty() ? "r" : ",r";
  constraints += constraints.empty() ? "~{memory}" : ",~{memory}";
  Values operands(sums.begin(), sums.end());
  operands.append(a.begin(), a.end());
  SmallVector<Type> types(sums.size(), getF32Type());
  Values results = assembly(text, constraints, types, operands);
  llvm::copy(results, sums.begin());
}

void GpuEmitter::warpgroupFence(MutableArrayRef<Value> sums, ValueRange a) {
  tied("wgmma.fence.sync.aligned;", sums, a);
}

void GpuEmitter::warpgroupCommit() {
  assembly("wgmma.commit_group.sync.aligned;", "~{memory}", {}, {});
}

void GpuEmitter::warpgroupWait(MutableArrayRef<Value> sums, ValueRange a,
                               int64_t left) {
  tied("wgmma.wait_group.sync.aligned " + std::to_string(left) + ";", sums, a);
}

} // namespace kdac
