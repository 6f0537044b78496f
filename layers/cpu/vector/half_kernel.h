// Conversions of stored halves, included once per instruction set after Lanes.

template <typename From, typename To>
void convert_span(const From* x, To* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + Lanes::kCount <= count; i += Lanes::kCount) Lanes::store(y + i, Lanes::load(x + i));
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    Lanes::store(y + i, Lanes::load(x + i, rest), rest);
  }
}
