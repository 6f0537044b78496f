#include "layers/cuda/quantized/qconv_follower.h"

#include "layers/common/layer_kernel.h"
#include "layers/ops/qunary.h"

namespace pipit::cuda {

bool fuses_table(const NodeSpec& spec, const NodeSpec& next) {
  const DType type = spec.outputs[0].dtype;
  return spec.fusion.followers.empty() && next.layer.type() == QUnary::kType &&
         (type == DType::i8 || type == DType::u8) && next.outputs[0].dtype == type;
}

std::optional<ByteTable> follower_table(const NodeSpec& spec) {
  // An average may follow in its place (conv_average.h).
  if (spec.fusion.followers.empty() || spec.fusion.followers[0]->layer.type() != QUnary::kType)
    return std::nullopt;
  return unary_table(layer_as<QUnary>(spec.fusion.followers[0]->layer).attributes());
}

DeviceBuffer upload_table(const std::optional<ByteTable>& table) {
  return table ? DeviceBuffer(table->data(), table->size()) : DeviceBuffer();
}

}  // namespace pipit::cuda
