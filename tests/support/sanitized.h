#pragma once

// PIPIT_SANITIZED: whether AddressSanitizer or ThreadSanitizer, which bring an allocator of their own, are compiled in.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PIPIT_SANITIZED 1
#elif defined(__has_feature)  // clang before release 22
#define PIPIT_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define PIPIT_SANITIZED 0
#endif
