// Arithmetic intensity against rate, both logarithmic; with --floor, what the machine reaches.

function drawRoofline(result) {
  const place = byId('roofline');
  const points = result.layers.filter((layer) => layer.macs > 0 && layer.bytes > 0 && layer.gflops > 0)
    .map((layer) => ({ layer, ai: 2 * layer.macs / layer.bytes, rate: layer.gflops }));
  const known = result.peak_tflops > 0;
  byId('roofline-note').textContent = known
    ? 'Roofs: ' + prefixed(1e12 * result.peak_tflops, 'FLOP/s') + ' and ' + prefixed(1e12 * result.bandwidth_tbs, 'B/s') +
      ' of memory. Larger dots take more time; caches and kernels that need fewer products let some pass the roof.'
    : 'Larger dots take more time. Profile with --floor for the roofs of the machine.';
  if (!points.length) {
    place.replaceChildren(el('p', { class: 'note' }, 'No layer multiplies.'));
    return;
  }
  const width = widthOf(place), height = 300, left = 50, right = width - 14, top = 8, bottom = height - 40;
  const range = (values) => [10 ** (Math.log10(Math.min(...values)) - 0.15), 10 ** (Math.log10(Math.max(...values)) + 0.15)];
  const ridge = known ? result.peak_tflops / result.bandwidth_tbs : 1;
  const [low, high] = range([...points.map((p) => p.ai), ...(known ? [ridge] : [])]);
  const [slow, fast] = range([...points.map((p) => p.rate), ...(known ? [1e3 * result.peak_tflops] : [])]);
  const x = (ai) => left + Math.log(ai / low) / Math.log(high / low) * (right - left);
  const y = (rate) => bottom - Math.log(rate / slow) / Math.log(fast / slow) * (bottom - top);
  const image = picture(width, height, 'Rate against arithmetic intensity of ' + counted(points.length, 'layer') +
    '. The table of layers has the numbers.');
  for (const t of logTicks(low, high))
    image.append(svg('line', { class: 'grid', x1: x(t), x2: x(t), y1: top, y2: bottom }), text(x(t), bottom + 16, 'middle', String(+t.toPrecision(2))));
  for (const t of logTicks(slow, fast))
    image.append(svg('line', { class: 'grid', x1: left, x2: right, y1: y(t), y2: y(t) }), text(left - 6, y(t) + 4, 'end', String(+t.toPrecision(2))));
  if (known) {
    const roof = (ai) => Math.min(1e3 * result.peak_tflops, 1e3 * result.bandwidth_tbs * ai);
    const first = Math.max(low, slow / (1e3 * result.bandwidth_tbs));
    const corners = [first, ...(ridge > first && ridge < high ? [ridge] : []), high];
    image.append(svg('path', { class: 'roof', d: corners.map((ai, i) => (i ? 'L' : 'M') + x(ai) + ' ' + y(roof(ai))).join('') }));
  }
  for (const p of [...points].sort((a, b) => b.layer.share - a.layer.share)) {
    image.append(mark(svg('circle', { class: 'mark ' + result.colours.fill(p.layer), 'fill-opacity': 0.8, cx: x(p.ai), cy: y(p.rate),
      r: 3 + 26 * Math.sqrt(p.layer.share / 4) }), p.layer, p.layer.name, () => [...describeLayer(p.layer), digits(p.ai, 3) + ' FLOP per byte']));
  }
  image.append(text((left + right) / 2, height - 6, 'middle', 'arithmetic intensity, FLOP per byte of inputs, outputs and weights'),
    text(left + 4, top + 10, 'start', 'GFLOP/s'));
  place.replaceChildren(image);
}
