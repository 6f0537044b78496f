// One run as it went: a lane for each layer type and kernel, and below what of the arena holds something.

const kLane = 24;
const kLiveHeight = 56;
let shownTime = null;  // [begin, end] in ms, after zooming

function drawTimeline(result) {
  const { run, layers, arena } = result;
  const place = byId('timeline');
  const { lanes } = result.colours;
  const width = widthOf(place);
  const left = 12 + 6.6 * Math.min(24, Math.max(12, ...lanes.map((lane) => lane.length)));
  const right = width - 14;
  const bottom = kLane * lanes.length + 6;
  const height = bottom + kLiveHeight + 44;
  const end = Math.max(run.ms, ...run.calls.map((call) => call.begin_ms + call.ms));
  const [from, to] = shownTime || [0, end];
  const x = (t) => left + (Math.min(Math.max(t, from), to) - from) / (to - from) * (right - left);
  const label = 'Timeline of run ' + run.index + ': ' + counted(run.calls.length, 'kernel call') + ' in ' + ms(run.ms) +
    ' ms. The table of layers has the numbers.';
  const image = picture(width, height, label);

  for (const t of ticks(from, to, Math.max(2, (right - left) / 110))) {
    image.append(svg('line', { class: 'grid', x1: x(t), x2: x(t), y1: 0, y2: height - 24 }),
      text(x(t), height - 8, t === from ? 'start' : 'middle', digits(t, 4) + (t === from ? ' ms' : '')));
  }
  lanes.forEach((lane, i) => image.append(text(left - 8, kLane * i + 17, 'end', shown(shorten(lane, 24)), { class: 'lane' })));
  for (const call of run.calls) {
    if (call.begin_ms + call.ms < from || call.begin_ms > to) continue;
    const layer = layers[call.layer];
    const lane = result.colours.lane(layer);
    const begin = x(call.begin_ms);
    image.append(mark(svg('rect', {
      class: 'mark fill' + lane, x: begin, y: kLane * lane + 3, height: kLane - 5, rx: 2,
      width: Math.max(0.8, x(call.begin_ms + call.ms) - begin),
    }), layer, layer.name, () => ['here ' + ms(call.ms) + ' ms, from ' + ms(call.begin_ms) + ' ms on',
      ...describeLayer(layer), bytes(arena.live_bytes[call.layer]) + ' of the arena alive']));
  }

  const most = Math.max(1, ...arena.live_bytes);
  const base = bottom + kLiveHeight + 14;
  const y = (value) => base - value / most * kLiveHeight;
  let path = '';
  for (const call of run.calls) {
    const level = y(arena.live_bytes[call.layer]);
    path += (path ? 'L' : 'M' + x(call.begin_ms) + ' ' + base + 'L') + x(call.begin_ms) + ' ' + level + 'L' +
      x(call.begin_ms + call.ms) + ' ' + level;
  }
  if (path) {
    image.append(svg('path', { class: 'area', d: path + 'L' + x(end) + ' ' + base + 'Z' }));
    image.append(svg('path', { class: 'live', d: path.replace(/^M\S+ \S+L/, 'M'), 'stroke-width': 1 }));
  }
  image.append(svg('line', { class: 'axis', x1: left, x2: right, y1: base, y2: base }),
    text(left - 8, base - kLiveHeight / 2, 'end', 'arena alive', { class: 'lane' }),
    text(left - 8, base - kLiveHeight / 2 + 15, 'end', 'peak ' + bytes(most)));
  addZoom(image, result, { left, right, from, to, height });
  const reset = el('button', { type: 'button', class: 'zoom' }, 'Whole run');
  reset.addEventListener('click', () => zoomTo(result, null));
  reset.hidden = shownTime === null;
  place.replaceChildren(image, reset);
  byId('timeline-note').textContent = 'Run ' + run.index + ' of ' + result.runs + ', the one nearest to the median: ' +
    ms(run.ms) + ' ms' + (result.micro_batch.runs > 1 ? ', in ' + result.micro_batch.runs + ' micro-batches' : '') +
    '. Drag to zoom; a layer leads to its row in the table.';
}

function zoomTo(result, range) {
  shownTime = range;
  hideTip();
  drawTimeline(result);
}

function addZoom(image, result, { left, right, from, to, height }) {
  let start = null;
  const brush = svg('rect', { class: 'brush', y: 0, height: height - 24, width: 0 });
  const position = (event) => {
    const box = image.getBoundingClientRect();
    return Math.min(right, Math.max(left, (event.clientX - box.left) / box.width * image.viewBox.baseVal.width));
  };
  image.append(brush);
  image.addEventListener('pointerdown', (event) => { start = position(event); });
  image.addEventListener('pointermove', (event) => {
    if (start === null) return;
    const now = position(event);
    brush.setAttribute('x', Math.min(start, now));
    brush.setAttribute('width', Math.abs(now - start));
  });
  image.addEventListener('pointerup', (event) => {
    if (start === null) return;
    const [a, b] = [start, position(event)].sort((p, q) => p - q);
    start = null;
    if (b - a < 5) return;
    const time = (p) => from + (p - left) / (right - left) * (to - from);
    zoomTo(result, [time(a), time(b)]);
  });
  image.addEventListener('pointerleave', () => {
    start = null;
    brush.setAttribute('width', 0);
  });
}

function shorten(name, most) {
  if (name.length <= most) return name;
  const half = Math.floor((most - 1) / 2);
  return name.slice(0, half) + '…' + name.slice(-half);
}

// The times of all runs, in the order in which they were taken.
function drawRuns(result) {
  const place = byId('runs');
  const times = result.samples_ms;
  const width = widthOf(place), height = 190, left = 46, right = width - 10, top = 8, bottom = height - 24;
  const high = 1.04 * Math.max(...times, result.end_to_end_p90_ms);
  const low = 0.96 * Math.min(...times);
  const x = (i) => left + (times.length > 1 ? i / (times.length - 1) : 0.5) * (right - left);
  const y = (t) => bottom - (t - low) / (high - low || 1) * (bottom - top);
  const image = picture(width, height, counted(times.length, 'run') + ' between ' + ms(Math.min(...times)) + ' and ' +
    ms(Math.max(...times)) + ' ms, median ' + ms(result.end_to_end_ms) + ' ms');
  for (const t of ticks(low, high, 5))
    image.append(svg('line', { class: 'grid', x1: left, x2: right, y1: y(t), y2: y(t) }), text(left - 6, y(t) + 4, 'end', digits(t, 4)));
  image.append(svg('rect', { class: 'band', x: left, width: right - left, y: y(result.end_to_end_p90_ms),
    height: Math.max(1, y(result.end_to_end_p10_ms) - y(result.end_to_end_p90_ms)) }),
  svg('line', { class: 'middle', x1: left, x2: right, y1: y(result.end_to_end_ms), y2: y(result.end_to_end_ms) }));
  times.forEach((t, i) => image.append(mark(svg('circle', { class: 'mark fill0', cx: x(i), cy: y(t), r: times.length > 200 ? 2 : 3.2 }),
    null, ms(t) + ' ms', () => [])));
  image.append(text(left, height - 6, 'start', 'first run'), text(right, height - 6, 'end', 'last'));
  place.replaceChildren(image);
  byId('runs-note').textContent = counted(result.runs, 'run') + (times.length < result.runs ? ', of which ' + times.length + ' are shown' : '') +
    ', ms: the line is the median, eight of ten lie in the band.';
}
