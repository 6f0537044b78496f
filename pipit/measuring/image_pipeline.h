// A model over many images: decoding overlaps computing, results come in the order of the images.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>

#include "pipit/measuring/runner.h"

namespace pipit::internal::detail {

/// What became of one image.
struct ImageResult {
  std::int64_t image = 0;         ///< position in the list
  std::size_t runner = 0;         ///< which of the runners had it
  std::span<const float> scores;  ///< all of the image, valid during the call; empty where there is an error
  std::exception_ptr error;       ///< why the image could not be read, or its batch not be run
  bool unreadable = false;        ///< the error is that of this image
  LoadedImage loaded;             ///< nothing where it could not be read
  double decode_ms = 0;           ///< reading, decoding and preprocessing, in one thread
  double run_ms = 0;              ///< its share of the kernel time of its batch
};

/// Reads the images, `output.batch` to a run, and calls `consume` for each in order, one call at a time, in any thread.
/// An image that cannot be read is zeros in its batch, which runs with the others. Batch b goes to runner
/// b % runners.size(); all runners have plans of the same graph. What `consume` throws, and a batch that cannot even be
/// submitted, end the run; nothing is consumed after that.
///
/// At most as many threads as the pool of runners[0] has are busy. On the CPU they take turns: they decode a few
/// images for each thread, then compute, since two sets of threads would only slow each other down. Where a GPU
/// computes they decode all the time; the one that needs memory of an earlier batch consumes its results first.
void run_images(std::span<Runner> runners, const Preprocess& preprocess, const ClassOutput& output,
                std::span<const std::filesystem::path> images,
                const std::function<void(const ImageResult&)>& consume);

}  // namespace pipit::internal::detail
