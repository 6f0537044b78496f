#include "engine/graph/graph.h"

#include <gmock/gmock.h>

#include "tests/support/toy_layers.h"

namespace pipit::internal {
namespace {

using test::ToyAdd;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Graph, DropsWhatNoOutputNeeds) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({4})});
  const ValueId unused = builder.add_constant("unused", Tensor::scalar(1.0F));
  builder.add1("dead", std::make_shared<ToyAdd>(), {unused});
  const ValueId y = builder.add1("live", std::make_shared<ToyAdd>(), {x, kNoValue}, "y");
  builder.mark_output(y);
  const Graph graph = builder.build();
  ASSERT_EQ(graph.nodes().size(), 1U);
  EXPECT_EQ(graph.values().size(), 2U);
  EXPECT_EQ(graph.value(graph.outputs()[0]).name, "y");
  EXPECT_EQ(graph.value(graph.nodes()[0].inputs[0]).name, "x");
  EXPECT_EQ(graph.nodes()[0].inputs[1], kNoValue);
}

TEST(Graph, KeepsUnusedInputs) {
  GraphBuilder builder;
  builder.add_input("ignored", TensorDesc{Shape({4})});
  const ValueId x = builder.add_input("x", TensorDesc{Shape({4})});
  builder.mark_output(builder.add1("n", std::make_shared<ToyAdd>(), {x}));
  EXPECT_EQ(builder.build().inputs().size(), 2U);
}

TEST(Graph, ErrorsNameTheNodeAndTheValues) {
  GraphBuilder builder;
  const ValueId a = builder.add_input("a", TensorDesc{Shape({4})});
  const ValueId b = builder.add_input("b", TensorDesc{Shape({5})});
  EXPECT_THAT(([&] {
                builder.add("sum", std::make_shared<ToyAdd>(), {a, b});
              }),
              ThrowsMessage<Error>(HasSubstr("node 'sum' (ToyAdd): shapes 4 and 5 differ")));
  EXPECT_THAT(([&] {
                builder.add("late", std::make_shared<ToyAdd>(), {a, 99});
              }),
              ThrowsMessage<Error>(HasSubstr("node 'late' (ToyAdd): input value 99 does not exist yet")));
  EXPECT_THROW(builder.mark_output(99), Error);
  EXPECT_THAT([&] { builder.build(); }, ThrowsMessage<Error>(HasSubstr("no output")));
}

TEST(Graph, ReferencesToValuesOutliveWhatIsAddedLater) {
  GraphBuilder builder;
  const Value& x = builder.value(builder.add_input("x", TensorDesc{Shape({4})}));
  for (int i = 0; i < 5000; ++i) builder.add_constant("c", Tensor::scalar(1.0F));
  EXPECT_EQ(&x, &builder.value(0));
  EXPECT_EQ(x.name, "x");
}

TEST(Graph, CountsUses) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({4})});
  const ValueId y = builder.add1("n", std::make_shared<ToyAdd>(), {x, x});
  builder.mark_output(y);
  builder.mark_output(y);
  const Graph graph = builder.build();
  EXPECT_THAT(graph.use_counts(), testing::ElementsAre(2, 2));
}

}  // namespace
}  // namespace pipit::internal
