// Images that one core decodes in a second: bench_decode FOLDER [ROUNDS].
//
// Built twice, on the decoders of this build and on stb_image (bench_decode_stb); take turns with them. Files stay in
// the page cache after the first round, which does not count.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/statistics.h"
#include "models/image/decode.h"

int main(int count, char** arguments) try {
  if (count < 2) {
    fmt::print(stderr, "bench_decode: needs a folder of images\n");
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(arguments[1])) files.push_back(entry.path());
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 5;
  std::vector<double> rates;
  std::size_t bytes = 0;
  for (int round = 0; round <= rounds; ++round) {
    const auto begin = pipit::internal::Clock::now();
    for (const auto& file : files) bytes += pipit::internal::decode_image(file).pixels.size();
    if (round > 0)
      rates.push_back(1e3 * static_cast<double>(files.size()) / pipit::internal::milliseconds_since(begin));
  }
  if (bytes == 0 || rates.empty()) {
    fmt::print(stderr, "bench_decode: nothing was decoded\n");
    return 1;
  }
  fmt::print("{}: {:.0f} images/s, quartiles {:.0f} to {:.0f}\n", pipit::internal::image_decoders().jpeg,
             pipit::internal::quantile(rates, 0.5), pipit::internal::quantile(rates, 0.25),
             pipit::internal::quantile(rates, 0.75));
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "bench_decode: {}\n", e.what());
  return 1;
}
