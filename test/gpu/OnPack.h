// Promises: the frame of a program that tests a pack's variants. Its arguments
// are the pack and where to run it: "host", the emulator's library, or nothing
// for a GPU. Exits with 0 if the test passed, 1 if not, 2 if it could not run.
#ifndef KDAC_TEST_GPU_ONPACK_H
#define KDAC_TEST_GPU_ONPACK_H

#include "../../lib/SelfTest/Executor.h"

#include <cstdio>
#include <cstring>
#include <functional>
#include <set>

namespace kdac::selftest {

/// True if the variants passed.
using PackTest = std::function<StatusOr<bool>(PackReader &, Executor &)>;

inline int testOnPack(int argc, char **argv, const PackTest &test) {
  auto cannotRun = [](const Status &status) {
    std::printf("%s\n", status.message().c_str());
    return 2;
  };
  Settings settings;
  settings.host = argc > 2 && std::strcmp(argv[2], "host") == 0;
  settings.emulated = argc > 2 && !settings.host;
  if (settings.emulated)
    settings.driver = argv[2];
  StatusOr<PackReader> pack = PackReader::open(argc > 1 ? argv[1] : "");
  if (!pack.ok())
    return cannotRun(pack.status());
  auto executor = makeExecutor(settings);
  if (!executor.ok())
    return cannotRun(executor.status());
  StatusOr<bool> passed = test(*pack, **executor);
  if (!passed.ok())
    return cannotRun(passed.status());
  std::printf(*passed ? "passed\n" : "failed\n");
  return *passed ? 0 : 1;
}

/// True if the variant passed under one schedule.
using ScheduleTest = std::function<StatusOr<bool>(Kernel &, const PackVariant &,
                                                  const std::string &)>;

/// The same of every variant under each of its schedules.
inline int testSchedulesOnPack(int argc, char **argv,
                               const ScheduleTest &test) {
  auto all = [&](PackReader &pack, Executor &executor) -> StatusOr<bool> {
    bool passed = true;
    for (const PackVariant &variant : pack.manifest().variants) {
      auto kernel = executor.load(pack, variant);
      if (!kernel.ok())
        return kernel.status();
      std::set<std::string> schedules;
      for (const Launch &launch : variant.launches)
        schedules.insert(launch.when);
      for (const std::string &schedule : schedules) {
        (*kernel)->useSchedule(schedule);
        StatusOr<bool> one = test(**kernel, variant, schedule);
        if (!one.ok())
          return one;
        passed &= *one;
      }
    }
    return passed;
  };
  return testOnPack(argc, argv, all);
}

} // namespace kdac::selftest

#endif // KDAC_TEST_GPU_ONPACK_H
