// kdac check: one kernel on this CPU against the oracle.
#include "Commands.h"

namespace kdac {

int runCheck(const Options &options) {
  return refuse("check needs the host exit");
}

} // namespace kdac
