// Images as tensors, in batches, for commands that run several sessions over the same ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/graph/tensor.h"
#include "engine/platform/thread_pool.h"
#include "models/image/folder.h"
#include "models/image/preprocess.h"
#include "models/sample_file.h"

namespace pipit::internal {

/// Arrays work in the same way: load_sample() reads both.
/// Decodes on the pool, several images at a time. Batches within `cache_bytes` are kept and decoded once, the others
/// each time they are asked for, so memory does not grow with the number of images.
class PreparedImages {
 public:
  /// The cache of a command that goes through its images several times.
  static constexpr std::size_t kUsualCacheBytes = std::size_t{512} << 20;

  /// `inputs` are the model's; for images there is one, f32 or u8, of a shape that image_input() knows.
  PreparedImages(std::vector<std::filesystem::path> images, Preprocess preprocess, SampleInputs inputs,
                 std::shared_ptr<ThreadPool> pool, std::size_t cache_bytes = 0);

  /// From now on images that cannot be used are taken out of the list when it comes to them, instead of ending the run:
  /// the others of their batch move up, so what `run` is told of counts those that are left.
  void skip_unreadable() { skip_ = true; }
  /// What was taken out, in the order of the list.
  const std::vector<UnreadableImage>& unreadable() const { return unreadable_; }

  std::int64_t size() const { return static_cast<std::int64_t>(images_.size()); }
  const std::vector<std::filesystem::path>& paths() const { return images_; }

  const SampleInputs& inputs() const { return inputs_; }

  /// Calls `run` for batch after batch, all inputs of a run with the images [first, first + count), filled up with
  /// zeros or older images. Throws Error when an image cannot be used, with skip_unreadable() when none can.
  using Run =
      std::function<void(std::span<const ConstTensorView> batch, std::int64_t first, std::int64_t count)>;
  void for_each_batch(const Run& run);

 private:
  using Batch = std::vector<Tensor>;  // one for each input

  /// Loads images [first, last) into the batches that `batch_of` gives; false where some were taken out of the list
  /// instead.
  bool load(std::int64_t first, std::int64_t last, const std::function<Batch&(std::int64_t)>& batch_of);

  std::vector<std::filesystem::path> images_;
  Preprocess preprocess_;
  SampleInputs inputs_;
  std::shared_ptr<ThreadPool> pool_;
  bool skip_ = false;
  std::vector<UnreadableImage> unreadable_;
  std::size_t most_cached_;     // batches
  std::vector<Batch> cached_;   // the first batches
  std::vector<Batch> passing_;  // memory of those being decoded
};

}  // namespace pipit::internal
