// Lanes of a warp that have parted: which of them run, and when they meet.
#include "Machine.h"

#include <algorithm>

namespace kdac::ptx {

/// Whether the group can run now; one that waited then goes on.
bool Cta::ready(Warp &w, Group &g) {
  switch (g.wait) {
  case Wait::None:
    return true;
  case Wait::Barrier:
    if (barriers[g.object].generation == g.generation)
      return false;
    ++g.pc;
    break;
  case Wait::Mbarrier: {
    auto it = mbarriers.find(g.object);
    if (it != mbarriers.end() && it->second.phase == g.generation)
      return false;
    break;
  }
  case Wait::Cluster:
    if (w.clusterArrived & g.mask)
      return false;
    clusterPassed = cluster.opened;
    ++g.pc;
    break;
  case Wait::Converge:
    if (g.need & w.live & ~g.mask)
      return false;
    break;
  }
  g.wait = Wait::None;
  return true;
}

/// Makes the group that is furthest behind current; false: none can run.
bool Cta::pick(Warp &w) {
  for (int round = 0; round < 2; ++round) {
    size_t best = w.groups.size();
    bool any = false;
    for (size_t i = 0; i < w.groups.size(); ++i) {
      Group &g = w.groups[i];
      if (!ready(w, g))
        continue;
      any = true;
      if (!g.yielded && (best == w.groups.size() || g.pc < w.groups[best].pc))
        best = i;
    }
    if (best != w.groups.size()) {
      w.current = best;
      w.pc = w.groups[best].pc;
      w.mask = w.groups[best].mask;
      return true;
    }
    if (!any)
      return false;
    for (Group &g : w.groups)
      g.yielded = false;
  }
  return false;
}

/// Groups that met become one.
static void merge(Warp &w) {
  for (size_t i = 0; i < w.groups.size(); ++i) {
    Group &g = w.groups[i];
    if (i == w.current || g.pc != w.pc ||
        (g.wait != Wait::None && g.wait != Wait::Converge))
      continue;
    w.group().mask |= g.mask;
    w.mask |= g.mask;
    w.groups.erase(w.groups.begin() + static_cast<long>(i));
    if (i < w.current)
      --w.current;
    --i;
  }
}

/// After a step of a warp whose lanes are apart.
void Cta::settle(Warp &w) {
  merge(w);
  w.group().pc = w.pc;
  if (w.groups.size() == 1)
    return;
  // A loop that waits for lanes further on must not starve them.
  if (++w.group().streak > 2000) {
    w.group().streak = 0;
    w.group().yielded = true;
  }
  bool behind = w.group().yielded;
  for (Group &g : w.groups)
    behind |= &g != &w.group() && !g.yielded && g.pc < w.pc && ready(w, g);
  if (behind)
    pick(w);
  merge(w);
}

/// After lanes parted or left. False: nothing of the warp can run.
void Cta::regroup(Warp &w) {
  w.regroup = false;
  w.groups.erase(std::remove_if(w.groups.begin(), w.groups.end(),
                                [](const Group &g) { return g.mask == 0; }),
                 w.groups.end());
  w.current = 0;
}

} // namespace kdac::ptx
