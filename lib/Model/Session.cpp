#include "AlignedBuffer.h"
#include "SessionState.h"

#include <algorithm>

namespace kdac::model {

namespace {

/// Memory of one region, handed out at multiples of 256 bytes.
class Carver {
public:
  explicit Carver(char *base) : base(base) {}

  char *take(int64_t bytes) {
    int64_t at = used;
    used += (bytes + 255) / 256 * 256;
    return base ? base + at : nullptr;
  }
  Rows rows(int64_t count, int64_t width, Element type) {
    int64_t stride = paddedWidth(width);
    return {take(count * stride * bytesOf(type)), count, width, stride, type};
  }
  int64_t bytes() const { return used; }

private:
  char *base;
  int64_t used = 0;
};

void layOutActivations(const ModelConfig &c, const SessionLimits &limits,
                       Carver &memory, Activations &a) {
  int64_t tokens = limits.batchTokens;
  auto rows = [&](int64_t width, int64_t tensors = 1) {
    return memory.rows(tensors * tokens, width, limits.element);
  };
  a.stream = rows(c.hidden, 1 + c.residualEntries()).first(tokens);
  a.bankPitch = tokens * a.stream.stride;
  a.normed = rows(c.hidden);
  a.branch = rows(c.hidden);
  a.mixed = rows(c.hidden);
  for (Rows *wide : {&a.q, &a.k, &a.v, &a.decay, &a.z, &a.o})
    *wide = rows(c.kdaWidth());
  a.low = rows(c.kdaDim);
  a.gateLow = rows(c.kdaDim);
  a.beta = rows(c.kdaHeads);
  a.queryLow = rows(c.queryRank);
  a.query = rows(c.heads * c.queryDim());
  a.latent = rows(c.cacheDim());
  a.values = rows(c.heads * c.valueDim);
  a.valueGate = rows(c.heads * c.valueDim);
  int64_t widest = std::max(c.denseWidth, c.sharedExperts * c.expertWidth);
  a.gate = rows(widest);
  a.up = rows(widest);
  a.router = memory.rows(tokens, c.experts, Element::F32);
  a.expertIn = rows(c.expertInput);
  a.expertOut = rows(c.expertInput);
  a.chosen = memory.rows(limits.outputs, c.hidden, limits.element);
  a.logits = memory.rows(limits.outputs, c.vocab, Element::F32);
  int64_t choices = tokens * c.topK * 4;
  a.routing.expert = reinterpret_cast<int32_t *>(memory.take(choices));
  a.routing.weight = reinterpret_cast<float *>(memory.take(choices));
  a.routing.topK = c.topK;
  a.best = reinterpret_cast<int32_t *>(memory.take(limits.outputs * 4));
}

} // namespace

Rows Activations::bank(int64_t i) const {
  Rows entry = stream;
  entry.data = static_cast<char *>(stream.data) +
               (i + 1) * bankPitch * bytesOf(stream.type);
  return entry;
}

Session::State::State(const ModelConfig &config, const SessionLimits &given,
                      std::shared_ptr<Memory> memory)
    : config(config), limits(given), memory(std::move(memory)) {
  if (limits.totalTokens == 0)
    limits.totalTokens = limits.slots * limits.contextTokens;
  if (limits.outputs == 0)
    limits.outputs = limits.slots;
  pagesPerSlot = pagesOf(limits.contextTokens);
  pages = std::min(limits.slots * pagesPerSlot,
                   pagesOf(limits.totalTokens) + limits.slots - 1);
}

int64_t Session::State::pagesOf(int64_t tokens) const {
  return (tokens + pageTokens - 1) / pageTokens;
}

Session::State::Sizes Session::State::layOut(char *cache, char *activation) {
  Carver caches(cache), work(activation);
  kda.assign(config.mixers.size(), KdaCache());
  latent.assign(config.mixers.size(), nullptr);
  for (size_t i = 0; i < config.mixers.size(); ++i) {
    if (config.mixers[i] == Mixer::Mla) {
      latent[i] = caches.take(pages * pageTokens * latentBytes());
      continue;
    }
    kda[i].slots = limits.slots;
    kda[i].state =
        reinterpret_cast<float *>(caches.take(limits.slots * stateBytes()));
    for (void **conv : {&kda[i].q, &kda[i].k, &kda[i].v})
      *conv = caches.take(limits.slots * convBytes());
  }
  cacheBase = cache;
  cacheBytes = caches.bytes();
  placedTable =
      reinterpret_cast<int32_t *>(caches.take(limits.slots * pagesPerSlot * 4));
  layOutActivations(config, limits, work, activations);
  return {caches.bytes(), work.bytes()};
}

Session::Session(std::unique_ptr<State> state) : state(std::move(state)) {}
Session::Session(Session &&) noexcept = default;
Session &Session::operator=(Session &&) noexcept = default;
Session::~Session() = default;

/// Limits that keep every size below far below 63 bits.
static Status checkLimits(const SessionLimits &limits) {
  constexpr int64_t most = int64_t(1) << 31;
  auto check = [&](const char *what, int64_t value, int64_t min, int64_t max) {
    return value >= min && value <= max
               ? Status::success()
               : Status(ErrorCode::InvalidArgument,
                        std::string(what) + " = " + std::to_string(value) +
                            " should be from " + std::to_string(min) + " to " +
                            std::to_string(max));
  };
  if (Status s = check("slots", limits.slots, 1, 1 << 16); !s.ok())
    return s;
  if (Status s = check("context", limits.contextTokens, 1, most); !s.ok())
    return s;
  if (Status s = check("total tokens", limits.totalTokens, 0, most << 16);
      !s.ok())
    return s;
  if (Status s = check("outputs", limits.outputs, 0, 1 << 20); !s.ok())
    return s;
  return check("batch tokens", limits.batchTokens, 1, 1 << 20);
}

StatusOr<int64_t> Session::plannedBytes(const ModelConfig &config,
                                        const SessionLimits &limits) {
  if (Status s = checkLimits(limits); !s.ok())
    return s;
  StatusOr<CachePlan> plan =
      planCaches(config, limits.contextTokens + pageTokens, limits.slots,
                 {bytesOf(limits.element), bytesOf(limits.element)});
  if (!plan.ok())
    return plan.status();
  State::Sizes sizes = State(config, limits).layOut(nullptr, nullptr);
  return sizes.caches + sizes.work;
}

StatusOr<Session> Session::create(const ModelConfig &config,
                                  const SessionLimits &limits,
                                  std::shared_ptr<Memory> memory) {
  StatusOr<int64_t> bytes = plannedBytes(config, limits);
  if (!bytes.ok())
    return bytes.status();
  StatusOr<int64_t> machine = memory->available();
  if (!machine.ok())
    return machine.status();
  if (*bytes > *machine)
    return Status(ErrorCode::InvalidArgument,
                  "caches and activations need " + std::to_string(*bytes) +
                      " bytes, but " + memory->place() + " has " +
                      std::to_string(*machine) +
                      "; take a shorter context, fewer slots or a smaller "
                      "batch");
  auto state = std::make_unique<State>(config, limits, memory);
  State::Sizes sizes = state->layOut(nullptr, nullptr);
  StatusOr<void *> caches = memory->allocate(sizes.caches, "caches");
  if (!caches.ok())
    return caches.status();
  StatusOr<void *> work = memory->allocate(sizes.work, "activations");
  if (!work.ok())
    return work.status();
  state->layOut(static_cast<char *>(*caches), static_cast<char *>(*work));
  state->table.assign(static_cast<size_t>(limits.slots * state->pagesPerSlot),
                      -1);
  for (int64_t page = state->pages - 1; page >= 0; --page)
    state->freePages.push_back(static_cast<int32_t>(page));
  state->isOpen.assign(static_cast<size_t>(limits.slots), false);
  state->lengths.assign(static_cast<size_t>(limits.slots), 0);
  state->branches.resize(static_cast<size_t>(limits.slots));
  return Session(std::move(state));
}

const SessionLimits &Session::limits() const { return state->limits; }
Memory &Session::memory() const { return *state->memory; }
Activations &Session::activations() { return state->activations; }

KdaCache Session::kda(int64_t layer) {
  return state->kda[static_cast<size_t>(layer)];
}

MlaCache Session::State::mlaCache(int64_t layer) const {
  return {latent[static_cast<size_t>(layer)],
          placedTable,
          pageTokens,
          pagesPerSlot,
          config.cacheDim(),
          limits.slots,
          pages};
}

MlaCache Session::mla(int64_t layer) { return state->mlaCache(layer); }

StatusOr<int32_t> Session::open() {
  auto free = std::find(state->isOpen.begin(), state->isOpen.end(), false);
  if (free == state->isOpen.end())
    return Status(ErrorCode::Unavailable,
                  "all " + std::to_string(state->limits.slots) +
                      " slots of the session are in use");
  *free = true;
  auto slot = static_cast<int32_t>(free - state->isOpen.begin());
  state->lengths[static_cast<size_t>(slot)] = 0;
  state->branches[static_cast<size_t>(slot)] = {{0, ++state->lastBranch}};
  return slot;
}

int64_t Session::State::branchAt(int32_t slot, int64_t tokens) const {
  const std::vector<Branch> &all = branches[static_cast<size_t>(slot)];
  size_t i = all.size() - 1;
  while (i > 0 && all[i].begin >= tokens)
    --i;
  return all[i].number;
}

void Session::State::releasePages(int32_t slot, int64_t kept) {
  for (int64_t i = kept; i < pagesPerSlot; ++i) {
    int32_t &page = table[static_cast<size_t>(slot * pagesPerSlot + i)];
    if (page >= 0)
      freePages.push_back(page);
    page = -1;
  }
  isPlaced = false;
}

void Session::close(int32_t slot) {
  if (!isOpen(slot))
    return;
  state->releasePages(slot, 0);
  state->isOpen[static_cast<size_t>(slot)] = false;
  state->lengths[static_cast<size_t>(slot)] = 0;
}

bool Session::isOpen(int64_t slot) const {
  return slot >= 0 && slot < state->limits.slots &&
         state->isOpen[static_cast<size_t>(slot)];
}

int64_t Session::length(int32_t slot) const {
  return state->lengths[static_cast<size_t>(slot)];
}

Status Session::reserve(int32_t slot, int64_t tokens) {
  int64_t length = this->length(slot) + tokens;
  if (length > state->limits.contextTokens)
    return Status(ErrorCode::InvalidArgument,
                  "a sequence of " + std::to_string(length) +
                      " tokens is longer than the session's context of " +
                      std::to_string(state->limits.contextTokens));
  for (int64_t i = 0; i < state->pagesOf(length); ++i) {
    int32_t &page =
        state->table[static_cast<size_t>(slot * state->pagesPerSlot + i)];
    if (page >= 0)
      continue;
    if (state->freePages.empty())
      return Status(ErrorCode::Unavailable,
                    "the session's " + std::to_string(state->pages) +
                        " pages of " + std::to_string(pageTokens) +
                        " tokens are all in use");
    page = state->freePages.back();
    state->freePages.pop_back();
    state->isPlaced = false;
  }
  return Status::success();
}

Status Session::publish() {
  if (state->isPlaced)
    return Status::success();
  Status status = state->memory->write(
      state->placedTable, state->table.data(),
      static_cast<int64_t>(state->table.size() * sizeof(int32_t)));
  state->isPlaced = status.ok();
  return status;
}

void Session::advance(int32_t slot, int64_t tokens) {
  state->lengths[static_cast<size_t>(slot)] += tokens;
}

} // namespace kdac::model
