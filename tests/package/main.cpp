// Loads the built-in model, plans it and runs one image: the consumer of the installed package.
#include <cmath>

#include "engine/session.h"
#include "layers/fuse/passes.h"
#include "layers/registry.h"
#include "models/model.h"

int main() {
  const pipit::Model model = pipit::load_model("resnet20-cifar10", {});
  pipit::Session session(pipit::Plan::build(pipit::optimize(model.graph), pipit::default_registry(), {}));
  pipit::Tensor image(model.graph.value(model.graph.inputs()[0]).desc);
  for (float& value : image.values<float>()) value = 0.5F;
  const pipit::ConstTensorView view = image.view();
  const pipit::ConstTensorView scores = session.run({&view, 1})[0];
  return scores.desc.elements() == 10 && std::isfinite(scores.as<float>()[0]) ? 0 : 1;
}
