#include "models/prepared_images.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "engine/base/error.h"
#include "models/classification.h"

namespace pipit::internal {

namespace {

std::vector<Tensor> zeros(const std::vector<TensorDesc>& descs) {
  std::vector<Tensor> tensors;
  for (const TensorDesc& desc : descs) {
    Tensor& tensor = tensors.emplace_back(desc);
    std::fill_n(tensor.view().data, desc.bytes(), std::byte{});
  }
  return tensors;
}

}  // namespace

PreparedImages::PreparedImages(std::vector<std::filesystem::path> images, Preprocess preprocess,
                               SampleInputs inputs, std::shared_ptr<ThreadPool> pool, std::size_t cache_bytes)
    : images_(std::move(images)),
      preprocess_(preprocess),
      inputs_(std::move(inputs)),
      pool_(std::move(pool)),
      most_cached_(cache_bytes / std::max<std::size_t>(inputs_.bytes(), 1)) {}

bool PreparedImages::load(std::int64_t first, std::int64_t last,
                          const std::function<Batch&(std::int64_t)>& batch_of) {
  std::mutex mutex;
  std::map<std::int64_t, std::string> failed;
  const bool skip = skip_ && size() + std::ssize(unreadable_) > 1;
  pool_->parallel_for(last - first, [&](std::int64_t i, int) {
    const std::int64_t image = first + i;
    try {
      std::vector<TensorView> views;
      for (Tensor& input : batch_of(image)) views.push_back(input.view());
      load_sample(images_[static_cast<std::size_t>(image)], inputs_, preprocess_, views,
                  image % inputs_.samples, false);
    } catch (const Error& e) {
      if (!skip) throw;
      const std::lock_guard lock(mutex);
      failed.emplace(image, e.what());
    }
  });
  for (const auto& [image, error] : failed)
    unreadable_.push_back({images_[static_cast<std::size_t>(image)], error});
  for (auto it = failed.rbegin(); it != failed.rend(); ++it) images_.erase(images_.begin() + it->first);
  if (images_.empty()) fail("{} (none of {} images can be used)", unreadable_[0].error, unreadable_.size());
  return failed.empty();
}

void PreparedImages::for_each_batch(const Run& run) {
  const std::int64_t batch = inputs_.samples;
  // Several at a time, for an image is decoded by one thread.
  const std::int64_t together = std::max<std::int64_t>(1, 2 * pool_->size() / batch);
  const auto batches = [&] { return (size() + batch - 1) / batch; };
  for (std::int64_t begin = 0; begin < batches(); begin += together) {
    std::int64_t end = std::min(begin + together, batches());
    const auto known = static_cast<std::int64_t>(cached_.size());
    const auto tensors_of = [&](std::int64_t b) -> Batch& {
      return b < static_cast<std::int64_t>(cached_.size()) ? cached_[static_cast<std::size_t>(b)]
                                                           : passing_[static_cast<std::size_t>(b - begin)];
    };
    for (std::int64_t b = std::max(begin, known); b < end; ++b) {
      if (static_cast<std::size_t>(b) < most_cached_) cached_.push_back(zeros(inputs_.descs));
    }
    while (static_cast<std::int64_t>(passing_.size()) < end - begin &&
           static_cast<std::int64_t>(cached_.size()) < end)
      passing_.push_back(zeros(inputs_.descs));
    const std::int64_t first = std::max(begin, known) * batch;
    const auto batch_of = [&](std::int64_t image) -> Batch& { return tensors_of(image / batch); };
    try {
      while (first < std::min(end * batch, size()) && !load(first, std::min(end * batch, size()), batch_of)) {
      }
    } catch (...) {
      cached_.erase(cached_.begin() + known, cached_.end());  // not all of the last ones are whole
      throw;
    }
    end = std::min(end, batches());
    if (std::ssize(cached_) > std::max(known, end))
      cached_.erase(cached_.begin() + std::max(known, end), cached_.end());
    for (std::int64_t b = begin; b < end; ++b) {
      std::vector<ConstTensorView> views;
      for (const Tensor& input : tensors_of(b)) views.push_back(input.view());
      run(views, b * batch, std::min(batch, size() - b * batch));
    }
  }
}

}  // namespace pipit::internal
