// What several threads do at a time: sessions of one plan and of many, pools, loading, tuning, calibrating, comparing.
// Answers are those of one thread. ThreadSanitizer, for which these are made (tests/run.sh --threads), sees the rest.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "compile/compile.h"
#include "layers/ops/pool.h"
#include "layers/ops/resize.h"
#include "models/model.h"
#include "pipit/pipit.h"
#include "tests/pipit/models.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

constexpr char kModel[] = "resnet20-cifar10";

// Each in a thread of its own, all at a time.
void at_a_time(int threads, const std::function<void(int)>& work) {
  std::vector<std::jthread> running;
  for (int t = 0; t < threads; ++t) running.emplace_back(work, t);
}

using Values = std::vector<float>;

Values run(Session& session, const std::vector<Tensor>& inputs) {
  std::vector<ConstTensorView> views;
  for (const Tensor& input : inputs) views.push_back(input.view());
  Values values;
  for (const ConstTensorView& view : session.run(views)) {
    const Tensor y = to_layout(view, Layout::row_major);
    values.insert(values.end(), y.values<float>().begin(), y.values<float>().end());
  }
  return values;
}

std::shared_ptr<const ExecutionPlan> plan_of(const Graph& graph, int threads,
                                             Precision precision = Precision::fp32) {
  CompileOptions options;
  options.planning.threads = threads;
  options.planning.precision = precision;
  return compile(graph, options).plans[0];
}

// Convolutions of many outputs and few pixels, whose panels workers share, in rows of pixels that are no whole number
// of a tile's; others of few outputs, whose pixels they share; depthwise ones, pools, arithmetic and movement.
Graph layers_of_every_kind() {
  test::TestGraph g;
  const auto depthwise = [&](const std::string& name, ValueId x) {
    ConvAttributes a;
    a.window.kernel = {3, 3, 1};
    a.window.pad_begin = a.window.pad_end = {1, 1, 0};
    a.groups = g.graph.value(x).desc.shape[1];
    return g.add(name, Conv(a), {x, g.constant(Shape{a.groups, 1, 3, 3})});
  };
  const auto pool = [&](const std::string& name, PoolKind kind, ValueId x) {
    PoolAttributes a;
    a.kind = kind;
    a.window.kernel = {3, 3, 1};
    a.window.stride = {2, 2, 1};
    a.window.pad_begin = {1, 1, 0};
    return g.add(name, Pool(a), {x});
  };
  ValueId x = g.input(Shape{2, 8, 37, 29});
  x = g.unary("relu", UnaryKind::sigmoid, g.conv("wide", x, 24, 3, true));
  x = pool("max", PoolKind::max, depthwise("depthwise", x));
  x = pool("average", PoolKind::average, g.batch_norm("norm", x));
  const ValueId small = g.conv("panels", x, 160, 3, true);  // 9 x 7
  const ValueId point = g.conv("points", small, 160, 1);
  x = g.binary("sum", BinaryKind::add, small, g.unary("tanh", UnaryKind::tanh, point));
  return g.build({g.conv("last", depthwise("depthwise2", x), 33, 1)});
}

TEST(Threads, LayersOfEveryKindInEveryPrecision) {
  const Graph graph = layers_of_every_kind();
  std::mt19937 random(test::test_seed());
  const std::vector<Tensor> inputs = test::random_inputs(graph, random);
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::int8_dynamic}) {
    Session one(plan_of(graph, 1, precision));
    const Values expected = run(one, inputs);
    for (const int threads : {2, 3, 5}) {
      Session several(plan_of(graph, threads, precision));
      for (int i = 0; i < 3; ++i)
        EXPECT_EQ(run(several, inputs), expected) << threads << " threads, " << precision_name(precision);
    }
  }
}

TEST(Threads, SessionsOfOnePlanAndPlansBesideThem) {
  OnnxOptions batch;
  batch.batch = 2;
  const Model model = load_model(kModel, batch);
  std::mt19937 random(test::test_seed());
  const std::vector<Tensor> inputs = test::random_inputs(model.graph, random);
  const auto shared = plan_of(model.graph, 2);
  Session alone(shared);
  const Values expected = run(alone, inputs);
  at_a_time(5, [&](int t) {
    if (t < 3) {  // three threads that share a plan and a pool
      Session mine(shared);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(run(mine, inputs), expected);
      return;
    }
    EXPECT_THROW(load_model("no such model", batch), Error);
    Session mine(plan_of(load_model(kModel, batch).graph, t - 1));
    EXPECT_EQ(run(mine, inputs), expected);
  });
}

TEST(Threads, TuningCachesAndClassifiers) {
  const test::Scratch scratch("threads-tuning");
  at_a_time(3, [&](int t) {
    ClassifierOptions options;
    options.load.device.threads = 1 + t % 2;
    options.load.kernels.tuning = Tuning::all;
    options.load.kernels.cache = scratch / "tuning.json";
    Classifier classifier(kModel, options);
    EXPECT_EQ(classifier.classify(PixelView{test::pattern(32, 1), 32, 32}).size(), 5U);
  });
}

TEST(Threads, CalibrateCompareAndRunInInt8) {
  const test::Scratch scratch("threads-int8");
  test::write_images(scratch, 4);
  const std::vector<std::filesystem::path> images = {scratch.path()};
  at_a_time(2, [&](int t) {
    const auto plan = scratch / ("plan" + std::to_string(t) + ".json");
    tools::CalibrateOptions calibrate;
    calibrate.load.device.threads = 3;
    tools::calibrate(kModel, images, {.plan = plan}, calibrate);
    tools::DiffOptions compare;
    compare.load.device.threads = 3;
    compare.shares = false;
    EXPECT_GT(tools::diff(kModel, images, plan, compare).layers.size(), 20U);
    LoadOptions int8;
    int8.precision = Int8{.plan = plan};
    int8.device.threads = 3;
    int8.kernels.tuning = Tuning::by_order;
    ModelSession session = CompiledModel(kModel, int8).session();
    const std::vector<float> image(3 * 32 * 32, 0.5F);
    EXPECT_EQ(session.run({ArrayView(image, Shape{1, 3, 32, 32})})[0].values<float>().size(), 10U);
  });
}

TEST(Threads, EvaluateOnOnePool) {
  const test::Scratch scratch("threads-evaluate");
  for (unsigned i = 0; i < 8; ++i) {
    const std::string name = std::to_string(i % 3) + "_" + std::to_string(i) + ".bmp";
    scratch.write(name, test::bmp(32, i));
  }
  tools::EvaluateOptions options;
  options.classifier.load.device.threads = 3;
  options.against.emplace();
  const std::int64_t right = tools::evaluate(kModel, scratch.path(), options).right.count;
  at_a_time(3, [&](int) {
    const tools::Evaluation result = tools::evaluate(kModel, scratch.path(), options);
    EXPECT_EQ(result.right.count, right);
    EXPECT_EQ(result.against->other_answers, 0);
  });
}

// Several threads submit to one runner, with futures and callbacks, while others wait; it is moved and destroyed with
// runs in its queue.
TEST(Threads, RunsOfOneAsyncRunner) {
  LoadOptions load;
  load.device.threads = 2;
  const Shape shape{1, 3, 32, 32};
  const auto image = [](int t) { return Values(3 * 32 * 32, 0.1F * static_cast<float>(t)); };
  std::vector<Values> expected;
  {
    ModelSession session = CompiledModel(kModel, load).session();
    for (int t = 0; t < 3; ++t) {
      const auto scores = session.run({{image(t), shape}})[0].values<float>();
      expected.emplace_back(scores.begin(), scores.end());
    }
  }
  AsyncRunner runner(kModel, load, {.streams = 2, .threads = 3, .queue = 3});
  std::atomic<int> wrong = 0;
  at_a_time(3, [&](int t) {
    const Values values = image(t);
    const std::vector<ArrayView> inputs = {{values, shape}};
    for (int run = 0; run < 4; ++run) {
      std::future<std::vector<Array>> future = runner.submit(inputs);
      Values scores(10);
      const std::vector<MutableArrayView> outputs = {{scores, Shape{1, 10}}};
      std::promise<void> ended;
      runner.submit(inputs, outputs, [&](const std::exception_ptr& error) {
        wrong += error ? 1 : 0;
        ended.set_value();
      });
      if (t == 0) runner.wait();
      const std::vector<Array> got = future.get();
      ended.get_future().wait();
      wrong += std::ranges::equal(got[0].values<float>(), expected[static_cast<std::size_t>(t)]) ? 0 : 1;
      wrong += scores == expected[static_cast<std::size_t>(t)] ? 0 : 1;
    }
  });
  EXPECT_EQ(wrong, 0);
  std::future<std::vector<Array>> last;
  {
    AsyncRunner moved = std::move(runner);
    const Values values = image(1);
    last = moved.submit({{values, shape}});
    EXPECT_THAT(moved.submit({{values, Shape{1, 3072}}}).wait_for(std::chrono::hours(1)),
                std::future_status::ready);
  }
  EXPECT_TRUE(std::ranges::equal(last.get()[0].values<float>(), expected[1]));
}

// Images are decoded by the threads of a pool that the sessions of the model use as well.
TEST(Threads, ClassifiersOfManyImages) {
  ClassifierOptions options;
  options.load.device.threads = 3;
  options.load.shapes.batch = 2;
  const Classifier classifier(kModel, options);
  std::vector<std::vector<std::uint8_t>> pixels;
  std::vector<PixelView> images;
  for (unsigned i = 0; i < 5; ++i) pixels.push_back(test::pattern(32, i));
  for (const std::vector<std::uint8_t>& rgb : pixels) images.push_back({rgb, 32, 32});
  std::vector<std::vector<std::vector<Prediction>>> answers(3);
  at_a_time(3, [&](int t) {
    answers[static_cast<std::size_t>(t)] = Classifier(classifier).classify_all(images, 1);
  });
  for (const auto& all : answers) {
    ASSERT_EQ(all.size(), images.size());
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i][0].index, answers[0][i][0].index);
  }
}

}  // namespace
}  // namespace pipit::internal
