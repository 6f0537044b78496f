// Memory that ends anywhere between a model's file and its answer is an error, and nothing else.
#include <gmock/gmock.h>

#include <new>

#include "engine/base/error.h"
#include "engine/runtime/session.h"
#include "layers/passes/pipeline.h"
#include "layers/registry.h"
#include "models/model.h"
#include "tests/support/allocation_counter.h"

namespace pipit::internal {
namespace {

void load_and_run() {
  const Model model = load_model("resnet20-cifar10", {});
  PlanOptions options;
  options.threads = 1;
  Session session(ExecutionPlan::build(optimize(model.graph), default_registry(), options));
  const Tensor x(model.graph.value(model.graph.inputs()[0]).desc);
  const ConstTensorView view = x.view();
  session.run({&view, 1});
}

TEST(FailedAllocations, EndInAnError) {
  if (!test::AllocationCounter::available()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  load_and_run();  // what is made once
  long all = 0;
  {
    const test::AllocationCounter counter;
    load_and_run();
    all = counter.count();
  }
  ASSERT_GT(all, 1000);
  int errors = 0;
  // Every one of the first, which read the file, and a prime's multiples.
  for (long i = 0; i < all; i += i < 300 ? 1 : 101) {
    SCOPED_TRACE(testing::Message() << "allocation " << i << " of " << all);
    const test::AllocationCounter counter(i);
    try {
      load_and_run();
    } catch (const Error& e) {
      EXPECT_STRNE(e.what(), "");
      ++errors;
    } catch (const std::bad_alloc&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 200);
}

}  // namespace
}  // namespace pipit::internal
