// What lies where in the arena, from the step that writes it to the last one that reads it.

function drawMemory(result) {
  const { arena, layers } = result;
  const place = byId('memory');
  const width = widthOf(place), height = 300, left = 58, right = width - 10, top = 8, bottom = height - 40;
  const x = (step) => left + step / layers.length * (right - left);
  const size = Math.max(1, arena.bytes);
  const y = (offset) => bottom - offset / size * (bottom - top);
  const image = picture(width, height, 'The arena of ' + bytes(arena.bytes) + ' over ' + counted(layers.length, 'layer') +
    '; at most ' + bytes(Math.max(0, ...arena.live_bytes)) + ' hold something at once');
  const unit = [1, 1024, 1024 ** 2, 1024 ** 3].filter((u) => u <= size).pop();
  for (const v of ticks(0, size / unit, 6))
    image.append(svg('line', { class: 'grid', x1: left, x2: right, y1: y(v * unit), y2: y(v * unit) }),
      text(left - 6, y(v * unit) + 4, 'end', digits(v, 2) + (v === 0 ? '' : ' ' + bytes(unit).split(' ')[1])));
  for (const step of ticks(0, layers.length, 8).filter(Number.isInteger))
    image.append(text(x(step), bottom + 16, 'middle', String(step)));
  for (const block of arena.blocks) {
    const layer = layers[block.layer];
    const scratch = block.kind === 'scratch';
    image.append(mark(svg('rect', {
      class: 'mark ' + result.colours.fill(layer), opacity: scratch ? 0.35 : 0.85, x: x(block.first),
      width: Math.max(1, x(block.last + 1) - x(block.first)), y: y(block.offset + block.bytes),
      height: Math.max(0.8, y(block.offset) - y(block.offset + block.bytes)),
    }), layer, (scratch ? 'Scratch of ' : 'Output of ') + layer.name, () => [bytes(block.bytes) + ' at ' + bytes(block.offset),
      'alive in ' + (block.first === block.last ? 'layer ' + block.first : 'layers ' + block.first + ' to ' + block.last)]));
  }
  let path = '';
  arena.live_bytes.forEach((live, i) => { path += (path ? 'L' : 'M') + x(i) + ' ' + y(live) + 'L' + x(i + 1) + ' ' + y(live); });
  if (path) image.append(svg('path', { class: 'live', d: path, 'pointer-events': 'none' }));
  image.append(svg('line', { class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom }),
    text((left + right) / 2, height - 6, 'middle', 'layer, in the order in which they run'));
  place.replaceChildren(image);
  const { memory } = result;
  const device = result.device_memory_bytes;
  byId('memory-facts').replaceChildren(...[['weights of the graph', memory.weight_bytes, 'as it stores them; freed once packed'],
    ['packed', memory.packed_bytes, 'as kernels read them'], ['constants', memory.constant_bytes, 'that kernels read as they are'],
    ['workspace', memory.workspace_bytes, 'of the kernel that needs the most; inside the arena'],
    ['process', memory.rss_bytes, 'resident; at worst ' + bytes(memory.peak_rss_bytes)],
    ...(device ? [['GPU', device, 'held beyond its context; at worst ' + bytes(result.device_memory_peak_bytes)]] : [])]
    .flatMap(([title, size, what]) => [el('dt', {}, title), el('dd', {}, bytes(size) + ' ' + what)]));
  byId('memory-note').textContent = bytes(arena.bytes) + ' for ' + bytes(arena.activation_bytes) +
    ' of activations. Boxes: who holds which addresses for how long (pale: scratch); line: bytes alive.';
}
