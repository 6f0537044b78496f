// Files whose bytes are part of the binary.
#pragma once

/// At namespace scope, outside of all: `name`_begin and `name`_end, with a zero byte after the file's own. `path` is a
/// literal that the build sets (cmake/PipitEmbed.cmake).
#define PIPIT_EMBED(name, path)                                           \
  asm(".section .rodata\n"                                                \
      ".balign 64\n"                                                      \
      ".local " #name                                                     \
      "_begin\n"                                                          \
      ".local " #name "_end\n" #name                                      \
      "_begin:\n"                                                         \
      ".incbin \"" path "\"\n" #name                                      \
      "_end:\n"                                                           \
      ".byte 0\n"                                                         \
      ".previous\n");                                                     \
  extern "C" {                                                            \
  extern const char name##_begin[] __attribute__((visibility("hidden"))); \
  extern const char name##_end[] __attribute__((visibility("hidden")));   \
  }
