// Times of models through the public headers alone: bench, compare, profiles in several settings, reports, ceilings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/pipit/models.h"

namespace {

namespace tools = pipit::tools;

using nlohmann::ordered_json;
using pipit::ArgumentError;
using pipit::DeviceKind;
using pipit::Error;
using pipit::Precision;
using pipit::internal::test::Scratch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr char kModel[] = "resnet20-cifar10";

// A short measurement: the tests are of what is made of times.
tools::BenchOptions short_bench() {
  tools::BenchOptions how;
  how.timing.threads = {1};
  how.runs = 4;
  how.warmup = 1;
  how.seconds = 60;
  return how;
}

tools::ProfileModelOptions short_profile() {
  tools::ProfileModelOptions how;
  how.timing.threads = {1};
  how.runs = 3;
  how.warmup = 1;
  return how;
}

TEST(Bench, TimesEverySettingAndComparesPrecisions) {
  tools::BenchOptions how = short_bench();
  how.seconds = 0.2;
  how.timing.precisions = {Precision::fp32, Precision::int8_dynamic};
  how.timing.batches = {2};
  how.max_slowdown = 1e6;
  std::vector<std::int64_t> done;
  how.progress = [&](std::int64_t rows, std::int64_t total, const std::string& next) {
    EXPECT_EQ(total, 2);
    EXPECT_THAT(next, HasSubstr("resnet20-cifar10, fp32, batch 2, 1 thread"));
    done.push_back(rows);
  };
  const tools::BenchResult result = tools::bench({kModel}, how);
  EXPECT_THAT(done, ElementsAre(0));  // both rows take turns
  ASSERT_THAT(result.rows, SizeIs(2));
  EXPECT_EQ(result.rows[1].precision, Precision::int8_dynamic);
  for (const tools::BenchRow& row : result.rows) {
    EXPECT_THAT(row.error, IsEmpty());
    EXPECT_EQ(row.batch, 2);
    EXPECT_EQ(row.threads, 1);
    EXPECT_EQ(row.runs, row.samples_ms.size());
    EXPECT_GT(row.median_ms, 0);
    EXPECT_NEAR(row.images_per_s, 2e3 / row.median_ms, 1e-6 * row.images_per_s);
  }
  ASSERT_THAT(result.comparisons, SizeIs(1));
  EXPECT_THAT(result.comparisons[0].second, HasSubstr("int8-dynamic"));
  EXPECT_EQ(result.comparisons[0].ratio.repeats_are, "runs");
  EXPECT_EQ(result.too_slow, result.comparisons[0].too_slow);
  const ordered_json json = ordered_json::parse(result.json);
  EXPECT_EQ(json["command"], "bench");
  EXPECT_EQ(json["results"][0]["samples_ms"].size(), result.rows[0].runs);
  EXPECT_EQ(json["failed"], result.too_slow);
  EXPECT_THAT(tools::report(result.json, tools::ReportForm::csv),
              HasSubstr("resnet20-cifar10,cpu,fp32,2,1,"));
  EXPECT_THROW(tools::report(result.json, tools::ReportForm::html), ArgumentError);
}

TEST(Bench, CountsThroughputOfStreams) {
  tools::BenchOptions how = short_bench();
  how.timing.threads = {2};
  how.streams = {2};
  const tools::BenchResult result = tools::bench({kModel}, how);
  ASSERT_THAT(result.rows, SizeIs(1));
  EXPECT_EQ(result.rows[0].streams, 2);
  ASSERT_TRUE(result.rows[0].images_per_s_p10 && result.rows[0].images_per_s_p90);
  EXPECT_LE(*result.rows[0].images_per_s_p10, *result.rows[0].images_per_s_p90);
}

TEST(Bench, GoesOnAfterARowThatFails) {
  const tools::BenchResult result = tools::bench({"missing.onnx", kModel}, short_bench());
  ASSERT_THAT(result.rows, SizeIs(2));
  EXPECT_THAT(result.rows[0].error, HasSubstr("missing.onnx"));
  EXPECT_FALSE(result.rows[0].unsupported);
  EXPECT_THAT(result.rows[1].error, IsEmpty());
  EXPECT_EQ(ordered_json::parse(result.json)["results"][0]["error"], result.rows[0].error);
}

TEST(Bench, RefusesOptionsThatCannotBe) {
  EXPECT_THROW(tools::bench({}, short_bench()), ArgumentError);
  tools::BenchOptions how = short_bench();
  how.runs = 0;
  EXPECT_THAT([&] { tools::bench({kModel}, how); }, ThrowsMessage<ArgumentError>(HasSubstr("runs is 0")));
  how = short_bench();
  how.max_slowdown = 3;  // of nothing
  EXPECT_THROW(tools::bench({kModel}, how), ArgumentError);
  how = short_bench();
  how.timing.batches = {0};
  EXPECT_THROW(tools::bench({kModel}, how), ArgumentError);
}

TEST(Bench, IsEndedByItsProgress) {
  tools::BenchOptions how = short_bench();
  how.progress = [](std::int64_t, std::int64_t, const std::string&) { throw std::runtime_error("enough"); };
  EXPECT_THAT([&] { tools::bench({kModel}, how); }, ThrowsMessage<std::runtime_error>("enough"));
}

TEST(ProfileModel, HasWhatTheCommandPrints) {
  tools::ProfileModelOptions how = short_profile();
  how.group_by = tools::GroupBy::type;
  std::vector<std::string> stages;
  std::int64_t last = 0;
  how.progress.planned = [&](const std::vector<tools::Stage>& all) {
    for (const tools::Stage& stage : all) stages.push_back(stage.name);
  };
  how.progress.update = [&](const std::string&, std::int64_t done, std::int64_t) { last = done; };
  const tools::ProfileResult result = tools::profile_model(kModel, how);
  EXPECT_THAT(stages, ElementsAre("fp32, batch 1, 1 thread"));
  EXPECT_EQ(last, 4);
  EXPECT_THAT(result.environment, Not(IsEmpty()));
  EXPECT_THAT(result.joined, IsEmpty());
  ASSERT_THAT(result.profiles, SizeIs(1));
  const tools::ModelProfile& profile = result.profiles[0];
  EXPECT_EQ(profile.runs, 3);
  EXPECT_EQ(profile.device, DeviceKind::cpu);
  EXPECT_EQ(profile.threads, 1);
  EXPECT_GT(profile.read_ms + profile.load_ms, 0);
  EXPECT_GT(profile.memory.packed_bytes, 0U);
  EXPECT_THAT(profile.memory.most_packed, Not(IsEmpty()));
  int grouped = 0;
  for (const tools::LayerGroup& group : profile.groups) grouped += group.layers;
  EXPECT_EQ(grouped, std::ssize(profile.layers));
  for (const tools::LayerTime& layer : profile.layers) {
    EXPECT_THAT(layer.samples_ms, SizeIs(3));
    EXPECT_LE(layer.p10_ms, layer.p90_ms);
    EXPECT_THAT(layer.nodes, Not(IsEmpty()));
    EXPECT_FALSE(layer.floor);
  }
  const ordered_json json = ordered_json::parse(result.json);
  EXPECT_EQ(json["layers"].size(), profile.layers.size());
  EXPECT_EQ(json["groups"].size(), profile.groups.size());
  EXPECT_EQ(json["first_run_ms"], profile.first_run_ms);
}

TEST(ProfileModel, JoinsLayersOfSeveralSettings) {
  tools::ProfileModelOptions how = short_profile();
  how.timing.precisions = {Precision::fp32, Precision::int8_dynamic};
  const tools::ProfileResult result = tools::profile_model(kModel, how);
  ASSERT_THAT(result.profiles, SizeIs(2));
  EXPECT_EQ(result.profiles[1].label, "int8-dynamic");
  ASSERT_THAT(result.joined, Not(IsEmpty()));
  for (const tools::JoinedLayer& layer : result.joined) ASSERT_THAT(layer.times, SizeIs(2));
  ASSERT_THAT(result.joined_totals, SizeIs(2));
  EXPECT_EQ(result.joined_totals[1].times[0]->median_ms, result.profiles[0].end_to_end_ms);
  EXPECT_EQ(result.joined_totals[1].times[0]->speedup, 1);
  EXPECT_EQ(ordered_json::parse(result.json)["results"].size(), 2U);
  using enum tools::ReportForm;
  EXPECT_EQ(tools::report(result.json, json), result.json);
  EXPECT_THAT(tools::report(result.json, csv), HasSubstr("model,device,precision,batch,threads,index,name"));
  EXPECT_THAT(tools::report(result.json, html), HasSubstr("<!doctype html>"));
  EXPECT_THAT(tools::report(result.json, trace), HasSubstr("\"traceEvents\":["));
  EXPECT_THROW(tools::report(result.json, trtexec), ArgumentError);  // it is of one setting
}

TEST(ProfileModel, HoldsLayersAgainstFloors) {
  Scratch cache("floors");
  setenv("PIPIT_CACHE_DIR", cache.path().c_str(), 1);
  setenv("PIPIT_SHORT_MEASUREMENTS", "1", 1);
  std::int64_t measured = 0;
  tools::CeilingsOptions of_one;
  of_one.device.threads = 1;
  of_one.progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_LE(done, total);
    measured = done;
  };
  of_one.kept = true;
  EXPECT_THAT([&] { tools::measure_ceilings(of_one); }, ThrowsMessage<Error>(HasSubstr("pipit ceilings")));
  of_one.kept = false;
  const tools::CeilingsResult ceilings = tools::measure_ceilings(of_one);
  EXPECT_GT(measured, 0);
  EXPECT_GT(ceilings.ceilings.flops("fp32"), 0);
  EXPECT_EQ(ceilings.ceilings.flops("fp31"), 0);
  EXPECT_EQ(ceilings.ceilings.memory.back().name, "memory");
  EXPECT_EQ(ordered_json::parse(ceilings.json)["ceilings"]["threads"], 1);
  of_one.kept = true;
  EXPECT_EQ(tools::measure_ceilings(of_one).ceilings.measured_at, ceilings.ceilings.measured_at);

  tools::ProfileModelOptions how = short_profile();
  how.floors = true;
  const tools::ModelProfile profile = tools::profile_model(kModel, how).profiles[0];
  ASSERT_TRUE(profile.floors);
  EXPECT_EQ(profile.floors->ceilings.measured_at, ceilings.ceilings.measured_at);
  double sum = 0;
  for (const tools::LayerTime& layer : profile.layers) sum += layer.floor->ms;
  EXPECT_NEAR(profile.floors->ms, sum, 1e-9);
  EXPECT_GT(profile.floors->convolutions_ms, 0);
  unsetenv("PIPIT_CACHE_DIR");
}

TEST(Ceilings, AreNotKeptWhenProgressThrows) {
  Scratch cache("no-ceilings");
  setenv("PIPIT_CACHE_DIR", cache.path().c_str(), 1);
  setenv("PIPIT_SHORT_MEASUREMENTS", "1", 1);
  tools::CeilingsOptions how;
  how.device.threads = 1;
  how.progress = [](std::int64_t, std::int64_t) { throw std::runtime_error("enough"); };
  EXPECT_THAT([&] { tools::measure_ceilings(how); }, ThrowsMessage<std::runtime_error>("enough"));
  how.kept = true;
  EXPECT_THROW(tools::measure_ceilings(how), Error);
  how.device.threads = -1;
  EXPECT_THROW(tools::measure_ceilings(how), ArgumentError);
  unsetenv("PIPIT_CACHE_DIR");
}

TEST(ProfileModel, IsEndedByItsProgressAndRefusesWhatCannotBe) {
  tools::ProfileModelOptions how = short_profile();
  how.progress.update = [](const std::string&, std::int64_t, std::int64_t) {
    throw std::runtime_error("enough");
  };
  EXPECT_THAT([&] { tools::profile_model(kModel, how); }, ThrowsMessage<std::runtime_error>("enough"));
  how = short_profile();
  how.runs = 0;
  EXPECT_THROW(tools::profile_model(kModel, how), ArgumentError);
  how = short_profile();
  how.timing.inputs = {"missing.npy"};
  EXPECT_THAT([&] { tools::profile_model(kModel, how); }, ThrowsMessage<Error>(HasSubstr("missing.npy")));
}

TEST(Profile, OfACompiledModelHasTheSameKeys) {
  pipit::LoadOptions load;
  load.device.threads = 1;
  const pipit::CompiledModel model(kModel, load);
  tools::ProfileOptions how;
  how.runs = 2;
  const ordered_json own = ordered_json::parse(tools::profile(model, {}, how).json);
  const ordered_json command = ordered_json::parse(tools::profile_model(kModel, short_profile()).json);
  std::vector<std::string> keys, expected;
  for (const auto& [key, value] : own.items()) keys.push_back(key);
  for (const auto& [key, value] : command.items()) expected.push_back(key);
  EXPECT_EQ(keys, expected);
}

TEST(Compare, TellsProcessesApart) {
  Scratch files("compare");
  const auto write = [&](const std::string& name, int processes, double ms) {
    std::string text;
    for (int p = 0; p < processes; ++p) {
      const ordered_json row = {{"model", "net"}, {"device", "cpu"}, {"precision", "fp32"},
                                {"batch", 1},     {"threads", 2},    {"samples_ms", {ms, ms + 0.01 * p, ms}}};
      const ordered_json document = {
          {"command", "bench"}, {"schema", 1}, {"machine", "here"}, {"results", {row}}};
      text += document.dump() + "\n";
    }
    return files.write(name, text);
  };
  const std::filesystem::path first = write("first.json", 4, 1), second = write("second.json", 4, 2);
  tools::CompareOptions how;
  how.max_slowdown = 50;
  const tools::CompareResult slower = tools::compare(first, second, how);
  ASSERT_THAT(slower.comparisons, SizeIs(1));
  EXPECT_EQ(slower.comparisons[0].ratio.change, tools::TimeChange::slower);
  EXPECT_NEAR(slower.comparisons[0].ratio.ratio, 2, 0.1);
  EXPECT_EQ(slower.comparisons[0].ratio.repeats_are, "processes");
  EXPECT_TRUE(slower.too_slow);
  EXPECT_EQ(ordered_json::parse(slower.json)["failed"], true);
  EXPECT_THAT(tools::report(slower.json, tools::ReportForm::csv), HasSubstr("run,,,1.0"));
  EXPECT_FALSE(tools::compare(second, first, how).too_slow);

  const tools::CompareResult few = tools::compare(first, write("few.json", 2, 1));
  EXPECT_EQ(few.comparisons[0].ratio.change, tools::TimeChange::unknown);
  EXPECT_THAT(few.notes, ElementsAre(HasSubstr("With 3 there is a verdict")));
  EXPECT_THAT([&] { tools::compare(first, files / "none.json"); },
              ThrowsMessage<Error>(HasSubstr("none.json")));
  how.max_slowdown = -1;
  EXPECT_THROW(tools::compare(first, second, how), ArgumentError);
}

TEST(Report, RefusesWhatIsNoResult) {
  EXPECT_THROW(tools::report("[", tools::ReportForm::csv), Error);
  EXPECT_THROW(tools::report("{}", tools::ReportForm::csv), Error);
  EXPECT_THROW(tools::report(R"({"command": "profile"})", tools::ReportForm::trace), Error);
  EXPECT_THROW(tools::pareto_svg("none", {}, {}, "accuracy"), ArgumentError);
  EXPECT_THROW(tools::pareto_svg("one", {{.ms = 1, .accuracy = std::nan(""), .label = "a"}}, {}, "accuracy"),
               ArgumentError);
}

TEST(Report, RefusesMapsWithMissingRatios) {
  tools::HeatMap map;
  map.columns = {"a", "b"};
  map.rows = {"x"};
  map.ratios = {{1.0, std::nullopt}};
  EXPECT_NE(tools::heat_map_svg({map}), "");
  map.ratios = {{1.0}};
  EXPECT_THROW(tools::heat_map_svg({map}), ArgumentError);
  map.ratios = {};
  EXPECT_THROW(tools::heat_map_svg({map}), ArgumentError);
  map.ratios = {{1.0, 0.0}};
  EXPECT_THROW(tools::heat_map_svg({map}), ArgumentError);
}

}  // namespace
