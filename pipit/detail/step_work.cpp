#include "pipit/detail/step_work.h"

#include <algorithm>
#include <cmath>

namespace pipit::internal::detail {

namespace {

// Values of 16 bits are multiplied wherever a GPU's plan in fp16 or bf16 does not say otherwise; floats of another plan
// may still be stored so.
Products products_of(const ExecutionPlan& plan, const Step& step) {
  const Node& node = plan.graph().nodes()[static_cast<std::size_t>(step.node)];
  if (node.layer->traits().arithmetic == Arithmetic::integers) return Products::int8;
  if (plan.options().device == DeviceKind::cpu) return Products::fp32;
  if (plan.options().precision == Precision::fp16) return Products::fp16;
  if (plan.options().precision == Precision::bf16) return Products::bf16;
  for (const Placement& input : step.inputs) {
    if (input.kind == Placement::Kind::absent) continue;
    if (input.desc.dtype == DType::f16) return Products::fp16;
    if (input.desc.dtype == DType::bf16) return Products::bf16;
  }
  return Products::fp32;
}

bool lies_in(const Placement& part, const Placement& whole) {
  return part.kind == Placement::Kind::arena && whole.kind == Placement::Kind::arena &&
         part.offset >= whole.offset && part.offset + part.desc.bytes() <= whole.offset + whole.desc.bytes();
}

bool same_place(const Placement& a, const Placement& b) {
  return a.kind == b.kind && a.offset == b.offset && a.input == b.input && a.constant == b.constant &&
         a.desc.bytes() == b.desc.bytes();
}

// The share of input 0 that results depend on.
double read_share(const ExecutionPlan& plan, const Step& step) {
  const Graph& graph = plan.graph();
  const Node& node = graph.nodes()[static_cast<std::size_t>(step.node)];
  return node.layer->work(graph.input_descs(node), graph.output_descs(node)).read_share;
}

void add_operands(const ExecutionPlan& plan, const Step& step, StepWork& work) {
  const bool has_parts = !step.parts.empty();
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const Placement& input = step.inputs[i];
    bool again = false;
    for (std::size_t j = 0; j < i; ++j) again = again || same_place(step.inputs[j], input);
    if (again || input.kind == Placement::Kind::absent) continue;
    const auto bytes = static_cast<std::int64_t>(input.desc.bytes());
    if (input.kind == Placement::Kind::constant) {
      if (input.constant) work.weights += bytes;
      continue;
    }
    if (has_parts && lies_in(input, step.outputs[0])) {
      work.written -= bytes;
      continue;
    }
    work.read += i == 0 ? std::llround(static_cast<double>(bytes) * read_share(plan, step)) : bytes;
  }
  for (const Placement& output : step.outputs) work.written += static_cast<std::int64_t>(output.desc.bytes());
  work.written = std::max<std::int64_t>(work.written, 0);
  // Kernels of a CPU pack only what they keep.
  const double read = plan.options().device == DeviceKind::cuda ? step.kernel->kept_share() : 1;
  work.weights += std::llround(static_cast<double>(step.kernel->packed_bytes()) * read);
}

}  // namespace

std::int64_t StepWork::macs() const {
  std::int64_t sum = 0;
  for (const KernelWork& part : products) sum += part.macs;
  return runs * sum;
}

double StepWork::intensity() const {
  return bytes() > 0 ? 2 * static_cast<double>(macs()) / static_cast<double>(bytes()) : 0;
}

StepWork step_work(const ExecutionPlan& plan, const Step& step, std::int64_t layer_macs) {
  const MicroBatches& batches = plan.micro_batches();
  StepWork work;
  work.runs = batches.count();
  work.products = step.kernel->work();
  if (work.products.empty() && layer_macs > 0) {
    // The last micro-batch computes some samples twice.
    const double share =
        batches.cut() ? static_cast<double>(batches.size) / static_cast<double>(batches.samples) : 1;
    work.products = {{std::llround(static_cast<double>(layer_macs) * share), products_of(plan, step)}};
  }
  add_operands(plan, step, work);
  return work;
}

}  // namespace pipit::internal::detail
