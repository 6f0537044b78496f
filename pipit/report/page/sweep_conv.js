// What a sweep of convolutions is made of.

const convWay = (row) => (row.backend === 'auto' ? row.precision : row.precision + ', ' + row.backend);
const convHow = (row) => convWay(row) + (row.base ? ' against ' + row.base : '');
const convName = (row) => row.n + 'x' + row.in + 'x' + row.size + 'x' + row.size + ':' + row.out + 'x' + row.kernel + 'x' + row.kernel + (row.stride > 1 ? ':s' + row.stride : '');

// A row for each base that it was held against.
function rowsByBase(rows) {
  return rows.flatMap((row) => {
    if (row.problem || !row.against.length) return [row];
    return row.against.map((base) => (base.problem ? { ...row, base: base.base, problem: base.problem }
      : { ...row, base: base.base, base_runs: base.runs, base_ms: base.ms, speedup: base.speedup, speedup_interval95: base.speedup_interval95,
        cached_speedup: base.cached_speedup }));
  });
}

function convFigures() {
  return swept.summaries.flatMap((s) =>
    figure(shown(convHow(s)), s.layers ? times(s.speedup_geometric_mean) : '–',
      counted(s.layers, 'layer') + ': ' + s.faster + ' faster, ' + s.slower + ' slower, ' + (s.layers - s.faster - s.slower) + ' not certain' +
      (s.did_not_run ? '; ' + s.did_not_run + ' did not run' : '') +
      (s.interval95 ? '; 95 % interval ' + s.interval95.map((v) => digits(v, 3)).join(' to ') : '') +
      (s.cached ? '; ' + times(s.cached.speedup_geometric_mean) + ' with operands in the cache' : '') +
      (s.share_of_limit ? '; ' + percent(s.share_of_limit) + ' of the limit' : '')));
}

function drawBest() {
  const cell = (value, right) => el('td', { class: right ? 'right' : undefined }, value);
  byId('sweep-best-section').hidden = false;
  byId('sweep-best').replaceChildren(
    el('thead', {}, el('tr', {}, ...['How', 'Image', 'At best', 'Layer', 'Kernel'].map((title) => el('th', { scope: 'col' }, title)))),
    el('tbody', {}, ...swept.summaries.flatMap((s) => s.best_by_size.map((row) =>
      el('tr', {}, cell(shown(convHow(s))), cell(row.size + '×' + row.size, true),
        cell(timesWithin(row.against.find((base) => base.base === s.base)), true), cell(convName(row)), cell(shown(row.runs)))))));
}

// Empty where it was not measured.
const measured = (key) => (row) => (row[key] ? row[key] : '');

const kConvSweep = {
  heading: 'Convolutions',
  axes: { size: 'image size', in: 'input channels', out: 'output channels', kernel: 'window', n: 'images', stride: 'stride' },
  across: 'size', down: 'in',
  rows: rowsByBase, how: convHow, title: convName, mapped: (row) => !row.problem && row.speedup > 0,
  figures: convFigures, begin: drawBest, draw: () => {},
  errors: 'errors against sums in double precision; on a GPU operands come from memory, or where it says so from its second-level cache',
  columns: [name('Layer', convName, { head: true }), name('How', convWay), name('Kernel', (r) => r.runs), name('Against', (r) => r.base || ''),
    number('×', measured('speedup'), (v) => rounded(v)), number('low', (r) => (r.speedup ? r.speedup_interval95[0] : ''), (v) => rounded(v)),
    number('high', (r) => (r.speedup ? r.speedup_interval95[1] : ''), (v) => rounded(v)), number('ms', (r) => r.ms, ms),
    number('base ms', measured('base_ms'), (v) => (v === '' ? '' : ms(v))), name('Base kernel', (r) => r.base_runs || ''),
    number('ms in cache', measured('cached_ms'), (v) => (v === '' ? '' : ms(v))), number('× in cache', measured('cached_speedup'), (v) => rounded(v)),
    number('of the limit', measured('share_of_limit'), (v) => (v === '' ? '' : percent(v))), name('Binds', (r) => r.binds || ''),
    number('GFLOP/s', (r) => 2e-6 * r.macs / r.ms, (v) => digits(v, 3)), number('MACs', (r) => r.macs, (v) => prefixed(v)),
    number('Bytes', (r) => r.bytes, bytes), number('Arena', (r) => r.arena_bytes, bytes), number('MAE', (r) => r.mae, (v) => v.toPrecision(3)),
    number('Max', (r) => r.max_error, (v) => v.toPrecision(3)), number('Rel. L2', (r) => r.relative_l2, (v) => v.toPrecision(3))],
};
