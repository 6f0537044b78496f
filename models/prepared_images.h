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

namespace pipit::internal {

/// Decodes on the pool, several images at a time. Batches within `cache_bytes` are kept and decoded once, the others
/// each time they are asked for, so memory does not grow with the number of images.
class PreparedImages {
 public:
  /// `input`: f32 or u8, of a shape that image_input() knows.
  /// What a command keeps that goes through its images several times.
  static constexpr std::size_t kUsualCacheBytes = std::size_t{512} << 20;

  PreparedImages(std::vector<std::filesystem::path> images, Preprocess preprocess, const TensorDesc& input,
                 std::shared_ptr<ThreadPool> pool, std::size_t cache_bytes = 0);

  /// From now on images that cannot be used are taken out of the list when it comes to them, instead of ending the run:
  /// the others of their batch move up, so what `run` is told of counts those that are left.
  void skip_unreadable() { skip_ = true; }
  /// What was taken out, in the order of the list.
  const std::vector<UnreadableImage>& unreadable() const { return unreadable_; }

  std::int64_t size() const { return static_cast<std::int64_t>(images_.size()); }
  const std::vector<std::filesystem::path>& paths() const { return images_; }

  /// Calls `run` for batch after batch with the images [first, first + count), filled up with zeros or older images.
  /// Throws Error when an image cannot be used, with skip_unreadable() when none can.
  using Run = std::function<void(const ConstTensorView& batch, std::int64_t first, std::int64_t count)>;
  void for_each_batch(const Run& run);

 private:
  /// Loads images [first, last) into the batches that `batch_of` gives; false where some were taken out of the list
  /// instead.
  bool load(std::int64_t first, std::int64_t last, const std::function<Tensor&(std::int64_t)>& batch_of);
  std::int64_t batch() const;

  std::vector<std::filesystem::path> images_;
  Preprocess preprocess_;
  TensorDesc input_;
  std::shared_ptr<ThreadPool> pool_;
  bool skip_ = false;
  std::vector<UnreadableImage> unreadable_;
  std::size_t most_cached_;      // batches
  std::vector<Tensor> cached_;   // the first batches
  std::vector<Tensor> passing_;  // memory of those being decoded
};

}  // namespace pipit::internal
