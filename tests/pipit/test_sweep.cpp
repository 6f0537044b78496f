// Sweeps of single layers through the public headers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pipit/pipit.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/pipit/models.h"

namespace {

namespace fs = std::filesystem;
namespace tools = pipit::tools;

using pipit::ArgumentError;
using pipit::Error;
using pipit::Precision;
using pipit::internal::test::Scratch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr char kLayer[] = "1x16x9x9:24x3x3";

struct Stopped {};

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Two layers in two kernels; one of these takes none of them.
tools::ConvSweepOptions few_convolutions() {
  tools::ConvSweepOptions how;
  how.run.device.threads = 1;
  how.run.seconds = 0;
  how.grid = {{1}, {8}, {8}, {9}, {1, 3}, {1}};
  how.backends = {"auto", "depthwise"};
  return how;
}

TEST(Sweep, NamesTheConvolutionsOfAGrid) {
  EXPECT_EQ(tools::ConvGrid().points().size(), 3686U);
  tools::ConvGrid grid{{4, 4}, {8}, {16}, {64}, {3}, {1, 2}};
  const std::vector<tools::ConvPoint> points = grid.points();
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].name(), "4x8x64x64:16x3x3");
  EXPECT_EQ(points[1].name(), "4x8x64x64:16x3x3:s2");
  EXPECT_EQ(points[1].macs(), 4.0 * 8 * 16 * 9 * 32 * 32);
  EXPECT_NO_THROW(tools::check_layer(points[1].name()));
  grid.out = {4};
  EXPECT_TRUE(grid.points().empty());
  grid.all = true;
  EXPECT_EQ(grid.points().size(), 2U);
}

TEST(Sweep, HoldsConvolutionsAgainstABase) {
  tools::ConvSweepOptions how = few_convolutions();
  std::vector<std::string> told, begun;
  how.row = [&](const tools::ConvRow& row) { told.push_back(row.point.name() + " " + row.backend); };
  how.run.progress = [&](std::int64_t done, std::int64_t total, const std::string& next) {
    EXPECT_EQ(total, 2);
    EXPECT_EQ(done, std::ssize(begun));
    begun.push_back(next);
  };
  const tools::ConvSweep sweep = tools::sweep_convolutions(how);
  EXPECT_THAT(begun, ElementsAre("1x8x9x9:8x1x1", "1x8x9x9:8x3x3"));
  EXPECT_THAT(told, ElementsAre("1x8x9x9:8x1x1 auto", "1x8x9x9:8x1x1 depthwise", "1x8x9x9:8x3x3 auto",
                                "1x8x9x9:8x3x3 depthwise"));
  EXPECT_THAT(sweep.bases, ElementsAre("fp32"));
  EXPECT_EQ(sweep.threads, 1);
  EXPECT_FALSE(sweep.failed);
  ASSERT_EQ(sweep.rows.size(), 4U);
  for (const tools::ConvRow& row : sweep.rows) {
    EXPECT_EQ(row.precision, Precision::int8);
    if (row.backend == "depthwise") {
      EXPECT_THAT(row.problem, HasSubstr("not a depthwise convolution"));
      EXPECT_EQ(row.find("fp32"), nullptr);
      continue;
    }
    EXPECT_EQ(row.problem, "");
    EXPECT_LE(row.times.low_ms, row.times.ms);
    EXPECT_GE(row.times.turns, 3);
    EXPECT_GT(row.relative_l2, 0);
    EXPECT_LT(row.relative_l2, 0.05);
    const tools::ConvBase* base = row.find("fp32");
    ASSERT_NE(base, nullptr);
    EXPECT_LE(base->speedup.low, base->speedup.median);
    EXPECT_LE(base->speedup.median, base->speedup.high);
  }
  ASSERT_EQ(sweep.summaries.size(), 2U);
  EXPECT_EQ(sweep.summaries[0].all.rows, 2U);
  EXPECT_EQ(sweep.summaries[1].problems, 2U);
  EXPECT_EQ(nlohmann::json::parse(sweep.json)["rows"].size(), 4U);
  const std::string csv = tools::report(sweep.json, tools::ReportForm::csv);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 5);
  EXPECT_TRUE(csv.starts_with("device,threads,n,in,out,"));

  const Scratch scratch("sweep-document");
  const auto document =
      nlohmann::json::parse(tools::read_sweep_document(scratch.write("s.json", sweep.json)));
  EXPECT_EQ(document["summaries"], nlohmann::json::parse(sweep.json)["summaries"]);
  EXPECT_THAT([&] { tools::read_sweep_document(scratch.write("t.json", "{\"command\": \"tune\"}")); },
              ThrowsMessage<Error>(HasSubstr("t.json: it is of pipit tune")));
}

TEST(Sweep, GoesOnWhereItWasStopped) {
  const Scratch scratch("sweep-results");
  tools::ConvSweepOptions how = few_convolutions();
  how.backends = {"auto"};
  how.run.results = scratch / "rows.jsonl";
  how.row = [](const tools::ConvRow&) { throw Stopped(); };
  EXPECT_THROW(tools::sweep_convolutions(how), Stopped);
  const std::vector<std::string> first = lines_of(how.run.results);
  ASSERT_EQ(first.size(), 2U);  // what it is, and the row
  EXPECT_EQ(nlohmann::json::parse(first[1])["kernel"], 1);
  EXPECT_THAT([&] { tools::sweep_convolutions(how); }, ThrowsMessage<Error>(HasSubstr("exists already")));

  how.run.resume = true;
  int measured = 0;
  how.row = [&](const tools::ConvRow&) { ++measured; };
  const tools::ConvSweep sweep = tools::sweep_convolutions(how);
  EXPECT_EQ(measured, 1);
  EXPECT_EQ(sweep.rows.size(), 2U);
  const std::vector<std::string> all = lines_of(how.run.results);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[1], first[1]);
  how.bases = {"fp16"};
  EXPECT_THAT([&] { tools::sweep_convolutions(how); }, ThrowsMessage<Error>(HasSubstr("another sweep")));
}

TEST(Sweep, RemovesPartsOfALayer) {
  tools::SparsitySweepOptions how;
  how.run.device.threads = 1;
  how.run.seconds = 0;
  how.layers = {kLayer};
  how.keeps = {1, 0.5};
  how.modes = {tools::SparsityMode::k, tools::SparsityMode::channel};
  std::vector<std::string> begun;
  how.run.progress = [&](std::int64_t, std::int64_t total, const std::string& next) {
    EXPECT_EQ(total, 3);
    begun.push_back(next);
  };
  const tools::SparsitySweep sweep = tools::sweep_sparsity(how);
  EXPECT_EQ(begun.size(), 3U);
  ASSERT_EQ(sweep.rows.size(), 3U);
  EXPECT_FALSE(sweep.rows[0].mode);
  EXPECT_LT(sweep.rows[0].error.relative_l2, 1e-5);
  EXPECT_EQ(sweep.rows[1].mode, tools::SparsityMode::k);
  EXPECT_NEAR(sweep.rows[1].kept, 0.5, 1e-6);
  ASSERT_TRUE(sweep.rows[1].refit);
  EXPECT_LT(sweep.rows[1].refit->relative_l2, sweep.rows[1].error.relative_l2);
  EXPECT_EQ(sweep.rows[2].mode, tools::SparsityMode::channel);
  EXPECT_FALSE(sweep.rows[2].refit);
  EXPECT_GT(sweep.rows[2].speedup.median, 0);
  EXPECT_EQ(nlohmann::json::parse(sweep.json)["rows"][2]["mode"], "channel");
  const std::string csv = tools::report(sweep.json, tools::ReportForm::csv);
  EXPECT_TRUE(csv.starts_with("device,threads,layer,precision,"));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 4);

  how.run.progress = [](std::int64_t, std::int64_t, const std::string&) { throw Stopped(); };
  EXPECT_THROW(tools::sweep_sparsity(how), Stopped);
}

TEST(Sweep, RefusesWhatCannotBe) {
  const Scratch scratch("sweep-refused");
  const auto refused = [&](const char* words, const auto& change) {
    tools::ConvSweepOptions how = few_convolutions();
    how.run.results = scratch / "rows.jsonl";
    change(how);
    EXPECT_THAT([&] { tools::sweep_convolutions(how); }, ThrowsMessage<ArgumentError>(HasSubstr(words)));
    EXPECT_FALSE(fs::exists(scratch / "rows.jsonl"));
  };
  using Options = tools::ConvSweepOptions;
  refused("seconds is -1;", [](Options& how) { how.run.seconds = -1; });
  refused("needs a file", [](Options& how) { how.run.results.clear(), how.run.resume = true; });
  refused("w4", [](Options& how) { how.precisions = {Precision::w4}; });
  refused("precisions is empty", [](Options& how) { how.precisions.clear(); });
  refused("'w4'", [](Options& how) { how.bases = {"w4"}; });
  refused("cudnn runs on a GPU", [](Options& how) { how.bases = {"cudnn"}; });
  refused("extent is 0;", [](Options& how) { how.grid.batch = {0}; });
  refused("ConvGrid::all", [](Options& how) { how.grid.out = {1}; });

  const auto refused_too = [](const char* words, const auto& change) {
    tools::SparsitySweepOptions how;
    how.layers = {kLayer};
    change(how);
    EXPECT_THAT([&] { tools::sweep_sparsity(how); }, ThrowsMessage<ArgumentError>(HasSubstr(words)));
  };
  using Sparsity = tools::SparsitySweepOptions;
  refused_too("give one of them", [](Sparsity& how) { how.model = "resnet20-cifar10"; });
  refused_too("'1x16x9'", [](Sparsity& how) { how.layers = {"1x16x9:24x3x3"}; });
  refused_too("2^31", [](Sparsity& how) { how.layers = {"99999x99999x99x99:24x3x3"}; });
  refused_too("0.01", [](Sparsity& how) { how.keeps = {0.01}; });
  refused_too("group: 3", [](Sparsity& how) { how.group = 3; });
  refused_too("block: 5", [](Sparsity& how) { how.block = 5; });
}

}  // namespace
