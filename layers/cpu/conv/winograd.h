// Winograd's minimal filtering F(m x m, 3 x 3): m x m outputs of a 3 x 3 correlation from (m + 2)^2 products instead of
// 9 m^2 (Winograd, "Arithmetic Complexity of Computations", 1980; for networks: Lavin & Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2015).
//
// Along one axis, with filter g, inputs d and outputs y:  y = A^T [ (G g) * (B^T d) ],  * element by element; in two
// dimensions Y = A^T [ (G g G^T) * (B^T d B) ] A. The sum over input channels commutes with A, so what lies between
// the transforms is one matrix product per element of a tile.
//
// Derivation (Toom-Cook, transposed). Let V_k be the Vandermonde matrix with k columns at the points a_0 .. a_m and
// infinity (whose row is 0 .. 0 1). The product of two polynomials of 3 and m coefficients is
// V_(m+2)^-1 [ (V_3 g) * (V_m h) ]. Transposing the map h -> product gives the correlation
// y = V_m^T [ (V_3 g) * (V_(m+2)^-T d) ]. Row i of V_(m+2)^-T has the common denominator
// N_i = (a_i - a_0) .. (a_i - a_m) without the zero factor; moving it to G leaves integers in B^T:
//   A^T = V_m^T,   G = diag(1 / N) V_3,   B^T = diag(N) V_(m+2)^-T      (N of infinity is 1).
// m = 2 takes the points 0, 1, -1; m = 4 also 2, -2: small ones, because rounding errors grow with their powers.
#pragma once

#include <cstdint>

#include "layers/ops/clamp.h"

namespace pipit::internal {

/// An f32 image [height, width, channels].
struct WinogradImage {
  const float* data = nullptr;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
};

/// Where the outputs of a tile go: `rows` x `columns` of its m x m exist, at data[row * row_step + column *
/// channels + channel]. The residual lies alike.
struct WinogradOutput {
  float* data = nullptr;
  const float* residual = nullptr;  ///< may be null; may be `data`
  const float* bias = nullptr;      ///< [channels]; may be null
  std::int64_t row_step = 0;        ///< floats
  std::int64_t pixel_step = 0;      ///< floats
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t channels = 0;
  Clamp clamp;
};

/// The transforms for one m. Elements (i, j) of a transformed tile lie in planes `plane` floats apart, plane
/// i * inputs + j. All instruction sets compute the same bits.
struct WinogradTransforms {
  const char* name;  ///< "4x4"
  int outputs;       ///< m
  int inputs;        ///< m + 2

  /// G g G^T in double precision, rounded once: filters g[count][3][3], plane element i at u[i].
  void (*filters)(const float* g, std::int64_t count, float* u, std::int64_t plane);
  /// B^T d B for the tile whose first input is (row, column) of the image; what lies outside is zero. Plane element
  /// c at v[c]; up to 15 elements after the last channel are written too.
  void (*input)(const WinogradImage& image, std::int64_t row, std::int64_t column, float* v,
                std::int64_t plane);
  /// clamp(A^T m A + bias + residual); reads up to 15 elements of m after the last channel. NaN passes.
  void (*output)(const float* m, std::int64_t plane, const WinogradOutput& output);

  int products() const { return inputs * inputs; }
};

/// m is 2 or 4.
const WinogradTransforms& winograd_transforms(int m);

/// The relative error of F(m x m, 3 x 3) in f32 on a sample: one tile of pseudo-random inputs, of which every second
/// pixel is dark (zero), under up to 16 filters of weights[outputs][channels][3][3]: evenly spread ones, and those with
/// the largest and the smallest elements. An output's error is taken relative to the root of the sum of its squared
/// products, which is what it is like when signs are random, but at least to 1/100 of the filter's largest such root;
/// the result is the root mean square over all outputs and filters. So an error that is large beside one output, one
/// filter or the lit part of an image counts. Infinite where a transform overflows.
double winograd_error(const WinogradTransforms& transforms, const float* weights, std::int64_t outputs,
                      std::int64_t channels);

}  // namespace pipit::internal
