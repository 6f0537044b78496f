#include "layers/cuda/cuda.h"
#include "layers/cuda/families.h"

namespace pipit {

void register_cuda(Registry& registry) {
  (void)registry;
}

}  // namespace pipit
