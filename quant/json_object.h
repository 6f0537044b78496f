// Typed members of a JSON object that people edit, with errors that say what is wrong where.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "engine/base/parse_json.h"

namespace pipit::internal {

/// Every function throws Error, beginning with `where`, for a member that is missing or of another type.
class JsonObject {
 public:
  using Json = JsonDocument;

  /// Throws Error when `json`, which must outlive this, is no object.
  JsonObject(const Json& json, std::string where);

  bool has(const char* key) const { return json_.contains(key); }
  const Json& at(const char* key) const;
  std::string text(const char* key) const;
  /// A finite number; real() also fits 32-bit floating point.
  double number(const char* key) const;
  float real(const char* key) const;
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high) const;
  const Json& array(const char* key) const;
  const Json& object(const char* key, const char* form) const;
  /// Refuses members of other names, with the nearest of `keys`.
  void only(std::initializer_list<const char*> keys) const;
  [[noreturn]] void wrong(const char* key, const std::string& expected) const;
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  std::string where_;
};

}  // namespace pipit::internal
