// Promises: the inner loops of host operations on contiguous f32 vectors, for
// the widest vectors of this processor. Does not: use threads.
#ifndef KDAC_LIB_MODEL_LANES_H
#define KDAC_LIB_MODEL_LANES_H

#include "kdac/Model/Weights.h"

namespace kdac::model {

/// Σ x_i y_i, in 64 partial sums.
float dot(const float *x, const float *y, int64_t n);
/// y += a x.
void axpy(float a, const float *x, float *y, int64_t n);
/// Row `row` of the matrix times x: reads the weight as it is stored.
float rowDot(const Matrix &w, int64_t row, const float *x);
/// Rows [begin, begin + count) of the matrix as f32, contiguous.
void widenRows(const Matrix &w, int64_t begin, int64_t count, float *to);

float sigmoid(float x);

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_LANES_H
