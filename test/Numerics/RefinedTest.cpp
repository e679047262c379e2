// What the tolerance table takes for granted of a variant's schedule is what
// dplr-select-schedule chooses.
#include "kdac/Dialect/Tile.h"
#include "kdac/Passes.h"
#include "kdac/Pipeline/Pipeline.h"
#include "kdac/Reference/Tolerance.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "gtest/gtest.h"

using namespace kdac;
using namespace mlir;

namespace {

/// Variants that differ in what roles as warps depend on.
std::vector<Variant> variants(const char *target) {
  std::vector<Variant> list;
  for (const Recurrence &row : recurrences())
    for (Gate gate :
         {Gate::None, Gate::Identity, Gate::Softplus, Gate::Bounded})
      for (Beta beta : {Beta::None, Beta::Sigmoid})
        for (bool l2norm : {false, true})
          for (DType gateDtype : {DType::F32, DType::BF16})
            for (DType dtype : {DType::BF16, DType::F16})
              for (int64_t dim : {64, 96}) {
                Variant v;
                v.recurrence = row.name;
                v.gate = gate;
                v.beta = beta;
                v.l2norm = l2norm;
                v.gateDtype = gateDtype;
                v.dtype = dtype;
                v.keyDim = v.valueDim = dim;
                v.target = target;
                v.precision = Precision::High;
                if (row.erase != Erase::Pair && !resolve(v))
                  list.push_back(v);
              }
  return list;
}

tile::ScheduleAttr scheduleOf(MLIRContext &context, const Variant &variant) {
  OwningOpRef<ModuleOp> module = buildDplrModule(context, variant);
  PassManager pm(&context);
  DplrSelectSchedulePassOptions options;
  options.target = variant.target;
  pm.addPass(createDplrSelectSchedulePass(options));
  if (failed(pm.run(*module)))
    return {};
  func::FuncOp kernel = *module->getOps<func::FuncOp>().begin();
  return kernel->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr);
}

} // namespace

TEST(Refined, IsWhatTheTableTakesForGranted) {
  DialectRegistry registry;
  registerKdacDialects(registry);
  MLIRContext context(registry);
  int64_t refined = 0, others = 0;
  for (const char *target : {"sm_90a", "sm_80"})
    for (const Variant &variant : variants(target)) {
      tile::ScheduleAttr schedule = scheduleOf(context, variant);
      ASSERT_TRUE(schedule) << variantName(variant);
      EXPECT_EQ(schedule.getRefined(), reference::hasRefinedSchedule(variant))
          << variantName(variant);
      bool isTF32 = isa<FloatTF32Type>(schedule.getOperand());
      EXPECT_EQ(schedule.getRefined(), !isTF32) << variantName(variant);
      ++(schedule.getRefined() ? refined : others);
    }
  EXPECT_GT(refined, 10);
  EXPECT_GT(others, 10);
}
