// Arithmetic intensity against rate, both of what kernels do and both logarithmic; with --floor, what the machine reaches.

// The fastest of each kind of products that the layers multiply, in GFLOP/s; the lowest first.
function arithmeticRoofs(result) {
  const used = new Set(result.layers.map((layer) => layer.products));
  const best = new Map();
  for (const a of result.ceilings.arithmetic)
    if (used.has(a.products)) best.set(a.products, Math.max(best.get(a.products) || 0, a.gflops.best));
  return [...best].map(([title, rate]) => ({ title, rate })).sort((a, b) => a.rate - b.rate);
}

// Of each memory the fastest of its loops, in GB/s.
function memoryRoofs(result) {
  return result.ceilings.memory.map((m) => ({ title: m.name,
    rate: Math.max(m.read_gb_per_s.best, m.write_gb_per_s.best, m.copy_gb_per_s.best, m.add_gb_per_s.best) }));
}

function drawRoofline(result) {
  const place = byId('roofline');
  const points = result.layers.filter((layer) => layer.flop_per_byte > 0 && layer.median_ms > 0)
    .map((layer) => ({ layer, ai: layer.flop_per_byte, rate: 2e-6 * layer.done_macs / layer.median_ms }));
  const known = Boolean(result.ceilings);
  byId('roofline-note').textContent = known
    ? 'Operations and bytes are those of the kernels, padding included. Roofs: arithmetic, and a slope for each memory. Larger dots take more time.'
    : 'Operations and bytes are those of the kernels, padding included. Larger dots take more time. Profile with --floor for the roofs of the machine.';
  if (!points.length) {
    place.replaceChildren(el('p', { class: 'note' }, 'No layer multiplies.'));
    return;
  }
  const width = widthOf(place), height = 300, left = 50, right = width - 14, top = 8, bottom = height - 40;
  const range = (values) => [10 ** (Math.log10(Math.min(...values)) - 0.15), 10 ** (Math.log10(Math.max(...values)) + 0.15)];
  const tops = known ? arithmeticRoofs(result) : [];
  const slopes = known ? memoryRoofs(result) : [];
  const highest = tops.length ? tops[tops.length - 1].rate : 0;
  const [low, high] = range([...points.map((p) => p.ai), ...slopes.map((s) => highest / s.rate)]);
  const [slow, fast] = range([...points.map((p) => p.rate), ...tops.map((t) => t.rate)]);
  const x = (ai) => left + Math.log(ai / low) / Math.log(high / low) * (right - left);
  const y = (rate) => bottom - Math.log(rate / slow) / Math.log(fast / slow) * (bottom - top);
  const image = picture(width, height, 'Rate against arithmetic intensity of ' + counted(points.length, 'layer') +
    '. The table of layers has the numbers.');
  for (const t of logTicks(low, high))
    image.append(svg('line', { class: 'grid', x1: x(t), x2: x(t), y1: top, y2: bottom }), text(x(t), bottom + 16, 'middle', String(+t.toPrecision(2))));
  for (const t of logTicks(slow, fast))
    image.append(svg('line', { class: 'grid', x1: left, x2: right, y1: y(t), y2: y(t) }), text(left - 6, y(t) + 4, 'end', String(+t.toPrecision(2))));
  // Left of where it meets the highest top, and inside of the picture.
  for (const slope of slopes) {
    const begin = Math.max(low, slow / slope.rate), end = Math.min(high, highest / slope.rate);
    if (begin >= end) continue;
    image.append(svg('path', { class: 'roof', d: 'M' + x(begin) + ' ' + y(begin * slope.rate) + 'L' + x(end) + ' ' + y(end * slope.rate) }),
      text(x(begin) + 14, y(begin * slope.rate) + 2, 'start', slope.title));
  }
  for (const topmost of tops) {
    const begin = Math.max(low, topmost.rate / slopes[0].rate);
    image.append(svg('path', { class: 'roof', d: 'M' + x(begin) + ' ' + y(topmost.rate) + 'L' + x(high) + ' ' + y(topmost.rate) }),
      text(right - 2, y(topmost.rate) - 4, 'end', topmost.title + ' ' + prefixed(1e9 * topmost.rate, 'FLOP/s')));
  }
  for (const p of [...points].sort((a, b) => b.layer.share - a.layer.share)) {
    image.append(mark(svg('circle', { class: 'mark ' + result.colours.fill(p.layer), 'fill-opacity': 0.8, cx: x(p.ai), cy: y(p.rate),
      r: 3 + 26 * Math.sqrt(p.layer.share / 4) }), p.layer, p.layer.name, () => [...describeLayer(p.layer), digits(p.ai, 3) + ' FLOP per byte']));
  }
  image.append(text((left + right) / 2, height - 6, 'middle', 'arithmetic intensity: operations of the kernel for each byte that it moves'),
    text(left + 4, top + 10, 'start', 'GFLOP/s'));
  place.replaceChildren(image);
}
