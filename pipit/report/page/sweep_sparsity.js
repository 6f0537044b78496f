// What a sweep of pruned layers is made of: time and loss, over modes and shares that are kept.

// Of the layer's output: 0 is all there, 1 none of it; after the fit where there is one.
const lossOf = (row) => (row.refit || row.error).relative_l2;
const prunedTitle = (row) => row.layer + ', ' + row.mode + (row.mode === 'dense' ? '' : ', keep ' + row.keep);
const isPruned = (row) => !row.problem && row.mode !== 'dense';
// Differences below it may come of where memory lies.
const kPlaceEffect = 0.01;

// Of each precision what is the fastest way, over all layers, that loses at most so much of any output.
function sparsityFigures() {
  const precisions = [...new Set(swept.rows.map((row) => row.precision))];
  return precisions.flatMap((precision) => {
    const rows = swept.rows.filter((row) => isPruned(row) && row.precision === precision);
    const ways = new Map();
    for (const row of rows) {
      const way = row.mode + ', keep ' + row.keep;
      ways.set(way, [...(ways.get(way) || []), row]);
    }
    const best = (limit) => [...ways].filter(([, of]) => Math.max(...of.map(lossOf)) <= limit)
      .map(([way, of]) => ({ way, speedup: sweptMean(of) })).sort((a, b) => b.speedup - a.speedup)[0];
    const faster = rows.filter((row) => row.speedup_interval95[0] > 1 + kPlaceEffect).length;
    const slower = rows.filter((row) => row.speedup_interval95[1] < 1 / (1 + kPlaceEffect)).length;
    const failed = swept.rows.filter((row) => row.problem && row.precision === precision).length;
    const at = (limit) => {
      const found = best(limit);
      return figure(shown(precision) + ', at most ' + 100 * limit + ' % lost', found ? times(found.speedup) : '–',
        found ? shown(found.way) : 'nothing that was tried loses so little in all layers');
    };
    return [...at(0.1), ...at(0.3), ...figure(shown(precision), counted(rows.length, 'row'),
      faster + ' faster than dense, ' + slower + ' slower, ' + (rows.length - faster - slower) + ' not certain' + (failed ? '; ' + failed + ' did not run' : ''))];
  });
}

// Those that no other row beats in both, the slowest first.
function frontOf(rows) {
  let least = Infinity;
  return [...rows].sort((a, b) => b.speedup - a.speedup || lossOf(a) - lossOf(b))
    .filter((row) => lossOf(row) < least && ((least = lossOf(row)), true)).reverse();
}

function drawTrade() {
  const place = byId('sweep-trade'), layer = byId('sweep-layer').value;
  const rows = swept.rows.filter((row) => isPruned(row) && row.layer === layer && row.precision === byId('sweep-how').value);
  const modes = [...new Set(swept.rows.filter(isPruned).map((row) => row.mode))];
  byId('sweep-modes').replaceChildren(...modes.map((mode, i) =>
    el('span', { role: 'listitem' }, el('span', { class: 'swatch fill' + i }), shown(mode))));
  if (!rows.length) {
    place.replaceChildren(el('p', { class: 'note' }, 'Nothing was measured of this layer.'));
    return;
  }
  const width = widthOf(place), height = 300, left = 50, right = width - 14, top = 14, bottom = height - 40;
  const speedups = rows.map((row) => row.speedup);
  const slow = Math.min(1, ...speedups) * 0.97, fast = Math.max(1, ...speedups) * 1.03, most = Math.max(...rows.map(lossOf)) * 1.05 || 1;
  const x = (speedup) => left + (speedup - slow) / (fast - slow) * (right - left);
  const y = (loss) => bottom - loss / most * (bottom - top);
  const image = picture(width, height, 'Loss against speed-up of ' + counted(rows.length, 'way') + ' to prune ' + shown(layer) + '. The table has the numbers.');
  for (const t of ticks(slow, fast, 6))
    image.append(svg('line', { class: 'grid', x1: x(t), x2: x(t), y1: top, y2: bottom }), text(x(t), bottom + 16, 'middle', String(+t.toPrecision(3))));
  for (const t of ticks(0, most, 5))
    image.append(svg('line', { class: 'grid', x1: left, x2: right, y1: y(t), y2: y(t) }), text(left - 6, y(t) + 4, 'end', String(+(100 * t).toPrecision(3))));
  image.append(svg('line', { class: 'axis', x1: x(1), x2: x(1), y1: top, y2: bottom }),
    svg('path', { class: 'live', d: 'M' + frontOf(rows).map((row) => x(row.speedup) + ' ' + y(lossOf(row))).join('L') }));
  for (const row of rows) {
    const words = () => [timesWithin(row) + ', ' + ms(row.ms) + ' of ' + ms(row.dense_ms) + ' ms', percent(lossOf(row)) + ' of the output lost' +
      (row.refit ? ', before the fit ' + percent(row.error.relative_l2) : ''), row.kernel];
    image.append(mark(svg('circle', { class: 'mark fill' + Math.min(modes.indexOf(row.mode), kColours - 1), cx: x(row.speedup), cy: y(lossOf(row)), r: 5.5 }),
      null, prunedTitle(row), words));
  }
  image.append(text((left + right) / 2, height - 6, 'middle', 'times as fast as the dense layer'), text(left + 4, top, 'start', '% of the output lost'));
  place.replaceChildren(image);
}

function beginTrade() {
  byId('sweep-trade-section').hidden = false;
  const layers = [...new Set(swept.rows.map((row) => row.layer))];
  byId('sweep-layer').replaceChildren(...layers.map((layer) => el('option', { value: layer }, shown(layer))));
  byId('sweep-layer').addEventListener('change', drawTrade);
  byId('sweep-how').addEventListener('change', drawTrade);
}

const fitted = (key) => (row) => (row.refit ? row.refit[key] : '');
const rounded = (value) => (value === '' ? '' : value.toPrecision(3));

const kSparsitySweep = {
  heading: 'Pruned layers',
  axes: { keep: 'share that is kept', mode: 'what is removed', layer: 'layer' },
  across: 'keep', down: 'mode',
  how: (row) => row.precision, title: prunedTitle, mapped: isPruned,
  figures: sparsityFigures, begin: beginTrade, draw: drawTrade,
  errors: 'errors against the dense layer in fp32',
  columns: [name('Layer', (r) => r.layer, { head: true }), name('Precision', (r) => r.precision), name('Mode', (r) => r.mode),
    number('Keep', (r) => r.keep, percent), number('MACs left', (r) => r.kept, percent), number('×', (r) => r.speedup, (v) => digits(v, 3)),
    number('low', (r) => r.speedup_interval95[0], (v) => digits(v, 3)), number('high', (r) => r.speedup_interval95[1], (v) => digits(v, 3)),
    number('ms', (r) => r.ms, ms), number('dense ms', (r) => r.dense_ms, ms), name('Kernel', (r) => r.kernel), name('Dense kernel', (r) => r.dense_kernel),
    number('Rel. L2', (r) => r.error.relative_l2, rounded), number('after the fit', fitted('relative_l2'), rounded),
    number('Top-10', (r) => r.error.top10, percent), number('top-10 after', fitted('top10'), (v) => (v === '' ? '' : percent(v))),
    number('MAE', (r) => r.error.mae, rounded), number('Max', (r) => r.error.max_error, rounded)],
};
