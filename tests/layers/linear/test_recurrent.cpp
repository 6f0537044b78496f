#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>

#include "layers/ops/recurrent.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Operand;
using test::Random;

std::shared_ptr<const Tensor> floats_with(const Shape& shape, const std::vector<float>& values) {
  return std::make_shared<const Tensor>(Tensor::from<float>(shape, values));
}

std::vector<UnaryAttributes> usual(RecurrentKind kind, int directions) {
  std::vector<UnaryAttributes> all;
  for (int d = 0; d < directions; ++d) {
    if (kind != RecurrentKind::rnn) all.push_back({UnaryKind::sigmoid});
    all.push_back({UnaryKind::tanh});
    if (kind == RecurrentKind::lstm) all.push_back({UnaryKind::tanh});
  }
  return all;
}

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(Recurrent, HandWorkedLstm) {
  const RecurrentAttributes a{RecurrentKind::lstm, RecurrentDirection::forward,
                              usual(RecurrentKind::lstm, 1)};
  // One unit, two positions: gates i, o, f, c.
  const auto gates = floats_with(Shape{2, 1, 4}, {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F, 0.7F, 0.8F});
  const auto weights = floats_with(Shape{1, 4, 1}, {1, 2, 3, 4});
  const auto y = test::run_reference(Recurrent(a), {{gates}, {weights}});
  double h = 0;
  double c = 0;
  for (int t = 0; t < 2; ++t) {
    const auto gate = [&](int g) { return 0.1 * (g + 1) + 0.4 * t + (g + 1) * h; };
    c = logistic(gate(2)) * c + logistic(gate(0)) * std::tanh(gate(3));
    h = logistic(gate(1)) * std::tanh(c);
    EXPECT_NEAR(y[0].values<float>()[static_cast<std::size_t>(t)], h, 1e-6);
  }
  EXPECT_NEAR(y[1].values<float>()[0], h, 1e-6);
  EXPECT_NEAR(y[2].values<float>()[0], c, 1e-6);
}

TEST(Recurrent, HandWorkedGru) {
  const auto gates = floats_with(Shape{1, 1, 3}, {0.1F, 0.2F, 0.3F});
  const auto weights = floats_with(Shape{1, 3, 1}, {1, 2, 3});
  const auto first = floats_with(Shape{1, 1, 1}, {0.5F});
  const auto bias = floats_with(Shape{1, 1}, {0.25F});
  for (const bool before : {false, true}) {
    RecurrentAttributes a{RecurrentKind::gru, RecurrentDirection::forward, usual(RecurrentKind::gru, 1)};
    a.linear_before_reset = before;
    const auto y = test::run_reference(Recurrent(a),
                                       {{gates}, {weights}, {before ? bias : nullptr}, {nullptr}, {first}});
    const double z = logistic(0.1 + 0.5);
    const double r = logistic(0.2 + 1.0);
    const double n = std::tanh(0.3 + (before ? r * (1.5 + 0.25) : 3 * (r * 0.5)));
    EXPECT_NEAR(y[0].values<float>()[0], (1 - z) * n + z * 0.5, 1e-6);
  }
}

// After the end of a sequence there is nothing, and what runs from the end begins there.
TEST(Recurrent, LengthsOfSequences) {
  RecurrentAttributes a{
      RecurrentKind::rnn, RecurrentDirection::bidirectional, {{UnaryKind::relu}, {UnaryKind::relu}}};
  const auto gates = floats_with(Shape{3, 2, 2}, {1, 10, 1, 10, 2, 20, 2, 20, 4, 40, 4, 40});
  const auto weights = floats_with(Shape{2, 1, 1}, {1, 1});
  const auto lengths =
      std::make_shared<const Tensor>(Tensor::from<std::int32_t>(Shape{2}, std::vector<std::int32_t>{3, 2}));
  const auto y = test::run_reference(Recurrent(a), {{gates}, {weights}, {nullptr}, {lengths}});
  // [position][direction][sample]
  EXPECT_THAT(y[0].values<float>(), testing::ElementsAre(1, 1, 70, 30, 3, 3, 60, 20, 7, 0, 40, 0));
  EXPECT_THAT(y[1].values<float>(), testing::ElementsAre(7, 3, 70, 30));
  const auto beyond =
      std::make_shared<const Tensor>(Tensor::from<std::int32_t>(Shape{2}, std::vector<std::int32_t>{3, 4}));
  EXPECT_THROW(test::run_reference(Recurrent(a), {{gates}, {weights}, {nullptr}, {beyond}}), Error);
}

TEST(Recurrent, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 48 && !HasFailure(); ++i) {
    RecurrentAttributes a;
    a.kind = static_cast<RecurrentKind>(i % 3);
    a.direction = static_cast<RecurrentDirection>(random.integer(0, 2));
    const std::int64_t directions = a.direction == RecurrentDirection::bidirectional ? 2 : 1;
    a.activations = usual(a.kind, static_cast<int>(directions));
    if (random.coin()) a.clip = 0.75;
    a.linear_before_reset = a.kind == RecurrentKind::gru && random.coin();
    a.input_forget = a.kind == RecurrentKind::lstm && random.coin();
    const std::int64_t positions = random.integer(0, 6);
    const std::int64_t samples = random.integer(1, 20);
    const std::int64_t hidden = random.integer(1, 3) == 1 ? random.integer(60, 70) : random.integer(1, 20);
    const std::int64_t rows = recurrent_gates(a.kind) * hidden;
    const double reach = 1 / std::sqrt(static_cast<double>(hidden));
    const Shape state{directions, samples, hidden};
    std::vector<Operand> inputs{
        {random.tensor(Shape{positions, samples, directions * rows}, -1, 1)},
        {random.tensor(Shape{directions, rows, hidden}, -reach, reach), random.coin()},
        {nullptr},
        {nullptr},
        {nullptr},
        {nullptr},
        {nullptr}};
    if (a.linear_before_reset && random.coin())
      inputs[Recurrent::kHiddenBias] = {random.tensor(Shape{directions, hidden}, -1, 1), true};
    if (random.coin())
      inputs[Recurrent::kLengths] = {random.integers<std::int64_t>(Shape{samples}, 0, positions)};
    if (random.coin()) inputs[Recurrent::kFirstHidden] = {random.tensor(state, -1, 1)};
    if (a.kind == RecurrentKind::lstm && random.coin())
      inputs[Recurrent::kFirstCell] = {random.tensor(state, -1, 1)};
    if (a.kind == RecurrentKind::lstm && random.coin())
      inputs[Recurrent::kPeepholes] = {random.tensor(Shape{directions, 3 * hidden}, -1, 1), true};
    Conformance conformance{.inputs = inputs, .expected = {"steps", "reference"}};
    // A sum of hidden + 3 numbers of 1 at most whose sizes add up to less than sqrt(hidden) + 3; activations are good
    // to 6 units and their slope is 1 at most. The step before brings its own error, times what the weights amplify it
    // by: less than sqrt(hidden).
    const double units = (static_cast<double>(hidden) + 10) * (std::sqrt(static_cast<double>(hidden)) + 3);
    double amplified = 1;
    for (std::int64_t t = 1; t < positions; ++t) amplified = amplified * 3 + 1;
    conformance.absolute = units * amplified * FLT_EPSILON;
    expect_conformance(Recurrent(a), conformance);
  }
}

TEST(Recurrent, RoundsAStateLikeDynamicQuantizeLinear) {
  const auto rounded = [](std::vector<float> state) {
    round_state(state.data(), state.data(), std::ssize(state));
    return state;
  };
  using testing::ElementsAre;
  // Steps of 1, from -100 to 155; ties go to even numbers.
  EXPECT_THAT(rounded({-100, 155, 0.5F, 1.5F, -2.5F, 7.4F, -7.6F}), ElementsAre(-100, 155, 0, 2, -2, 7, -8));
  // 0 is a whole step, so that the range from -63.75 to 191.25 becomes one from -64 to 191.
  EXPECT_THAT(rounded({-63.75F, 191.25F, 191, 0, 10.3F}), ElementsAre(-64, 191, 191, 0, 10));
  EXPECT_THAT(rounded({255, 17.2F}), ElementsAre(255, 17));
  EXPECT_THAT(rounded({0, 0}), ElementsAre(0, 0));
  EXPECT_THAT(rounded({1e-44F, 0}), ElementsAre(1e-44F, 0));  // no scale
  EXPECT_TRUE(std::isnan(rounded({NAN, 1})[0]));
}

// In any direction.
RecurrentAttributes rounded_state(RecurrentKind kind, Random& random) {
  RecurrentAttributes a;
  a.kind = kind;
  a.direction = static_cast<RecurrentDirection>(random.integer(0, 2));
  a.rounds_state = true;
  a.activations = usual(kind, a.direction == RecurrentDirection::bidirectional ? 2 : 1);
  return a;
}

// In one step all kernels round the same state; later ones may round numbers near a tie to either side.
TEST(Recurrent, OfARoundedState) {
  Random random;
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    const RecurrentAttributes a =
        rounded_state(i % 2 == 0 ? RecurrentKind::lstm : RecurrentKind::rnn, random);
    const std::int64_t directions = a.direction == RecurrentDirection::bidirectional ? 2 : 1;
    const std::int64_t samples = random.integer(1, 11);
    const std::int64_t hidden = random.integer(1, 70);
    const std::int64_t rows = recurrent_gates(a.kind) * hidden;
    const double reach = 1 / std::sqrt(static_cast<double>(hidden));
    Conformance conformance{.inputs = {{random.tensor(Shape{1, samples, directions * rows}, -1, 1)},
                                       {random.tensor(Shape{directions, rows, hidden}, -reach, reach), true},
                                       {},
                                       {},
                                       {random.tensor(Shape{directions, samples, hidden}, -1, 1)},
                                       {},
                                       {}},
                            .expected = {"steps", "reference"}};
    // As above, of one step.
    conformance.absolute =
        (static_cast<double>(hidden) + 10) * (std::sqrt(static_cast<double>(hidden)) + 3) * FLT_EPSILON;
    expect_conformance(Recurrent(a), conformance);
  }
  // It is not that of the state as it is.
  RecurrentAttributes a{RecurrentKind::rnn, RecurrentDirection::forward, usual(RecurrentKind::rnn, 1)};
  a.rounds_state = true;
  const auto y = test::run_reference(Recurrent(a), {{floats_with(Shape{1, 1, 2}, {0, 0})},
                                                    {floats_with(Shape{1, 2, 2}, {1, 0, 0, 1})},
                                                    {},
                                                    {},
                                                    {floats_with(Shape{1, 1, 2}, {2.55F, 0.014F})}});
  EXPECT_NEAR(y[0].values<float>()[1], std::tanh(0.01), 1e-6);
}

TEST(Recurrent, OfARoundedStateAndWeightsInBytes) {
  Random random;
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    const RecurrentAttributes a =
        rounded_state(i % 2 == 0 ? RecurrentKind::lstm : RecurrentKind::rnn, random);
    const std::int64_t directions = a.direction == RecurrentDirection::bidirectional ? 2 : 1;
    const std::int64_t samples = random.integer(1, 5);
    const std::int64_t hidden = random.integer(1, 70);
    const std::int64_t rows = recurrent_gates(a.kind) * hidden;
    const DType type = random.coin() ? DType::i8 : DType::u8;
    const double low = type == DType::i8 ? -128 : 0;
    const double scale = 1 / (200 * std::sqrt(static_cast<double>(hidden)));
    Conformance conformance{
        .inputs = {{random.tensor(Shape{1, samples, directions * rows}, -1, 1)},
                   {random.tensor(Shape{directions, rows, hidden}, low, low + 255.999, type), true},
                   {},
                   {},
                   {random.tensor(Shape{directions, samples, hidden}, -1, 1)},
                   {},
                   {},
                   {random.tensor(Shape{directions, rows}, scale / 2, scale), true},
                   {random.tensor(Shape{directions, rows}, low, low + 255.999, type), true}},
        .expected = {"steps", "reference"}};
    // Weights reach up to 255 scales, otherwise as above.
    conformance.absolute =
        2 * (static_cast<double>(hidden) + 10) * (std::sqrt(static_cast<double>(hidden)) + 3) * FLT_EPSILON;
    expect_conformance(Recurrent(a), conformance);
  }
}

TEST(Recurrent, RefusesWhatDoesNotFit) {
  const RecurrentAttributes lstm{RecurrentKind::lstm, RecurrentDirection::forward,
                                 usual(RecurrentKind::lstm, 1)};
  const TensorDesc gates{Shape{2, 3, 8}};
  const TensorDesc weights{Shape{1, 8, 2}};
  EXPECT_EQ(test::infer(Recurrent(lstm), {gates, weights})[0].shape, (Shape{2, 1, 3, 2}));
  EXPECT_THROW(test::infer(Recurrent(lstm), {gates, {Shape{1, 6, 2}}}), Error);
  EXPECT_THROW(test::infer(Recurrent(lstm), {{Shape{2, 3, 9}}, weights}), Error);
  EXPECT_THROW(test::infer(Recurrent(lstm), {{Shape{2, 8}}, weights}), Error);
  EXPECT_THROW(test::infer(Recurrent(lstm), {{Shape{2, 3, 8}, DType::i64}, weights}), Error);
  EXPECT_THROW(test::infer(Recurrent(lstm), {gates, {Shape{1, 8, 2}, DType::i8}}), Error);
  RecurrentAttributes few = lstm;
  few.activations.pop_back();
  EXPECT_THROW(Recurrent{few}, Error);
  RecurrentAttributes negative = lstm;
  negative.clip = -1;
  EXPECT_THROW(Recurrent{negative}, Error);
}

}  // namespace
}  // namespace pipit::internal
