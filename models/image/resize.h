// Resizing and centre-cropping of 8-bit RGB images with the arithmetic of Pillow and torchvision, so that a
// model sees the pixels it was trained and evaluated on.
#pragma once

#include <string_view>

#include "models/image/image.h"

namespace pipit::internal {

enum class Interpolation {
  nearest,   ///< the source pixel under the centre of the target pixel
  bilinear,  ///< triangle filter, widened when shrinking (antialiased)
  bicubic,   ///< Keys' cubic with a = -0.5, widened when shrinking (antialiased)
};

std::string_view interpolation_name(Interpolation interpolation);
/// Throws Error, listing the names, when it is not one of them.
Interpolation parse_interpolation(std::string_view name);

/// The image at another size, bit for bit what Pillow's Image.resize(size, resample) gives: a horizontal,
/// then a vertical pass, each in fixed point with 22 fractional bits and rounded to 8 bits (Pillow,
/// src/libImaging/ Resample.c; nearest: Geometry.c). Pillow 12 and later take the vertical pass first for
/// some changes of the aspect ratio; keeping to one order makes a difference of up to 1 of 255 there for
/// short-side resizing. Throws Error when the target, or the image between the passes (target width x source
/// height), is empty or above the limits in image.h.
Image resize(const Image& image, Extent target, Interpolation interpolation);

/// The size at which the short side measures `side`, keeping the aspect ratio as torchvision's Resize(side)
/// does: the long side is side * long / short, rounded down. Throws Error when it is above the limits in
/// image.h.
Extent short_side_extent(Extent image, int side);

/// The middle of the image as torchvision's CenterCrop takes it: offset (image - crop) / 2 with halves
/// rounded to even; where the image is smaller than the crop it is padded with black, the odd pixel at the
/// bottom or right.
Image center_crop(const Image& image, Extent crop);

}  // namespace pipit::internal
