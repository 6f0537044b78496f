// A layer's attributes, told apart without a list of them: the fields of a plain struct, and their text.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine/graph/shape.h"

namespace pipit::internal {

namespace detail {

// Stands for a value of any type while fields are counted.
struct AnyField {
  template <typename T>
  operator T() const;
};

template <typename T, std::size_t... I>
constexpr bool takes_fields(std::index_sequence<I...> /*fields*/) {
  return requires {
    T{(static_cast<void>(I), AnyField{})...};
  };
}

template <typename T, std::size_t N = 0>
constexpr std::size_t count_fields() {
  if constexpr (takes_fields<T>(std::make_index_sequence<N + 1>{})) {
    return count_fields<T, N + 1>();
  } else {
    return N;
  }
}

}  // namespace detail

/// Calls `body` with a reference to every field of a struct that is an aggregate without base classes, in order.
template <typename T, typename Body>
void for_each_field(T& object, Body&& body) {
  using Struct = std::remove_const_t<T>;
  static_assert(std::is_aggregate_v<Struct>, "attributes are plain structs");
  constexpr std::size_t kFields = detail::count_fields<Struct>();
  static_assert(kFields <= 8, "add a line for structs of this many fields");
  const auto each = [&](auto&... fields) { (body(fields), ...); };
  if constexpr (kFields == 1) {
    auto& [a] = object;
    each(a);
  } else if constexpr (kFields == 2) {
    auto& [a, b] = object;
    each(a, b);
  } else if constexpr (kFields == 3) {
    auto& [a, b, c] = object;
    each(a, b, c);
  } else if constexpr (kFields == 4) {
    auto& [a, b, c, d] = object;
    each(a, b, c, d);
  } else if constexpr (kFields == 5) {
    auto& [a, b, c, d, e] = object;
    each(a, b, c, d, e);
  } else if constexpr (kFields == 6) {
    auto& [a, b, c, d, e, f] = object;
    each(a, b, c, d, e, f);
  } else if constexpr (kFields == 7) {
    auto& [a, b, c, d, e, f, g] = object;
    each(a, b, c, d, e, f, g);
  } else if constexpr (kFields == 8) {
    auto& [a, b, c, d, e, f, g, h] = object;
    each(a, b, c, d, e, f, g, h);
  }
}

/// How much of a real number is told.
enum class Reals : std::uint8_t {
  exact,
  kind,  ///< whether it is 0, 1, an infinity or none of these, as time may depend on it; of a list its length
};

template <typename T>
concept AttributeList = requires(const T& list) {
  typename T::value_type;
  list.begin();
  list.size();
};

/// Writes attributes as text that is the same for equal ones only (with Reals::exact; NaNs count as equal).
class AttributeText {
 public:
  explicit AttributeText(Reals reals) : reals_(reals) {}

  template <typename T>
  void add(const T& value) {
    if constexpr (std::is_same_v<T, Shape>) {
      add_list(value.dims());
    } else if constexpr (std::is_enum_v<T>) {
      add(static_cast<std::int64_t>(value));
    } else if constexpr (std::integral<T>) {
      add_integer(static_cast<std::int64_t>(value));
    } else if constexpr (std::floating_point<T>) {
      add_real(value);
    } else if constexpr (AttributeList<T>) {
      add_list(value);
    } else {
      text_ += '{';
      for_each_field(value, [&](const auto& field) { add(field); });
      text_ += '}';
    }
  }
  std::string take() { return std::move(text_); }

 private:
  void add_integer(std::int64_t value);
  void add_real(float value);
  void add_real(double value);
  template <typename List>
  void add_list(const List& list) {
    if (std::floating_point<typename List::value_type> && reals_ == Reals::kind) {
      return add_integer(static_cast<std::int64_t>(list.size()));
    }
    text_ += '[';
    for (const auto& element : list) add(element);
    text_ += ']';
  }

  Reals reals_;
  std::string text_;
};

}  // namespace pipit::internal
