#include "kdac/Model/Forward.h"

#include <algorithm>

namespace kdac::model {

namespace {

/// One call: every buffer cut to the batch's rows.
struct Pass {
  const ModelConfig &config;
  Ops &ops;
  Session &session;
  const BatchView &batch;
  Activations a;

  void run(const Weights &weights, const CallData &call);
  void layers(const Weights &weights);
  void mixTokens(const LayerWeights &w, int64_t layer, Rows y);
  void kda(const KdaWeights &w, const KdaCache &cache, Rows x, Rows y);
  void mla(const MlaWeights &w, const MlaCache &cache, Rows x, Rows y);
  void mlp(const MlpWeights &w, Rows x, Rows y);
  void moe(const MoeWeights &w, Rows x, Rows y);
  void latentMoe(const MoeWeights &w, Rows x, Rows y);
  void feedForward(const LayerWeights &w, int64_t layer, Rows y);
  void residualLayer(const LayerWeights &w, int64_t layer);
  void plainLayer(const LayerWeights &w, int64_t layer);
};

Activations cut(Activations a, int64_t tokens) {
  for (Rows *rows :
       {&a.stream, &a.normed,   &a.branch,    &a.mixed,    &a.q,
        &a.k,      &a.v,        &a.low,       &a.gateLow,  &a.decay,
        &a.z,      &a.o,        &a.beta,      &a.queryLow, &a.query,
        &a.latent, &a.values,   &a.valueGate, &a.gate,     &a.up,
        &a.router, &a.expertIn, &a.expertOut})
    *rows = rows->first(tokens);
  return a;
}

void Pass::kda(const KdaWeights &w, const KdaCache &cache, Rows x, Rows y) {
  Product q = {x, &w.q, a.q}, k = {x, &w.k, a.k}, v = {x, &w.v, a.v};
  Product decayLow = {x, &w.fA, a.low}, beta = {x, &w.beta, a.beta};
  Product decay = {a.low, &w.fB, a.decay};
  if (w.g) {
    ops.products({q, k, v, decayLow, beta, {x, &w.g, a.z}});
    ops.products({decay});
  } else {
    ops.products({q, k, v, decayLow, beta, {x, &w.gA, a.gateLow}});
    ops.products({decay, {a.gateLow, &w.gB, a.z}});
  }
  ops.kdaLayer(batch, w, a.q, a.k, a.v, a.decay, a.beta, a.z, cache, a.o);
  ops.matmul(a.o, w.o, y);
}

void Pass::mla(const MlaWeights &w, const MlaCache &cache, Rows x, Rows y) {
  Product latent = {x, &w.kvA, a.latent};
  if (w.q) {
    ops.products({{x, &w.q, a.query}, latent});
  } else {
    ops.products({{x, &w.qA, a.queryLow}, latent});
    ops.rmsNorm(a.queryLow, w.qNorm, config.latentNormEps, a.queryLow);
    ops.matmul(a.queryLow, w.qB, a.query);
  }
  ops.storeLatent(batch, a.latent, w.kvNorm, config.latentNormEps, cache);
  ops.attend(batch, a.query, w.kvB, cache, a.values);
  if (w.g) {
    ops.matmul(x, w.g, a.valueGate);
    ops.sigmoidGate(a.valueGate, a.values);
  }
  ops.matmul(a.values, w.o, y);
}

void Pass::mlp(const MlpWeights &w, Rows x, Rows y) {
  Rows gate = a.gate.columns(w.gate.out), up = a.up.columns(w.up.out);
  ops.products({{x, &w.gate, gate}, {x, &w.up, up}});
  ops.activate(gate, up, gate);
  ops.matmul(gate, w.down, y);
}

/// Experts on a narrow copy of x; the norm is behind the weighted sum.
void Pass::latentMoe(const MoeWeights &w, Rows x, Rows y) {
  ops.matmul(x, w.toLatent, a.expertIn);
  ops.experts(a.expertIn, a.routing, w, a.expertOut);
  if (!w.latentNorm.empty())
    ops.rmsNorm(a.expertOut, w.latentNorm, config.normEps, a.expertOut);
  ops.matmul(a.expertOut, w.fromLatent, y);
}

void Pass::moe(const MoeWeights &w, Rows x, Rows y) {
  ops.matmul(x, w.router, a.router);
  ops.route(a.router, w.bias, a.routing);
  if (w.toLatent)
    latentMoe(w, x, y);
  else if (ops.allExperts(x, a.routing, w, y))
    return;
  else
    ops.experts(x, a.routing, w, y);
  if (w.shared.gate) {
    mlp(w.shared, x, a.mixed);
    ops.add(a.mixed, y);
  }
}

/// Both on a.normed.
void Pass::mixTokens(const LayerWeights &w, int64_t layer, Rows y) {
  if (config.mixers[static_cast<size_t>(layer)] == Mixer::Kda)
    kda(w.kda, session.kda(layer), a.normed, y);
  else
    mla(w.mla, session.mla(layer), a.normed, y);
}

void Pass::feedForward(const LayerWeights &w, int64_t layer, Rows y) {
  if (config.isMoe(layer))
    moe(w.moe, a.normed, y);
  else
    mlp(w.mlp, a.normed, y);
}

/// The branch of the layer before is added here.
void Pass::plainLayer(const LayerWeights &w, int64_t layer) {
  if (layer == 0)
    ops.rmsNorm(a.stream, w.inputNorm, config.normEps, a.normed);
  else
    ops.addNorm(a.branch, a.stream, w.inputNorm, config.normEps, a.normed);
  mixTokens(w, layer, a.branch);
  ops.addNorm(a.branch, a.stream, w.postNorm, config.normEps, a.normed);
  feedForward(w, layer, a.branch);
}

/// hybrid-model.md 2.2: `stream` is the residual inside a block of layers, the
/// bank has the streams that past blocks began with.
void Pass::residualLayer(const LayerWeights &w, int64_t layer) {
  int64_t block = config.residualBlock;
  int64_t entries = (layer + block - 1) / block;
  bool isFirst = layer % block == 0;
  Rows x = a.stream;
  if (entries > 0) {
    ops.mix(a.stream, a.bankPitch, entries, w.attentionMix, config.normEps,
            a.mixed);
    x = a.mixed;
  }
  ops.rmsNorm(x, w.inputNorm, config.normEps, a.normed);
  mixTokens(w, layer, a.branch);
  if (isFirst) {
    ops.copy(a.stream, a.bank(entries++));
    ops.copy(a.branch, a.stream);
  } else {
    ops.add(a.branch, a.stream);
  }
  ops.mix(a.stream, a.bankPitch, entries, w.mlpMix, config.normEps, a.mixed);
  ops.rmsNorm(a.mixed, w.postNorm, config.normEps, a.normed);
  feedForward(w, layer, a.branch);
  ops.add(a.branch, a.stream);
}

void Pass::layers(const Weights &weights) {
  for (int64_t i = 0; i < config.layers(); ++i)
    if (config.residualBlock > 0)
      residualLayer(weights.layers[static_cast<size_t>(i)], i);
    else
      plainLayer(weights.layers[static_cast<size_t>(i)], i);
  if (config.residualBlock > 0)
    ops.mix(a.stream, a.bankPitch, config.residualEntries(), weights.outputMix,
            config.normEps, a.stream);
  else
    ops.add(a.branch, a.stream);
}

void Pass::run(const Weights &weights, const CallData &call) {
  ops.embed(call.tokens, weights.embedding, a.stream);
  layers(weights);
  Rows chosen = a.chosen.first(call.outputCount);
  Rows logits = a.logits.first(call.outputCount);
  ops.gather(a.stream, call.outputs, chosen);
  ops.rmsNorm(chosen, weights.norm, config.normEps, chosen);
  ops.matmul(chosen, weights.head, logits);
  ops.argmax(logits, a.best);
}

Status refuse(const std::string &message) {
  return Status(ErrorCode::InvalidArgument, message);
}

Status checkSizes(const ModelConfig &config, const Session &session,
                  const Batch &batch) {
  auto tokens = static_cast<int64_t>(batch.tokens.size());
  if (tokens > session.limits().batchTokens)
    return refuse("a batch of " + std::to_string(tokens) +
                  " tokens is larger than the session's " +
                  std::to_string(session.limits().batchTokens));
  if (static_cast<int64_t>(batch.outputs.size()) > session.limits().outputs)
    return refuse("logits of " + std::to_string(batch.outputs.size()) +
                  " rows are more than the session's " +
                  std::to_string(session.limits().outputs));
  for (int32_t token : batch.tokens)
    if (token < 0 || token >= config.vocab)
      return refuse("token " + std::to_string(token) +
                    " is not in the vocabulary of " +
                    std::to_string(config.vocab));
  for (int32_t row : batch.outputs)
    if (row < 0 || row >= tokens)
      return refuse("there is no row " + std::to_string(row) +
                    " in a batch of " + std::to_string(tokens) + " tokens");
  return Status::success();
}

/// Fills in what the session knows about the pieces, and reserves their pages.
Status preparePieces(Session &session, const Batch &batch,
                     std::vector<Piece> &pieces) {
  std::vector<bool> seen(static_cast<size_t>(session.limits().slots), false);
  int64_t begin = 0;
  for (Piece &piece : pieces) {
    if (!session.isOpen(piece.slot))
      return refuse("slot " + std::to_string(piece.slot) + " is not open");
    if (seen[static_cast<size_t>(piece.slot)])
      return refuse("slot " + std::to_string(piece.slot) +
                    " has two pieces of the batch");
    seen[static_cast<size_t>(piece.slot)] = true;
    if (piece.count < 1)
      return refuse("the piece of slot " + std::to_string(piece.slot) +
                    " has " + std::to_string(piece.count) + " tokens");
    piece.past = session.length(piece.slot);
    piece.begin = begin;
    begin += piece.count;
    if (Status s = session.reserve(piece.slot, piece.count); !s.ok())
      return s;
  }
  if (begin != static_cast<int64_t>(batch.tokens.size()))
    return refuse("pieces have " + std::to_string(begin) +
                  " tokens, but the batch has " +
                  std::to_string(batch.tokens.size()));
  return Status::success();
}

} // namespace

void Batch::add(int32_t slot, const int32_t *begin, int64_t count,
                bool wantsLogits) {
  tokens.insert(tokens.end(), begin, begin + count);
  pieces.push_back({slot, 0, 0, count});
  if (wantsLogits)
    outputs.push_back(static_cast<int32_t>(tokens.size()) - 1);
}

StatusOr<Rows> forward(const ModelConfig &config, const Weights &weights,
                       Ops &ops, Session &session, const Batch &batch) {
  if (Status s = checkSizes(config, session, batch); !s.ok())
    return s;
  std::vector<Piece> pieces = batch.pieces;
  if (Status s = preparePieces(session, batch, pieces); !s.ok())
    return s;
  std::vector<int32_t> slots, sources, offsets = {0};
  bool isDecode = true;
  int64_t longest = 0, keys = 0;
  for (const Piece &piece : pieces) {
    slots.push_back(piece.slot);
    sources.push_back(piece.past > 0 ? piece.slot : -1);
    offsets.push_back(static_cast<int32_t>(piece.begin + piece.count));
    isDecode &= piece.count == 1;
    longest = std::max(longest, piece.count);
    keys = std::max(keys, piece.past + piece.count);
  }
  auto count = static_cast<int64_t>(batch.tokens.size());
  BatchView view = {pieces.data(),
                    static_cast<int64_t>(pieces.size()),
                    count,
                    slots.data(),
                    sources.data(),
                    offsets.data(),
                    isDecode,
                    longest,
                    keys};
  auto rows = static_cast<int64_t>(batch.outputs.size());
  CallData call = {view, batch.tokens.data(), batch.outputs.data(), rows,
                   &session.activations()};
  if (Status s = session.publish(); !s.ok())
    return s;
  ops.clear();
  if (ops.begin(call))
    Pass{config, ops, session, call.batch, cut(session.activations(), count)}
        .run(weights, call);
  ops.end();
  if (!ops.status().ok())
    return ops.status();
  for (const Piece &piece : pieces)
    session.advance(piece.slot, piece.count);
  return session.activations().logits.first(rows);
}

} // namespace kdac::model
