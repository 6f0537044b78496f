#include "layers/kernel_names.h"

#include <gmock/gmock.h>

#include <utility>

#include "engine/base/error.h"

namespace pipit::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Registry named_registry() {
  Registry registry;
  const auto add = [&](const char* type, DeviceKind device, const char* name) {
    registry.add(type, device, {name, [](const NodeSpec&) -> Refusal { return "never"; }, {}});
  };
  for (const char* name :
       {"tile", "tile, 16-bit storage", "tile_pairs", "winograd_f4x4", "winograd_f2x2", "gemm_1x1"})
    add("Conv", DeviceKind::cpu, name);
  add("Conv", DeviceKind::cuda, "pooled_stem");
  add("QConv", DeviceKind::cuda, "pooled_stem");
  add("QConv", DeviceKind::cuda, "resident_block");
  add("Gemm", DeviceKind::cpu, "gemm");
  return registry;
}

std::vector<std::pair<std::string, std::string>> kernel_names_of(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> result;
  for (const KernelName& kernel : kernels_named(text, named_registry()))
    result.emplace_back(kernel.layer_type, kernel.name);
  return result;
}

TEST(KernelNames, AKernelOfAnyDevice) {
  EXPECT_THAT(kernel_names_of("gemm_1x1"), ElementsAre(Pair("", "gemm_1x1")));
  EXPECT_THAT(kernel_names_of("pooled_stem"), ElementsAre(Pair("", "pooled_stem")));
  EXPECT_THAT(kernel_names_of("tile"), ElementsAre(Pair("", "tile")));
}

TEST(KernelNames, WhatSeveralHaveInCommon) {
  EXPECT_THAT(kernel_names_of("winograd"), ElementsAre(Pair("", "winograd_f2x2"), Pair("", "winograd_f4x4")));
}

TEST(KernelNames, ATypeInEveryPrecision) {
  EXPECT_THAT(kernel_names_of("Conv=pooled_stem"),
              ElementsAre(Pair("Conv", "pooled_stem"), Pair("QConv", "pooled_stem")));
  EXPECT_THAT(kernel_names_of("QConv=resident_block"), ElementsAre(Pair("QConv", "resident_block")));
}

TEST(KernelNames, OthersAreRefusedWithNearNamesOrThoseOfTheType) {
  const auto refusal = [](std::string_view text) -> std::string {
    try {
      kernels_named(text, named_registry());
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_THAT(refusal("row"), HasSubstr("no kernel 'row'; pipit inspect --why names"));
  EXPECT_THAT(refusal("gemm_1x"),
              HasSubstr("no kernel 'gemm_1x'; did you mean 'gemm_1x1', 'gemm'? pipit inspect"));
  EXPECT_THAT(refusal(""), HasSubstr("no kernel ''; pipit inspect"));
  EXPECT_THAT(refusal("tile, 16-bit storage"), HasSubstr("no kernel"));
  EXPECT_THAT(refusal("Gemm=tile"), HasSubstr("no kernel 'tile'; there are gemm"));
  EXPECT_THAT(refusal("Pool=tile"), HasSubstr("no layer type 'Pool'; there are Conv, Gemm, QConv"));
  EXPECT_THAT(refusal("=tile"), HasSubstr("no layer type ''"));
  EXPECT_THAT(refusal("Conv="), HasSubstr("no kernel ''"));
}

TEST(KernelNames, FormsOfAKernelAreCovered) {
  const KernelName tile{"tile", "Conv"};
  EXPECT_TRUE(tile.covers("Conv", "tile"));
  EXPECT_TRUE(tile.covers("Conv", "tile, 16-bit storage"));
  EXPECT_FALSE(tile.covers("Conv", "tile_pairs"));
  EXPECT_FALSE(tile.covers("QConv", "tile"));
  EXPECT_TRUE(KernelName{"tile"}.covers("QConv", "tile"));
  EXPECT_FALSE(KernelName{}.covers("QConv", "tile"));
}

}  // namespace
}  // namespace pipit::internal
