// Which way up a photograph is: the orientation that cameras store in EXIF data.
#pragma once

#include <cstdint>
#include <span>

#include "models/image/image.h"

namespace pipit::internal {

/// The orientation (EXIF 2.32, tag 0x0112: 1 to 8) that the EXIF data of a JPEG (APP1 segment), PNG (eXIf chunk) or
/// WebP (EXIF chunk) says; 1, upright, for other files and where there is none or it is damaged. `file`: all of its
/// bytes.
int exif_orientation(std::span<const std::uint8_t> file);

/// The image turned and mirrored so that it stands upright, as Pillow's ImageOps.exif_transpose does it.
/// `image.exif_orientation` is 1 afterwards. Throws Error on any error of check_image.
Image upright(Image image);

}  // namespace pipit::internal
