// Tensors in, tensors out, through the public headers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <cmath>
#include <thread>

#include "tests/pipit/models.h"
#include "tests/support/allocation_counter.h"

namespace {

using pipit::ArrayView;
using pipit::CompiledModel;
using pipit::DType;
using pipit::Error;
using pipit::LoadOptions;
using pipit::ModelSession;
using pipit::Precision;
using pipit::Shape;
using pipit::UnsupportedError;
using pipit::internal::test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";
const Shape kImage{1, 3, 32, 32};

LoadOptions one_thread() {
  LoadOptions options;
  options.device.threads = 1;
  options.kernels.tuning = pipit::Tuning::by_order;
  return options;
}

std::vector<float> image(unsigned seed, std::size_t samples = 1) {
  std::vector<float> values(samples * 3 * 32 * 32);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i * 2654435761U + seed * 40503U) % 1000) / 500 - 1;
  return values;
}

std::vector<float> run(ModelSession& session, const std::vector<float>& values, const Shape& shape = kImage) {
  const std::span<const float> scores = session.run({ArrayView(values, shape)})[0].values<float>();
  return {scores.begin(), scores.end()};
}

TEST(CompiledModel, DescribesItselfAndRuns) {
  const CompiledModel model(kModel, one_thread());
  EXPECT_EQ(model.name(), kModel);
  ASSERT_THAT(model.inputs(), SizeIs(1));
  EXPECT_EQ(model.inputs()[0].dtype, DType::f32);
  EXPECT_EQ(model.inputs()[0].shape, kImage);
  ASSERT_THAT(model.outputs(), SizeIs(1));
  EXPECT_EQ(model.outputs()[0].shape, (Shape{1, 10}));
  EXPECT_FALSE(model.outputs()[0].name.empty());
  EXPECT_EQ(model.devices(), 1);
  EXPECT_GT(model.arena_bytes(), 0U);
  ModelSession session = model.session();
  const std::vector<float> first = run(session, image(1));
  EXPECT_THAT(first, SizeIs(10));
  EXPECT_NE(run(session, image(2)), first);
  EXPECT_EQ(run(session, image(1)), first);
  LoadOptions two = one_thread();
  two.device.threads = 2;
  ModelSession other = CompiledModel(kModel, two).session();  // outlives its model
  EXPECT_EQ(run(other, image(1)), first);
}

TEST(CompiledModel, RunsBatchesAndPrecisions) {
  ModelSession single = CompiledModel(kModel, one_thread()).session();
  LoadOptions options = one_thread();
  options.shapes.batch = 3;
  ModelSession three = CompiledModel(kModel, options).session();
  std::vector<float> all;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const std::vector<float> one = image(seed);
    all.insert(all.end(), one.begin(), one.end());
  }
  const std::vector<float> scores = run(three, all, Shape{3, 3, 32, 32});
  ASSERT_THAT(scores, SizeIs(30));
  for (const Precision precision :
       {Precision::fp32, Precision::fp16, Precision::int8_dynamic, Precision::w8}) {
    LoadOptions own = one_thread();
    own.precision = precision;
    ModelSession session = CompiledModel(kModel, own).session();
    for (unsigned seed = 1; seed <= 3; ++seed) {
      const std::vector<float> got = run(session, image(seed));
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < 10; ++i) {
        const double expected = scores[(seed - 1) * 10 + i];
        difference += (got[i] - expected) * (got[i] - expected);
        norm += expected * expected;
      }
      // About 1 % a layer in 8 bits, 20 of them, added as a random walk.
      EXPECT_LT(std::sqrt(difference / norm), precision == Precision::fp32 ? 1e-5 : 0.1)
          << precision_name(precision);
    }
  }
}

TEST(ModelSession, AllocatesNothingInSteadyState) {
  if (!pipit::internal::test::AllocationCounter::available()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  LoadOptions options = one_thread();
  options.device.threads = 2;
  ModelSession session = CompiledModel(kModel, options).session();
  const std::vector<float> values = image(1);
  const ArrayView view(values, kImage);
  session.run({view});
  std::vector<float> scores(10);
  session.run({view}, {{scores, Shape{1, 10}}});
  const pipit::internal::test::AllocationCounter counter;
  for (int i = 0; i < 3; ++i) {
    session.run({view});
    session.run({view}, {{scores, Shape{1, 10}}});
  }
  EXPECT_EQ(counter.count(), 0);
}

// Room for `count` floats that begins `shift` floats past 64 bytes.
class Room {
 public:
  Room(std::size_t count, std::size_t shift) : memory_(count + shift + 16), count_(count) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = memory_.data() + (64 - address % 64) % 64 / sizeof(float) + shift;
  }
  std::span<float> values() const { return {begin_, count_}; }

 private:
  std::vector<float> memory_;
  std::size_t count_;
  float* begin_;
};

TEST(ModelSession, RunsIntoTheCallersMemory) {
  for (const std::int64_t batch : {1, 3}) {
    for (const std::optional<std::int64_t> micro_batch : {std::optional<std::int64_t>{0}, {1}}) {
      LoadOptions options = one_thread();
      options.shapes.batch = batch;
      options.kernels.micro_batch = micro_batch;
      ModelSession session = CompiledModel(kModel, options).session();
      const auto samples = static_cast<std::size_t>(batch);
      const Shape in{batch, 3, 32, 32}, out{batch, 10};
      for (const std::size_t shift : {0, 1}) {
        for (unsigned seed = 1; seed <= 2; ++seed) {
          const std::vector<float> values = image(seed, samples);
          const Room room(samples * 10, shift);
          std::ranges::fill(room.values(), NAN);
          session.run({{values, in}}, {{room.values(), out}});
          const std::vector<float> got(room.values().begin(), room.values().end());
          EXPECT_EQ(got, run(session, values, in)) << "batch " << batch << ", shift " << shift;
        }
      }
    }
  }
}

TEST(ModelSession, RefusesMemoryThatItCannotWriteTo) {
  ModelSession session = CompiledModel(kModel, one_thread()).session();
  std::vector<float> values = image(1), scores(10, -7);
  const Shape out{1, 10};
  const ArrayView in(values, kImage);
  EXPECT_THAT([&] { session.run({in}, {}); },
              ThrowsMessage<Error>(AllOf(HasSubstr(kModel), HasSubstr("memory for 0 outputs"))));
  EXPECT_THAT(
      [&] {
        session.run({in}, {{scores, Shape{10}}});
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("1x10"), HasSubstr("got f32 10"))));
  std::vector<double> doubles(10);
  EXPECT_THAT([&] { session.run({in}, {{doubles, out}}); }, ThrowsMessage<Error>(HasSubstr("f64")));
  EXPECT_THAT(
      [&] {
        session.run({in}, {{scores, Shape{1, 11}}});
      },
      ThrowsMessage<Error>(HasSubstr("room for 10 values")));
  EXPECT_THAT(
      [&] {
        session.run({in}, {{std::span(values).first(10), out}});
      },
      ThrowsMessage<Error>(HasSubstr("overlaps that of input")));
  const ArrayView view = session.run({in})[0];
  pipit::MutableArrayView own;
  own.shape = out;
  own.data = const_cast<void*>(view.data);
  EXPECT_THAT([&] { session.run({in}, {own}); }, ThrowsMessage<Error>(HasSubstr("memory of this session")));
  EXPECT_THAT(scores, testing::Each(-7)) << "nothing is written";
}

TEST(ModelSession, RefusesMemoryOfAGpuOnTheCpu) {
  ModelSession session = CompiledModel(kModel, one_thread()).session();
  std::vector<float> values = image(1), scores(10, -7);
  const std::vector<pipit::DeviceArray> inputs = {{values.data(), kImage}};
  const std::vector<pipit::DeviceArray> outputs = {{scores.data(), Shape{1, 10}}};
  EXPECT_THAT([&] { session.run_on_device(inputs, outputs); },
              ThrowsMessage<Error>(AllOf(HasSubstr(kModel), HasSubstr("this one runs on the CPU"))));
  EXPECT_THAT(scores, testing::Each(-7));
}

// y = x + 2 z and s = x - z, as an ONNX file: Add, Add, Sub.
std::string two_inputs() {
  using pipit::internal::test::Onnx;
  Onnx onnx;
  onnx.node("Add", {"z", "z"}, "zz").node("Add", {"x", "zz"}, "y").node("Sub", {"x", "z"}, "s");
  return onnx.input("x", {1, 4}).input("z", {1, 4}).output("y").output("s").file();
}

TEST(ModelSession, TakesInputsAndGivesOutputsByName) {
  const std::string onnx = two_inputs();
  const CompiledModel model(std::as_bytes(std::span(onnx)), "two.onnx", one_thread());
  EXPECT_EQ(model.find_input("x"), 0U);
  EXPECT_EQ(model.find_input("z"), 1U);
  EXPECT_EQ(model.find_output("s"), 1U);
  EXPECT_THAT([&] { model.find_input("y"); },
              ThrowsMessage<Error>(HasSubstr("two.onnx: there is no input 'y'; there are 'x', 'z'")));
  EXPECT_THAT([&] { model.find_output("x"); }, ThrowsMessage<Error>(HasSubstr("there are 'y', 's'")));
  ModelSession session = model.session();
  EXPECT_THAT([&] { session.output("y"); }, ThrowsMessage<Error>(HasSubstr("no output 'y' yet")));
  const Shape shape{1, 4};
  const std::vector<float> x = {1, 2, 3, 4}, z = {10, 20, 30, 40};
  session.run({{"z", {z, shape}}, {"x", {x, shape}}});
  EXPECT_THAT(session.output("y").values<float>(), testing::ElementsAre(21, 42, 63, 84));
  EXPECT_THAT(session.output("s").values<float>(), testing::ElementsAre(-9, -18, -27, -36));
  EXPECT_THAT([&] { session.output("x"); }, ThrowsMessage<Error>(HasSubstr("there are 'y', 's'")));
  const ArrayView view(x, shape);
  EXPECT_THAT(
      [&] {
        session.run({{"x", view}});
      },
      ThrowsMessage<Error>(HasSubstr("input 'z' is not given; it is f32 1x4")));
  EXPECT_THAT(
      [&] {
        session.run({{"x", view}, {"x", view}});
      },
      ThrowsMessage<Error>(HasSubstr("input 'x' is given twice")));
  EXPECT_THAT(
      [&] {
        session.run({{"x", view}, {"mask", view}});
      },
      ThrowsMessage<Error>(HasSubstr("no input 'mask'; there are 'x', 'z'")));
  std::vector<float> y(4), s(4);
  const std::vector<pipit::MutableArrayView> outputs = {{y, shape}, {s, shape}};
  session.run(pipit::NamedArrays{{"z", view}, {"x", view}}, outputs);
  EXPECT_THAT(y, testing::ElementsAre(3, 6, 9, 12));
  EXPECT_THAT(s, testing::Each(0));
  EXPECT_THAT([&] { session.output("y"); }, ThrowsMessage<Error>(HasSubstr("no output 'y' yet")));
}

TEST(ModelSession, SessionsOfOneModelRunInThreads) {
  const CompiledModel model(kModel, one_thread());
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ModelSession session = model.session();
      for (int i = 0; i < 5; ++i) results[t] = run(session, image(t));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ModelSession alone = model.session();
  for (unsigned t = 0; t < 4; ++t) EXPECT_EQ(results[t], run(alone, image(t)));
}

TEST(ModelSession, RefusesOtherInputs) {
  const CompiledModel model(kModel, one_thread());
  ModelSession session = model.session();
  const std::vector<float> values = image(1);
  const std::vector<double> doubles(values.begin(), values.end());
  EXPECT_THAT([&] { session.run({}); },
              ThrowsMessage<Error>(AllOf(HasSubstr(kModel), HasSubstr("0 inputs"))));
  EXPECT_THAT(
      [&] {
        session.run({ArrayView(values, Shape{1, 3, 1024})});
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("1x3x1024"), HasSubstr("1x3x32x32"))));
  EXPECT_THAT([&] { session.run({ArrayView(doubles, kImage)}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("f64"), HasSubstr("f32"))));
  ArrayView nothing;
  nothing.shape = kImage;
  EXPECT_THROW(session.run({nothing}), Error);
  EXPECT_THAT(
      [&] {
        ArrayView(values, Shape{1, 3, 32, 31});
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("3072"), HasSubstr("1x3x32x31"))));
  EXPECT_THAT([&] { ArrayView(values, kImage).values<double>(); }, ThrowsMessage<Error>(HasSubstr("f32")));
  EXPECT_THAT([&] { model.session(1); }, ThrowsMessage<Error>(HasSubstr("device 1")));
  EXPECT_THAT(run(session, values), SizeIs(10));  // still works
}

TEST(CompiledModel, RefusesOptionsThatMeanNothing) {
  const auto refused = [](auto&& change, const char* text) {
    LoadOptions options = one_thread();
    change(options);
    EXPECT_THAT([&] { CompiledModel(kModel, options); },
                ThrowsMessage<Error>(AllOf(HasSubstr(kModel), HasSubstr(text))));
  };
  refused([](LoadOptions& o) { o.precision = Precision::int8; }, "needs a quantization plan");
  refused([](LoadOptions& o) { o.precision = pipit::Int8{.plan = "plan.json"}; }, "plan.json");
  refused([](LoadOptions& o) { o.precision = pipit::Int8{.plan = "plan.json", .keep = {"nonsense"}}; },
          "nonsense");
  refused([](LoadOptions& o) { o.device.threads = -1; }, "threads is -1");
  refused([](LoadOptions& o) { o.kernels.prefer = {"imaginary"}; }, "no kernel 'imaginary'");
  refused([](LoadOptions& o) { o.device.gpus = {0}; }, "the device is the CPU");
  refused([](LoadOptions& o) { o.kernels.cache = "cache.json"; }, "cache.json");
  LoadOptions options = one_thread();
  options.shapes.batch = 0;
  EXPECT_THROW(CompiledModel(kModel, options), Error);
  EXPECT_THROW(CompiledModel("", {}), Error);
}

TEST(CompiledModel, ReadsFilesAndBytes) {
  const Scratch scratch("model-files");
  const std::string broken("\x08\x08\x3a\xff\xff\xff\xff\x0f", 8);  // a graph of 4 GiB
  const std::string path = scratch.write("broken.onnx", broken).string();
  EXPECT_THAT([&] { CompiledModel(path, one_thread()); }, ThrowsMessage<Error>(HasSubstr("broken.onnx")));
  EXPECT_THAT([&] { CompiledModel(std::as_bytes(std::span(broken)), "mine", one_thread()); },
              ThrowsMessage<Error>(HasSubstr("mine")));
}

TEST(Version, HasThreeNumbers) {
  EXPECT_THAT(std::string(pipit::version()), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

}  // namespace
