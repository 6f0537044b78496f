// What a sweep of convolutions is made of.

const convHow = (row) => (row.backend === 'auto' ? row.precision : row.precision + ', ' + row.backend);
const convName = (row) => row.n + 'x' + row.in + 'x' + row.size + 'x' + row.size + ':' + row.out + 'x' + row.kernel + 'x' + row.kernel + (row.stride > 1 ? ':s' + row.stride : '');

function convFigures() {
  return swept.summaries.flatMap((s) =>
    figure(shown(convHow(s)) + ' against ' + shown(swept.base), s.layers ? times(s.speedup_geometric_mean) : '–',
      counted(s.layers, 'layer') + ': ' + s.faster + ' faster, ' + s.slower + ' slower, ' + (s.layers - s.faster - s.slower) + ' not certain' +
      (s.did_not_run ? '; ' + s.did_not_run + ' did not run' : '')));
}

function drawBest() {
  const cell = (value, right) => el('td', { class: right ? 'right' : undefined }, value);
  byId('sweep-best-section').hidden = false;
  byId('sweep-best').replaceChildren(
    el('thead', {}, el('tr', {}, ...['How', 'Image', 'At best', 'Layer', 'Kernel'].map((title) => el('th', { scope: 'col' }, title)))),
    el('tbody', {}, ...swept.summaries.flatMap((s) => s.best_by_size.map((row) =>
      el('tr', {}, cell(shown(convHow(s))), cell(row.size + '×' + row.size, true), cell(timesWithin(row), true), cell(convName(row)), cell(shown(row.runs)))))));
}

const kConvSweep = {
  heading: 'Convolutions',
  axes: { size: 'image size', in: 'input channels', out: 'output channels', kernel: 'window', n: 'images', stride: 'stride' },
  across: 'size', down: 'in',
  how: convHow, title: convName, mapped: (row) => !row.problem,
  figures: convFigures, begin: drawBest, draw: () => {},
  errors: 'errors against sums in double precision',
  columns: [name('Layer', convName, { head: true }), name('How', convHow), name('Kernel', (r) => r.runs),
    number('×', (r) => r.speedup, (v) => digits(v, 3)), number('low', (r) => r.speedup_interval95[0], (v) => digits(v, 3)),
    number('high', (r) => r.speedup_interval95[1], (v) => digits(v, 3)), number('ms', (r) => r.ms, ms), number('base ms', (r) => r.base_ms, ms),
    name('Base kernel', (r) => r.base_runs), number('GFLOP/s', (r) => 2e-6 * r.macs / r.ms, (v) => digits(v, 3)), number('MACs', (r) => r.macs, (v) => prefixed(v)),
    number('Bytes', (r) => r.bytes, bytes), number('Arena', (r) => r.arena_bytes, bytes), number('MAE', (r) => r.mae, (v) => v.toPrecision(3)),
    number('Max', (r) => r.max_error, (v) => v.toPrecision(3)), number('Rel. L2', (r) => r.relative_l2, (v) => v.toPrecision(3))],
};
