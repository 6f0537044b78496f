#include "models/score_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "engine/base/error.h"
#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "layers/ops/unary.h"
#include "models/classification.h"

namespace pipit::internal {
namespace {

// Layers after an input, by name.
class Net {
 public:
  explicit Net(const Shape& shape = {2, 5}) : x(builder.add_input("x", TensorDesc{shape})) {}

  ValueId unary(UnaryKind kind, ValueId v, double alpha = 0, double beta = 0) {
    return add(std::make_shared<Unary>(UnaryAttributes{kind, alpha, beta}), {v});
  }
  ValueId binary(BinaryKind kind, ValueId a, ValueId b) {
    return add(std::make_shared<Binary>(BinaryAttributes{kind, {}}), {a, b});
  }
  ValueId softmax(ValueId v, std::int64_t axis = 1, bool log = false) {
    return add(std::make_shared<Softmax>(SoftmaxAttributes{axis, log, false}), {v});
  }
  ValueId reduce(ReduceKind kind, ValueId v, std::int64_t axis, bool keep = true) {
    return add(std::make_shared<Reduce>(ReduceAttributes{kind, {axis}, keep}), {v});
  }
  ValueId concat(ValueId a, ValueId b) { return add(std::make_shared<Concat>(ConcatAttributes{1}), {a, b}); }
  ValueId reshape(ValueId v, const Shape& shape) {
    return add(std::make_shared<Reshape>(ReshapeAttributes{shape}), {v});
  }
  ValueId number(float value) {
    Tensor tensor(TensorDesc{Shape{1}});
    tensor.values<float>()[0] = value;
    return builder.add_constant("c" + std::to_string(next_++), std::move(tensor));
  }
  ValueId add(LayerPtr layer, std::vector<ValueId> inputs) {
    return builder.add1("n" + std::to_string(next_++), std::move(layer), std::move(inputs));
  }
  ScoreKind kind(ValueId output) { return score_kind(graph(output)); }
  Graph graph(ValueId output) {
    builder.mark_output(output, "y");
    return builder.build();
  }

  GraphBuilder builder;
  ValueId x;

 private:
  int next_ = 0;
};

using Build = std::function<ValueId(Net&)>;

ScoreKind kind_of(const Build& build, const Shape& shape = {2, 5}) {
  Net net(shape);
  const ValueId output = build(net);
  return net.kind(output);
}

using enum UnaryKind;
using BinaryKind::add;
using BinaryKind::div;
using BinaryKind::mul;
using BinaryKind::sub;
using testing::HasSubstr;

TEST(ScoreKind, IsThatOfTheLastLayer) {
  EXPECT_EQ(kind_of([](Net& n) { return n.unary(relu, n.x); }), ScoreKind::logits);
  EXPECT_EQ(kind_of([](Net& n) { return n.softmax(n.x); }), ScoreKind::softmax);
  EXPECT_EQ(kind_of([](Net& n) { return n.softmax(n.x, 1, true); }), ScoreKind::log_softmax);
  EXPECT_EQ(kind_of([](Net& n) { return n.unary(sigmoid, n.x); }), ScoreKind::sigmoid);
  EXPECT_EQ(kind_of([](Net& n) { return n.unary(hard_sigmoid, n.x, 0.2, 0.5); }), ScoreKind::sigmoid);
  // What only stands before another layer does not count.
  EXPECT_EQ(kind_of([](Net& n) { return n.binary(mul, n.x, n.unary(sigmoid, n.x)); }), ScoreKind::logits);
  EXPECT_EQ(kind_of([](Net& n) { return n.unary(tanh, n.x); }), ScoreKind::logits);
}

TEST(ScoreKind, IsSeenThroughWhatMovesAndRoundsElements) {
  const std::vector<Build> moves = {
      [](Net& n) {
        return n.reshape(n.x, {2, 5, 1, 1});
      },
      [](Net& n) {
        return n.add(std::make_shared<Transpose>(TransposeAttributes{{0, 2, 1}}),
                     {n.reshape(n.x, {2, 5, 1})});
      },
      [](Net& n) {
        const Quantization q = {1.0F / 256, 0, DType::u8};
        return n.add(std::make_shared<Dequantize>(q), {n.add(std::make_shared<Quantize>(q), {n.x})});
      },
      [](Net& n) {
        const ValueId wide = n.add(std::make_shared<Cast>(CastAttributes{DType::f64}), {n.x});
        return n.add(std::make_shared<Cast>(CastAttributes{DType::f32}), {wide});
      },
      [](Net& n) { return n.unary(clip, n.x, 1e-7, 1 - 1e-7); },
      [](Net& n) {
        return n.add(std::make_shared<Pool>(PoolAttributes{.kind = PoolKind::average, .global = true}),
                     {n.reshape(n.x, {2, 5, 1, 1})});
      },
  };
  const std::vector<std::pair<Build, ScoreKind>> heads = {
      {[](Net& n) { return n.softmax(n.x); }, ScoreKind::softmax},
      {[](Net& n) { return n.unary(sigmoid, n.x); }, ScoreKind::sigmoid},
  };
  for (const auto& [head, kind] : heads) {
    for (std::size_t m = 0; m < moves.size(); ++m) {
      Net net;
      net.x = head(net);
      EXPECT_EQ(net.kind(moves[m](net)), kind) << m;
    }
  }
}

TEST(ScoreKind, FindsSigmoidsThatAreWrittenOut) {
  const auto one_more_than_exp = [](Net& n) {
    return n.binary(add, n.unary(exp, n.unary(neg, n.x)), n.number(1));
  };
  EXPECT_EQ(kind_of([&](Net& n) { return n.binary(div, n.number(1), one_more_than_exp(n)); }),
            ScoreKind::sigmoid);
  EXPECT_EQ(kind_of([&](Net& n) { return n.unary(reciprocal, one_more_than_exp(n)); }), ScoreKind::sigmoid);
  EXPECT_EQ(kind_of([](Net& n) {
              const ValueId e = n.unary(exp, n.x);
              return n.binary(div, e, n.binary(add, n.number(1), e));
            }),
            ScoreKind::sigmoid);
  EXPECT_EQ(kind_of([](Net& n) {
              const ValueId half = n.binary(mul, n.number(0.5F), n.unary(tanh, n.x));
              return n.binary(add, half, n.number(0.5F));
            }),
            ScoreKind::sigmoid);
  EXPECT_EQ(kind_of([](Net& n) {
              return n.unary(clip, n.binary(add, n.binary(mul, n.x, n.number(0.2F)), n.number(0.5F)), 0, 1);
            }),
            ScoreKind::sigmoid);
  EXPECT_EQ(kind_of([](Net& n) { return n.binary(sub, n.number(1), n.unary(sigmoid, n.x)); }),
            ScoreKind::sigmoid);
  EXPECT_EQ(kind_of([](Net& n) { return n.binary(mul, n.unary(sigmoid, n.x), n.unary(sigmoid, n.x)); }),
            ScoreKind::sigmoid);
  EXPECT_EQ(kind_of([](Net& n) { return n.concat(n.unary(sigmoid, n.x), n.unary(sigmoid, n.x)); }),
            ScoreKind::sigmoid);
}

TEST(ScoreKind, FindsSoftmaxesThatAreWrittenOut) {
  const auto shares = [](Net& n) {
    const ValueId e = n.unary(exp, n.binary(sub, n.x, n.reduce(ReduceKind::max, n.x, 1)));
    return n.binary(div, e, n.reduce(ReduceKind::sum, e, 1));
  };
  EXPECT_EQ(kind_of(shares), ScoreKind::softmax);
  EXPECT_EQ(kind_of([&](Net& n) { return n.unary(log, shares(n)); }), ScoreKind::log_softmax);
  EXPECT_EQ(kind_of([](Net& n) { return n.unary(log, n.unary(clip, n.softmax(n.x), 1e-7, 1)); }),
            ScoreKind::log_softmax);
  // The mean of two models, and the mean over positions.
  EXPECT_EQ(kind_of([](Net& n) {
              const ValueId sum = n.binary(add, n.softmax(n.x), n.softmax(n.unary(neg, n.x)));
              return n.binary(mul, sum, n.number(0.5F));
            }),
            ScoreKind::softmax);
  EXPECT_EQ(
      kind_of([](Net& n) { return n.reduce(ReduceKind::mean, n.softmax(n.x, 1), 2, false); }, {2, 5, 3}),
      ScoreKind::softmax);
}

// Probabilities, but not of classes of which one is right.
TEST(ScoreKind, ASoftmaxOverOtherThingsThanTheClassesMakesThemIndependent) {
  EXPECT_EQ(kind_of([](Net& n) { return n.softmax(n.x, 0); }), ScoreKind::sigmoid);
  EXPECT_EQ(kind_of(
                [](Net& n) {
                  return n.reshape(n.softmax(n.x, 2), {2, 6});
                },
                {2, 3, 2}),
            ScoreKind::sigmoid);
  EXPECT_EQ(kind_of([](Net& n) { return n.concat(n.softmax(n.x), n.softmax(n.x)); }), ScoreKind::sigmoid);
  // Samples are not mixed up.
  EXPECT_EQ(kind_of([](Net& n) { return n.reshape(n.softmax(n.x), {1, 10}); }), ScoreKind::sigmoid);
}

ValueId transposed(Net& n, ValueId v) {
  return n.add(std::make_shared<Transpose>(TransposeAttributes{{1, 0}}), {v});
}

ValueId indices(Net& n, const std::vector<std::int64_t>& values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return n.builder.add_constant("indices", Tensor::from<std::int64_t>(shape, values));
}

ValueId gathered(Net& n, ValueId v, const std::vector<std::int64_t>& places) {
  return n.add(std::make_shared<Gather>(GatherAttributes{1}), {v, indices(n, places)});
}

// Sums that cannot be read off the layers: random values are sent through them.
TEST(ScoreKind, ASoftmaxIsFoundBeforeWhatMovesItsElements) {
  const std::vector<std::pair<const char*, Build>> moves = {
      {"none", [](Net& n) { return n.x; }},
      {"gather",
       [](Net& n) {
         return gathered(n, n.x, {4, 3, 2, 1, 0});
       }},
      {"split and concat",
       [](Net& n) {
         const auto parts =
             n.builder.add("split", std::make_shared<Split>(SplitAttributes{1, {2, 3}}), {n.x});
         return n.concat(parts[1], parts[0]);
       }},
      {"where",
       [](Net& n) {
         Tensor mask(TensorDesc{Shape{5}, DType::boolean});
         std::fill_n(mask.view().data, 5, std::byte{1});
         const ValueId condition = n.builder.add_constant("mask", std::move(mask));
         return n.add(std::make_shared<Where>(), {condition, n.x, n.number(0)});
       }},
      {"transposes", [](Net& n) { return transposed(n, transposed(n, n.x)); }},
      {"clip", [](Net& n) { return n.unary(clip, n.x, -30, 0.999); }},
  };
  for (const auto& [name, move] : moves) {
    for (const bool log : {false, true}) {
      const ScoreKind kind = log ? ScoreKind::log_softmax : ScoreKind::softmax;
      Net net;
      net.x = net.softmax(net.x, 1, log);
      if (log && std::string(name) == "where") continue;
      EXPECT_EQ(net.kind(move(net)), kind) << name;
    }
    Net net;
    net.x = net.unary(sigmoid, net.x);
    EXPECT_EQ(net.kind(move(net)), ScoreKind::sigmoid) << name;
  }
}

TEST(ScoreKind, ASoftmaxOverAnotherAxisThatBecomesTheClassesIsOne) {
  EXPECT_EQ(kind_of([](Net& n) { return transposed(n, n.softmax(transposed(n, n.x), 0)); }),
            ScoreKind::softmax);
  // The one sample's dimension is gone meanwhile.
  EXPECT_EQ(kind_of(
                [](Net& n) {
                  return n.reshape(n.softmax(n.reshape(n.x, {5}), 0), {1, 5});
                },
                {1, 5}),
            ScoreKind::softmax);
  // Over the samples it is none.
  EXPECT_EQ(kind_of([](Net& n) { return transposed(n, n.softmax(transposed(n, n.x), 1)); }),
            ScoreKind::sigmoid);
}

TEST(ScoreKind, ASoftmaxWithoutSomeOfItsClassesIsOne) {
  EXPECT_EQ(kind_of([](Net& n) { return gathered(n, n.softmax(n.x), {1, 2, 3, 4}); }), ScoreKind::softmax);
  EXPECT_EQ(kind_of([](Net& n) {
              return gathered(n, n.unary(sigmoid, n.x), {1, 2, 3, 4});
            }),
            ScoreKind::sigmoid);
  EXPECT_EQ(kind_of([](Net& n) { return n.unary(clip, n.softmax(n.x), 0, 0.4); }), ScoreKind::softmax);
  // A score and what is left of 1.
  EXPECT_EQ(kind_of(
                [](Net& n) {
                  const ValueId yes = n.unary(sigmoid, n.x);
                  return n.concat(n.binary(sub, n.number(1), yes), yes);
                },
                {2, 1}),
            ScoreKind::softmax);
}

TEST(ScoreKind, LogSoftmaxesThatAreWrittenOutAreFound) {
  EXPECT_EQ(kind_of([](Net& n) {
              return n.binary(sub, n.x, n.unary(log, n.reduce(ReduceKind::sum, n.unary(exp, n.x), 1)));
            }),
            ScoreKind::log_softmax);
  EXPECT_EQ(kind_of([](Net& n) { return n.unary(log, n.binary(add, n.softmax(n.x), n.number(1e-9F))); }),
            ScoreKind::log_softmax);
}

TEST(ScoreKind, KnowsTheLimitsOfWhatItKnows) {
  EXPECT_EQ(kind_of([](Net& n) { return n.binary(add, n.softmax(n.x), n.softmax(n.x)); }), ScoreKind::logits);
  EXPECT_EQ(kind_of([](Net& n) { return n.binary(div, n.x, n.reduce(ReduceKind::sum, n.x, 1)); }),
            ScoreKind::logits);
  EXPECT_EQ(kind_of([](Net& n) { return n.unary(reciprocal, n.x); }), ScoreKind::logits);
  EXPECT_EQ(kind_of([](Net& n) { return n.x; }), ScoreKind::logits);
}

ClassOutput output_of(const Shape& shape, ScoreKind kind) {
  Net net(shape);
  net.builder.mark_output(net.unary(neg, net.x), "y");
  return {net.builder.build(), "model", kind};
}

TEST(ClassOutput, OneScoreIsALogitOfYes) {
  for (const Shape& shape : {Shape{3, 1}, Shape{3}, Shape{3, 1, 1, 1}}) {
    const ClassOutput output = output_of(shape, ScoreKind::logits);
    EXPECT_EQ(output.kind, ScoreKind::sigmoid_logits);
    EXPECT_EQ(output.values, 1);
    EXPECT_EQ(output.classes, 2);
    EXPECT_TRUE(output.yes_or_no());
  }
  EXPECT_EQ(output_of({3, 1}, ScoreKind::softmax).classes, 1);
  EXPECT_EQ(output_of({3, 1, 7}, ScoreKind::sigmoid).classes, 7);
  EXPECT_TRUE(output_of({3, 1, 7}, ScoreKind::sigmoid).are_tags());
  EXPECT_THROW(output_of({3, 2, 7}, ScoreKind::logits), Error);
}

std::vector<std::pair<int, float>> top(const ClassOutput& output, std::vector<float> scores, int k = 5) {
  std::vector<std::pair<int, float>> result;
  for (const ScoredClass& scored : top_classes(output, scores, k, "image", "model", Precision::fp32))
    result.emplace_back(scored.index, scored.probability);
  return result;
}

TEST(TopClasses, AreWhatTheKindOfScoresSays) {
  using Pairs = std::vector<std::pair<int, float>>;
  const std::vector<float> given = {0.25F, 0.5F, 0.125F};
  EXPECT_EQ(top(output_of({1, 3}, ScoreKind::sigmoid), given), (Pairs{{1, 0.5F}, {0, 0.25F}, {2, 0.125F}}));
  EXPECT_EQ(top(output_of({1, 3}, ScoreKind::softmax), given, 2), (Pairs{{1, 0.5F}, {0, 0.25F}}));
  // The sum is 1: these are logits of a graph in which the softmax was not found.
  EXPECT_EQ(top(output_of({1, 2}, ScoreKind::logits), {0.25F, 0.75F}), (Pairs{{1, 0.75F}, {0, 0.25F}}));
  const Pairs softmax = top(output_of({1, 2}, ScoreKind::logits), {0, std::log(3.0F)});
  EXPECT_NEAR(softmax[0].second, 0.75F, 1e-6);
  EXPECT_NEAR(softmax[1].second, 0.25F, 1e-6);
  EXPECT_NEAR(top(output_of({1, 2}, ScoreKind::log_softmax), {-3, std::log(0.9F)})[0].second, 0.9F, 1e-6);
  const Pairs apart = top(output_of({1, 2}, ScoreKind::sigmoid_logits), {0, std::log(3.0F)});
  EXPECT_NEAR(apart[0].second, 0.75F, 1e-6);
  EXPECT_NEAR(apart[1].second, 0.5F, 1e-6);
}

TEST(ScoresProblem, IsWhatNoScoreOfTheKindCanBe) {
  const auto problem = [](ScoreKind kind, std::vector<float> scores) {
    const auto values = static_cast<std::int64_t>(scores.size());
    return scores_problem(output_of({1, values}, kind), scores);
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  using enum ScoreKind;
  EXPECT_TRUE(
      has(problem(softmax, {1.2F, -0.2F}), "1.2 among its 2 scores, but softmax scores lie between 0 and 1"));
  EXPECT_TRUE(has(problem(sigmoid, {0.5F, -0.2F}), "-0.2"));
  EXPECT_TRUE(has(problem(sigmoid, {1.4F}), "1.4"));
  EXPECT_TRUE(has(problem(log_softmax, {-0.5F, 1.2F}), "at or below 0"));
  EXPECT_TRUE(has(problem(log_softmax, {std::numeric_limits<float>::infinity(), 0}), "inf"));
  EXPECT_TRUE(has(problem(softmax, {0.9F, 0.9F, 0.8F}), "add up to 2.6"));
  EXPECT_TRUE(has(problem(log_softmax, {-0.1F, -0.1F, -0.1F}), "add up to 2.7"));
  // Rounding, as of 8 bits, is none; what was cut off may be missing.
  EXPECT_EQ(problem(softmax, {1.003F, -1e-4F}), "");
  EXPECT_EQ(problem(softmax, {0.3F, 0.1F}), "");
  EXPECT_EQ(problem(softmax, std::vector<float>(256, 1.0F / 128)), "");
  EXPECT_EQ(problem(sigmoid, {0.9F, 0.9F, 1.0F + 1e-7F}), "");
  EXPECT_EQ(problem(log_softmax, {-std::numeric_limits<float>::infinity(), 1e-6F}), "");
  for (const ScoreKind kind : {logits, sigmoid_logits}) EXPECT_EQ(problem(kind, {-7, 9, 100}), "");
  // Rounding beyond 1 is not shown.
  EXPECT_EQ(top(output_of({1, 2}, softmax), {1.003F, -1e-4F}),
            (std::vector<std::pair<int, float>>{{0, 1.0F}, {1, 0.0F}}));
}

TEST(TopClasses, OfOneScoreAreYesAndNo) {
  using Pairs = std::vector<std::pair<int, float>>;
  ClassOutput output = output_of({1, 1}, ScoreKind::sigmoid);
  EXPECT_EQ(top(output, {0.75F}), (Pairs{{1, 0.75F}, {0, 0.25F}}));
  EXPECT_EQ(top(output, {0.25F}), (Pairs{{0, 0.75F}, {1, 0.25F}}));
  output.threshold = 0.8;  // the answer first, also where it is the less probable one
  EXPECT_EQ(top(output, {0.75F}), (Pairs{{0, 0.25F}, {1, 0.75F}}));
  output.threshold = 0.3;
  EXPECT_EQ(top(output, {0.3F}, 1), (Pairs{{1, 0.3F}}));
  EXPECT_NEAR(top(output_of({1, 1}, ScoreKind::logits), {std::log(3.0F)})[0].second, 0.75F, 1e-6);
}

TEST(Answer, IsOneClassOrYesOrNoOrTags) {
  ClassOutput tags = output_of({1, 3}, ScoreKind::sigmoid);
  EXPECT_EQ(answer(tags, std::vector<float>{0.6F, 0.4F, 0.9F}), (std::vector{0, 2}));
  EXPECT_EQ(answer(tags, std::vector<float>{0.1F, 0.4F, 0.2F}), std::vector<int>{});
  tags.threshold = 0.4;
  EXPECT_EQ(answer(tags, std::vector<float>{0.6F, 0.4F, 0.9F}), (std::vector{0, 1, 2}));
  EXPECT_EQ(answer(output_of({1, 3}, ScoreKind::softmax), std::vector<float>{0.3F, 0.4F, 0.3F}),
            std::vector{1});
  ClassOutput logit = output_of({1, 1}, ScoreKind::logits);
  EXPECT_EQ(answer(logit, std::vector<float>{0.1F}), std::vector{1});
  EXPECT_EQ(answer(logit, std::vector<float>{-0.1F}), std::vector{0});
  logit.threshold = 0.9;
  EXPECT_NEAR(logit.threshold_score(), std::log(9.0), 1e-5);
  EXPECT_EQ(answer(logit, std::vector<float>{2.1F}), std::vector{0});
  EXPECT_EQ(answer(logit, std::vector<float>{2.3F}), std::vector{1});
}

TEST(ScoreKind, HasNames) {
  for (const ScoreKind kind : {ScoreKind::logits, ScoreKind::softmax, ScoreKind::log_softmax,
                               ScoreKind::sigmoid, ScoreKind::sigmoid_logits})
    EXPECT_EQ(find_score_kind(score_kind_name(kind)), kind);
  EXPECT_EQ(find_score_kind("tanh"), std::nullopt);
}

TEST(ScoreKind, SoftmaxesSideBySideAreTold) {
  const auto noted = [](const Build& build) {
    Net net({2, 6});
    const Graph graph = net.graph(build(net));
    return heads_note(graph, score_kind(graph));
  };
  EXPECT_THAT(noted([](Net& n) { return n.concat(n.softmax(n.x), n.softmax(n.unary(neg, n.x))); }),
              HasSubstr("add up to 2, as those of 2 softmaxes"));
  EXPECT_THAT(noted([](Net& n) {
                return n.reshape(n.softmax(n.reshape(n.x, {2, 3, 2}), 2), {2, 6});
              }),
              HasSubstr("of 3 softmaxes"));
  EXPECT_EQ(noted([](Net& n) { return n.concat(n.softmax(n.x), n.unary(sigmoid, n.x)); }), "");
  EXPECT_EQ(noted([](Net& n) { return n.unary(sigmoid, n.x); }), "");
  EXPECT_EQ(noted([](Net& n) { return n.softmax(n.x); }), "");
  EXPECT_EQ(noted([](Net& n) { return n.softmax(n.x, 1, true); }), "");
  EXPECT_EQ(noted([](Net& n) { return n.concat(n.softmax(n.x, 1, true), n.softmax(n.x)); }), "");
  EXPECT_THAT(noted([](Net& n) { return n.concat(n.softmax(n.x, 1, true), n.unary(log, n.softmax(n.x))); }),
              HasSubstr("logarithms of 2 softmaxes"));
  EXPECT_EQ(noted([](Net& n) { return n.unary(log, n.binary(mul, n.softmax(n.x), n.number(2))); }), "");
}

}  // namespace
}  // namespace pipit::internal
