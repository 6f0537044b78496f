#include "apps/kernel_names.h"

#include <string_view>

#include "layers/arrange.h"
#include "layers/binary.h"
#include "layers/cast.h"
#include "layers/conv.h"
#include "layers/gemm.h"
#include "layers/matmul.h"
#include "layers/normalization.h"
#include "layers/pool.h"
#include "layers/rearrange.h"
#include "layers/reduce.h"
#include "layers/registry.h"
#include "layers/resize.h"
#include "layers/softmax.h"
#include "layers/unary.h"

namespace pipit::apps {

std::set<std::string> kernel_names() {
  std::set<std::string> names;
  // The registry answers by layer type, so a new type belongs into this list.
  for (const std::string_view type :
       {Concat::kType,    Split::kType,     Slice::kType,  Pad::kType,          Binary::kType,
        Where::kType,     Cast::kType,      Conv::kType,   Gemm::kType,         MatMul::kType,
        BatchNorm::kType, LayerNorm::kType, Lrn::kType,    InstanceNorm::kType, Pool::kType,
        Reshape::kType,   Transpose::kType, Expand::kType, DepthToSpace::kType, Tile::kType,
        Gather::kType,    ToLayout::kType,  Reduce::kType, ArgMax::kType,       Resize::kType,
        Softmax::kType,   Unary::kType}) {
    for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
      for (const Candidate& c : default_registry().candidates(type, device)) names.insert(c.name);
    }
  }
  return names;
}

}  // namespace pipit::apps
