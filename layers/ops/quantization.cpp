#include "layers/ops/quantization.h"

#include "engine/base/error.h"

namespace pipit::internal {

void check_quantization(const Quantization& q, std::string_view layer, std::string_view operand) {
  if (!q.quantized()) return;
  if (q.dtype != DType::i8 && q.dtype != DType::u8)
    fail("{}: {} is quantized to {}; expected i8 or u8", layer, operand, dtype_name(q.dtype));
  if (!(q.scale > 0) || !std::isfinite(q.scale))
    fail("{}: the scale of {} is {}; expected a positive number", layer, operand, q.scale);
  const int low = q.dtype == DType::i8 ? -128 : 0;
  if (q.zero_point < low || q.zero_point > low + 255)
    fail("{}: the zero point of {} is {}, outside {}", layer, operand, q.zero_point, dtype_name(q.dtype));
}

bool exact_multiplier(float x_scale, float weight_scale, const Quantization& y) {
  constexpr double kMaxSum = 2147483648.0;
  const double y_scale = y.quantized() ? y.scale : 1.0;
  const float product = x_scale * weight_scale;
  if (std::isnormal(product) && std::isnormal(product / static_cast<float>(y_scale))) return true;
  return y.quantized() && static_cast<double>(x_scale) * weight_scale / y_scale * kMaxSum < 0.5;
}

}  // namespace pipit::internal
