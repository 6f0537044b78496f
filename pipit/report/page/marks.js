// What all pictures share: colours of what layers are and what runs them, what a layer says when it is pointed at, axes.

const kColours = 8;

// Types with their kernels, by time; the last colour is for all that are left.
function coloursOf(result) {
  const sums = new Map();
  const key = (layer) => layer.type + ' · ' + layer.kernel;
  for (const layer of result.layers) sums.set(key(layer), (sums.get(key(layer)) || 0) + layer.median_ms);
  const keys = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a));
  const lane = (layer) => Math.min(keys.indexOf(key(layer)), kColours - 1);
  const lanes = keys.slice(0, kColours - 1);
  if (keys.length === kColours) lanes.push(keys[kColours - 1]);
  if (keys.length > kColours) lanes.push((keys.length - kColours + 1) + ' others');
  return { lane, lanes, fill: (layer) => 'fill' + lane(layer) };
}

function drawLegend(result) {
  byId('legend').replaceChildren(...result.colours.lanes.map((type, i) =>
    el('span', { role: 'listitem' }, el('span', { class: 'swatch fill' + i }), shown(type))));
}

function describeLayer(layer) {
  const lines = [layer.type + ', ' + layer.kernel + (layer.geometry ? ', ' + layer.geometry : ''),
    shape(layer.input) + ' → ' + shape(layer.output),
    'median ' + ms(layer.median_ms) + ' ms (' + ms(layer.p10_ms) + ' to ' + ms(layer.p90_ms) + '), ' +
      percent(layer.share)];
  if (layer.macs > 0) lines.push(prefixed(layer.macs, 'MACs') + ', ' + digits(layer.gflops, 3) + ' GFLOP/s');
  if (layer.floor_us > 0) lines.push('floor ' + digits(layer.floor_us, 3) + ' µs, ' + percent(layer.share_of_limit) + ' of the limit: ' + layer.bound);
  return lines;
}

function showTip(event, title, lines) {
  const tip = byId('tip');
  tip.replaceChildren(el('b', {}, shown(title)), ...lines.flatMap((line) => [shown(line), el('br')]));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 16;
  tip.style.left = Math.max(8, left) + 'px';
  tip.style.top = (below + box.height > innerHeight ? Math.max(8, event.clientY - box.height - 12) : below) + 'px';
}
const hideTip = () => { byId('tip').hidden = true; };

// A mark tells about its layer, and leads to its row.
function mark(element, layer, title, lines) {
  element.addEventListener('pointermove', (event) => showTip(event, title, lines()));
  element.addEventListener('pointerleave', hideTip);
  if (layer) element.addEventListener('click', () => showRow(layer.index));
  return element;
}

// Of an element's pictures: the width that it has, however the page is looked at.
const widthOf = (element) => Math.max(280, Math.floor(element.clientWidth || 700));

function picture(width, height, label) {
  return svg('svg', { viewBox: '0 0 ' + width + ' ' + height, height, role: 'img', 'aria-label': label });
}

function text(x, y, anchor, content, attributes) {
  return svg('text', { x, y, 'text-anchor': anchor, ...attributes }, content);
}
