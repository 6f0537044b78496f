// Whatever floating-point mode the caller has: the same bits, no trap, and the mode is the caller's again afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>
#include <cfenv>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "tests/pipit/models.h"

namespace {

using pipit::ArrayView;
using pipit::CompiledModel;
using pipit::LoadOptions;
using pipit::Precision;
using pipit::Shape;
using pipit::internal::test::Scratch;
namespace fs = std::filesystem;
namespace tools = pipit::tools;

constexpr char kModel[] = "resnet20-cifar10";

// The calling thread in another mode; the mode of before comes back.
class CallersMode {
 public:
  explicit CallersMode(int rounding) {
    fegetenv(&before_);
    fesetround(rounding);
  }
  ~CallersMode() { fesetenv(&before_); }
  CallersMode(const CallersMode&) = delete;
  CallersMode& operator=(const CallersMode&) = delete;

 private:
  fenv_t before_{};
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<float> image() {
  std::vector<float> values(3 * 32 * 32);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 2654435761U % 1000) / 500 - 1;
  return values;
}

LoadOptions options_for(Precision precision, const fs::path& plan) {
  LoadOptions options;
  options.device.threads = 2;
  options.precision = precision;
  if (precision == Precision::int8) options.precision = pipit::Int8{.plan = plan};
  return options;
}

std::vector<float> scores(const CompiledModel& model, const std::vector<float>& values) {
  pipit::ModelSession session = model.session();
  const std::span<const float> y = session.run({ArrayView(values, Shape{1, 3, 32, 32})})[0].values<float>();
  return {y.begin(), y.end()};
}

class FloatModes : public ::testing::Test {
 protected:
  static constexpr Precision kPrecisions[] = {Precision::fp32, Precision::fp16, Precision::int8,
                                              Precision::int8_dynamic, Precision::w8};

  void SetUp() override {
    images_ = pipit::internal::test::write_images(scratch_, 3, 40);
    plan_ = calibrated("plan.json");
  }

  fs::path calibrated(const std::string& name) {
    tools::CalibrateOptions options;
    options.load.device.threads = 1;
    tools::calibrate(kModel, images_, {.plan = scratch_ / name}, options);
    return scratch_ / name;
  }

  Scratch scratch_{"float-modes"};
  std::vector<fs::path> images_;
  fs::path plan_;
};

TEST_F(FloatModes, RoundingOfTheCallerChangesNoBit) {
  const std::vector<float> values = image();
  const std::string plan = content_of(plan_);
  for (const Precision precision : kPrecisions) {
    const LoadOptions options = options_for(precision, plan_);
    const CompiledModel nearest(kModel, options);
    const std::vector<float> expected = scores(nearest, values);
    for (const int rounding : {FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD}) {
      SCOPED_TRACE(testing::Message() << precision_name(precision) << ", rounding " << rounding);
      std::vector<float> ran, loaded;
      std::optional<CompiledModel> other;
      {
        const CallersMode mode(rounding);
        ran = scores(nearest, values);
        other.emplace(kModel, options);
        EXPECT_EQ(fegetround(), rounding);
      }
      loaded = scores(*other, values);
      EXPECT_EQ(ran, expected);
      EXPECT_EQ(loaded, expected);
    }
  }
  for (const int rounding : {FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD}) {
    SCOPED_TRACE(rounding);
    fs::path other;
    {
      const CallersMode mode(rounding);
      other = calibrated("other.json");
      EXPECT_EQ(fegetround(), rounding);
    }
    EXPECT_TRUE(content_of(other) == plan);
  }
}

TEST_F(FloatModes, ImagesAreClassifiedAlike) {
  pipit::ClassifierOptions options;
  options.load = options_for(Precision::int8, plan_);
  pipit::Classifier nearest(kModel, options);
  const std::vector<pipit::Prediction> expected = nearest.classify(images_[0], 10);
  std::vector<pipit::Prediction> found;
  {
    const CallersMode mode(FE_UPWARD);
    found = nearest.classify(images_[0], 10);
    EXPECT_EQ(fegetround(), FE_UPWARD);
  }
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].index, expected[i].index);
    EXPECT_EQ(found[i].probability, expected[i].probability);
  }
}

#if defined(__SSE__)
TEST_F(FloatModes, DenormalsTakenForZeroByTheCallerChangeNoBitOfALoadedModel) {
  const std::vector<float> values = image();
  const std::vector<float> expected = scores(CompiledModel(kModel, options_for(Precision::fp32, {})), values);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);
  const CompiledModel other(kModel, options_for(Precision::fp32, {}));
  EXPECT_EQ(_mm_getcsr() & 0x8040U, 0x8040U);
  _mm_setcsr(before);
  EXPECT_EQ(scores(other, values), expected);
}
#endif

#if defined(__GLIBC__) && defined(__x86_64__)
TEST_F(FloatModes, NothingTraps) {
  const std::vector<float> values = image();
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(precision_name(precision));
    const LoadOptions options = options_for(precision, plan_);
    const std::vector<float> expected = scores(CompiledModel(kModel, options), values);
    const CallersMode restored(FE_TONEAREST);
    const int traps = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW;
    feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(traps);
    const std::vector<float> found = scores(CompiledModel(kModel, options), values);
    EXPECT_EQ(fegetexcept(), traps);
    EXPECT_EQ(fetestexcept(traps), 0);
    fedisableexcept(FE_ALL_EXCEPT);
    EXPECT_EQ(found, expected);
  }
}

TEST_F(FloatModes, ErrorsRestoreTheMode) {
  const CompiledModel model(kModel, options_for(Precision::fp32, {}));
  pipit::ModelSession session = model.session();
  const CallersMode mode(FE_DOWNWARD);
  EXPECT_THROW(session.run(std::span<const ArrayView>()), pipit::Error);
  EXPECT_THROW(CompiledModel("no such model", {}), pipit::Error);
  EXPECT_EQ(fegetround(), FE_DOWNWARD);
}
#endif

}  // namespace
