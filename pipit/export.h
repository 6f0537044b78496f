/// @file
/// Which names a shared library exports.
#pragma once

/// What users of the library may call, derive from or catch. All else is hidden, also in static libraries.
#if defined(__GNUC__)
#define PIPIT_API __attribute__((visibility("default")))
#else
#define PIPIT_API
#endif
