#include "BenchForm.h"
#include "BenchAttention.h"
#include "BenchMatmul.h"
#include "BenchPrompt.h"
#include "BenchRecurrence.h"
#include "BenchRows.h"

#include "kdac/Reference/RowOps.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace kdac::selftest {

std::unique_ptr<BenchForm> BenchForm::make(const Variant &v,
                                           const BenchShape &shape) {
  switch (v.form) {
  case Form::Chunk:
  case Form::Step:
    return std::make_unique<BenchRecurrence>(v, shape);
  case Form::Rows:
    return std::make_unique<BenchRows>(v, shape);
  case Form::Attention:
    return std::make_unique<BenchAttention>(v, shape);
  case Form::Prompt:
    return std::make_unique<BenchPrompt>(v, shape);
  case Form::Matmul:
    return std::make_unique<BenchMatmul>(v, shape);
  }
  return nullptr;
}

float BenchForm::scale(const std::string &name) const {
  return reference::usualScale(name);
}

int64_t BenchForm::product(const std::string &dimensions) const {
  int64_t product = 1;
  for (const std::string &one : dimensionsOf(dimensions))
    product *= std::isdigit(one[0]) ? std::stoll(one) : size(one);
  return product;
}

std::vector<std::string> dimensionsOf(const std::string &shape) {
  std::vector<std::string> all;
  for (size_t begin = 1; begin < shape.size();) {
    size_t end = std::min(shape.find_first_of(",]", begin), shape.size());
    all.push_back(shape.substr(begin, end - begin));
    begin = end + 2; // ", "
  }
  return all;
}

std::vector<int64_t> countFrom(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

} // namespace kdac::selftest
