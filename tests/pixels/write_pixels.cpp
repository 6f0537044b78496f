// write_pixels IMAGE...: what each file shows, turned upright, for test_pillow.py to compare. Per image one line,
// "WIDTH HEIGHT" or "error: REASON", and after the first its pixels. Without images: the names of the decoders.
#include <cstdio>

#include "engine/base/error.h"
#include "models/image/decode.h"
#include "models/image/orientation.h"

int main(int argc, char** argv) {
  const pipit::internal::ImageDecoders decoders = pipit::internal::image_decoders();
  if (argc == 1)
    std::printf("%s, %s, %s\n", decoders.jpeg.c_str(), decoders.png.c_str(), decoders.webp.c_str());
  for (int i = 1; i < argc; ++i) {
    try {
      const pipit::internal::Image image =
          pipit::internal::upright(pipit::internal::decode_image(std::filesystem::path(argv[i])));
      std::printf("%d %d\n", image.width, image.height);
      std::fwrite(image.pixels.data(), 1, image.pixels.size(), stdout);
    } catch (const pipit::Error& e) {
      std::printf("error: %s\n", e.what());
    }
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
