// Writes the sample images of the decoder's tests as files, which the fuzz target of images starts from.
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/models/image/image_samples.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  for (const pipit::internal::test::Sample& sample : pipit::internal::test::kSamples) {
    std::ofstream file(std::filesystem::path(argv[1]) / sample.name, std::ios::binary);
    for (const char* digits = sample.file.begin(); digits != sample.file.end(); digits += 2) {
      unsigned char byte = 0;
      std::from_chars(digits, digits + 2, byte, 16);
      file.put(static_cast<char>(byte));
    }
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s in %s\n", sample.name.data(), argv[1]);
      return 1;
    }
  }
}
