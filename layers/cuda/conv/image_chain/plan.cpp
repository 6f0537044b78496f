#include "layers/cuda/conv/image_chain/plan.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "layers/cuda/epilogue/functions.h"

namespace pipit::cuda {

namespace {

// How long ranks with two tiles take for an image, in times of those with one, as measured on an H200.
constexpr double kTwoTiles = 1.7;

// Images that a cluster computes at most, one after the other.
int rounds_of(const ImageChainPlan& plan) {
  return (plan.images + plan.clusters - 1) / plan.clusters;
}

bool are_residual_blocks(const ConvChainShape& shape) {
  if (shape.inputs.size() != 1 || shape.convs.size() % 3 != 0) return false;
  for (int c = 0; c < static_cast<int>(shape.convs.size()); c += 3) {
    const auto conv = [&](int which) { return shape.convs[static_cast<std::size_t>(c + which)]; };
    const int x = c;  // values begin with the chain's x, so this is what the previous convolution computes
    if (conv(0).x != x || conv(0).window || conv(0).residual >= 0 || conv(0).out_c != kImageInner)
      return false;
    if (conv(1).x != x + 1 || !conv(1).window || conv(1).residual >= 0 || conv(1).out_c != kImageInner)
      return false;
    if (conv(2).x != x + 2 || conv(2).window || conv(2).residual != x || conv(2).out_c != shape.inputs[0])
      return false;
  }
  return true;
}

}  // namespace

int ImageChainPlan::shared_bytes() const {
  return (x_bytes() + 1023) / 1024 * 1024 + ring * kImageStageBytes + (inner_rows() + 1) * kImageInner +
         constant_units() * kImageConstantBytes + kBlockReserved;
}

std::variant<ImageChainPlan, std::string> plan_image_chain(
    const ConvChainShape& shape, const std::function<int(const ImageChainPlan&)>& clusters) {
  if (shape.element_bytes != 1) return "only int8 is handled";
  if (shape.convs.empty() || !are_residual_blocks(shape))
    return "only residual blocks of 256 channels inside";
  ImageChainPlan plan;
  plan.channels = shape.inputs[0];
  plan.blocks = static_cast<int>(shape.convs.size()) / 3;
  plan.images = shape.images, plan.height = shape.height, plan.width = shape.width;
  if (plan.channels % kImageInner != 0) return "channels are no multiple of 256";
  if (plan.blocks > kImageMostBlocks) return "more blocks than a launch describes";
  if (std::int64_t{shape.images} * shape.height * shape.width > (1 << 30))
    return "more positions than are counted";
  double least = 0;
  ImageChainPlan best;
  for (plan.ranks = 1; plan.ranks <= kImageMostRanks; plan.ranks *= 2) {
    plan.rows = (plan.height + plan.ranks - 1) / plan.ranks;
    // Every rank has rows.
    if ((plan.ranks - 1) * plan.rows >= plan.height || plan.width > kImageMostTiles * kUnitRows) continue;
    plan.tiles = (plan.positions() + kUnitRows - 1) / kUnitRows;
    if (plan.tiles > kImageMostTiles) continue;
    // A neighbour's rows replace those that the previous window has read. The rank that sends them has received the
    // last stages of a head, so every rank has left the stages one ring earlier: with no more stages in the ring than
    // tail and head have, which are four for every chunk, these are all stages of that window.
    static_assert(kImageMostRing <= 4 * kImageHalves);  // the fewest chunks
    plan.ring = kImageMostRing;
    while (plan.ring > 2 && plan.shared_bytes() > kBlockMostShared) plan.ring -= 2;
    if (plan.ring < 4 || plan.shared_bytes() > kBlockMostShared) continue;
    plan.clusters = clusters(plan);
    if (plan.clusters == 0) continue;
    const double time = rounds_of(plan) * (plan.tiles == 1 ? 1.0 : kTwoTiles);
    if (least > 0 && time >= least) continue;
    least = time, best = plan;
  }
  if (least == 0) return "an image's values do not fit shared memory";
  return best;
}

// Every cluster takes as long for its last image as for the others. So one launch is faster where nearly all clusters
// have images until the end: the limit of 95 % lies between 91 % (slower) and 97 % (faster) of the clusters for the
// 14x14 blocks of ResNet-50 on an H200. With one tile it was not measured in a network.
bool image_chain_pays(const ImageChainPlan& plan) {
  return plan.tiles == 2 &&
         std::int64_t{plan.images} * 20 >= std::int64_t{rounds_of(plan)} * plan.clusters * 19;
}

void append_image_weights(const ImageChainPlan& plan, const std::byte* head, const std::byte* window,
                          const std::byte* tail, std::vector<std::byte>& to) {
  const auto unit = [&](const std::byte* weights, int in_c, int taps, int tap, int chunk, int output) {
    to.resize(to.size() + std::size_t{kUnitChannels} * kImageStageDepth);
    pack_unit(weights, in_c, taps, tap, chunk * kImageStageDepth, output, true, 1,
              &to[to.size() - std::size_t{kUnitChannels} * kImageStageDepth], kImageStageDepth);
  };
  const auto stages_of_128 = [&](const std::byte* weights, int in_c, int taps) {
    for (int tap = 0; tap < taps; ++tap) {
      for (int chunk = 0; chunk < in_c / kImageStageDepth; ++chunk) {
        for (int output = 0; output < kImageInner; output += kUnitChannels)
          unit(weights, in_c, taps, tap, chunk, output);
      }
    }
  };
  stages_of_128(head, plan.channels, 1);
  stages_of_128(window, kImageInner, kBlockTaps);
  for (int output = 0; output < plan.channels; output += kImageInner) {
    for (int first = 0; first < kImageStageOutputs; first += kUnitChannels) {
      for (int half = 0; half < kImageHalves; ++half) {
        for (int chunk = 0; chunk < kImageInnerChunks; ++chunk)
          unit(tail, kImageInner, 1, 0, chunk, output + half * kImageStageOutputs + first);
      }
    }
  }
}

void begin_with_magic(std::vector<std::byte>& constants) {
  for (std::size_t unit = 0; unit < constants.size(); unit += kImageConstantBytes) {
    for (std::size_t at = unit; at < unit + kUnitChannels * 4; at += 4) {
      std::int32_t bias = 0;
      std::memcpy(&bias, &constants[at], 4);
      bias += kMagicBits;
      std::memcpy(&constants[at], &bias, 4);
    }
  }
}

}  // namespace pipit::cuda
