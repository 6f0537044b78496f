// A sweep of convolutions: what each precision and kernel brings, over sizes, layer by layer.

const kSweepAxes = { size: 'image size', in: 'input channels', out: 'output channels', kernel: 'window', n: 'images', stride: 'stride' };
const swept = data.sweep;
const sweptHow = (row) => (row.backend === 'auto' ? row.precision : row.precision + ', ' + row.backend);
const sweptName = (row) => row.n + 'x' + row.in + 'x' + row.size + 'x' + row.size + ':' + row.out + 'x' + row.kernel + 'x' + row.kernel + (row.stride > 1 ? ':s' + row.stride : '');
const times = (value) => digits(value, 3) + ' ×';
const timesWithin = (row) => times(row.speedup) + ' [' + row.speedup_interval95.map((v) => digits(v, 3)).join(', ') + ']';
const sweptMean = (rows) => Math.exp(rows.reduce((sum, row) => sum + Math.log(row.speedup), 0) / rows.length);

function drawSweepFigures() {
  byId('sweep-figures').replaceChildren(...swept.summaries.flatMap((s) =>
    figure(shown(sweptHow(s)) + ' against ' + shown(swept.base), s.layers ? times(s.speedup_geometric_mean) : '–',
      counted(s.layers, 'layer') + ': ' + s.faster + ' faster, ' + s.slower + ' slower, ' + (s.layers - s.faster - s.slower) + ' not certain' +
      (s.did_not_run ? '; ' + s.did_not_run + ' did not run' : ''))));
}

// Geometric means; a cell is the stronger the further it is from 1, as in the SVG that the command writes.
function drawHeatMap() {
  const across = byId('sweep-across').value, down = byId('sweep-down').value;
  const measured = swept.rows.filter((row) => !row.problem && sweptHow(row) === byId('sweep-how').value);
  const values = (axis) => [...new Set(measured.map((row) => row[axis]))].sort((a, b) => a - b);
  const columns = values(across), lines = values(down);
  const place = byId('sweep-map');
  const left = 60, top = 40, high = 32, width = widthOf(place), wide = Math.min(110, (width - left) / Math.max(columns.length, 1));
  const image = picture(width, top + high * lines.length + 6, 'Geometric means of speed-ups by ' + kSweepAxes[across] + ' and ' + kSweepAxes[down]);
  image.append(text(width, 14, 'end', kSweepAxes[across] + ' →'), text(0, 14, 'start', kSweepAxes[down] + ' ↓'));
  columns.forEach((column, c) => image.append(text(left + (c + 0.5) * wide, top - 8, 'middle', String(column))));
  lines.forEach((line, l) => {
    image.append(text(left - 10, top + l * high + 20, 'end', String(line)));
    columns.forEach((column, c) => {
      const rows = measured.filter((row) => row[across] === column && row[down] === line);
      if (!rows.length) return;
      const mean = sweptMean(rows);
      const strength = Math.min(1, Math.abs(Math.log(mean)) / Math.log(4));
      const cell = svg('rect', { class: 'cell ' + (mean > 1 ? 'better' : 'worse'), 'fill-opacity': strength * 0.75, x: left + c * wide, y: top + l * high,
        width: wide - 2, height: high - 2 });
      const sorted = [...rows].sort((a, b) => b.speedup - a.speedup);
      const words = () => [counted(rows.length, 'layer'), 'best ' + timesWithin(sorted[0]) + ', ' + sweptName(sorted[0]),
        'worst ' + timesWithin(sorted[sorted.length - 1]) + ', ' + sweptName(sorted[sorted.length - 1])];
      image.append(mark(cell, null, column + ' and ' + line + ': ' + times(mean), words),
        text(left + (c + 0.5) * wide, top + l * high + 20, 'middle', digits(mean, 3), { class: 'lane' }));
    });
  });
  place.replaceChildren(image);
}

function drawBest() {
  const cell = (value, right) => el('td', { class: right ? 'right' : undefined }, value);
  byId('sweep-best').replaceChildren(
    el('thead', {}, el('tr', {}, ...['How', 'Image', 'At best', 'Layer', 'Kernel'].map((title) => el('th', { scope: 'col' }, title)))),
    el('tbody', {}, ...swept.summaries.flatMap((s) => s.best_by_size.map((row) =>
      el('tr', {}, cell(shown(sweptHow(s))), cell(row.size + '×' + row.size, true), cell(timesWithin(row), true), cell(sweptName(row)), cell(shown(row.runs)))))));
}

const sweptColumns = [name('Layer', sweptName, { head: true }), name('How', sweptHow), name('Kernel', (r) => r.runs),
  number('×', (r) => r.speedup, (v) => digits(v, 3)), number('low', (r) => r.speedup_interval95[0], (v) => digits(v, 3)),
  number('high', (r) => r.speedup_interval95[1], (v) => digits(v, 3)), number('ms', (r) => r.ms, ms), number('base ms', (r) => r.base_ms, ms),
  name('Base kernel', (r) => r.base_runs), number('GFLOP/s', (r) => 2e-6 * r.macs / r.ms, (v) => digits(v, 3)), number('MACs', (r) => r.macs, (v) => prefixed(v)),
  number('Bytes', (r) => r.bytes, bytes), number('Arena', (r) => r.arena_bytes, bytes), number('MAE', (r) => r.mae, (v) => v.toPrecision(3)),
  number('Max', (r) => r.max_error, (v) => v.toPrecision(3)), number('Rel. L2', (r) => r.relative_l2, (v) => v.toPrecision(3))];
let sweptBy = { title: '×', down: true };

function drawSweepRows() {
  const wanted = byId('sweep-filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = swept.rows.filter((row) => !row.problem);
  const rows = all.filter((row) => wanted.every((word) => [sweptName(row), sweptHow(row), row.runs].some((cell) => cell.toLowerCase().includes(word))));
  sortRows(rows, sweptColumns, sweptBy);
  const shownRows = rows.slice(0, Number(byId('sweep-top').value) || rows.length);
  byId('sweep-table').replaceChildren(
    el('thead', {}, el('tr', {}, ...sortingTitles(byId('sweep-table'), sweptColumns, sweptBy, (by) => {
      sweptBy = by;
      drawSweepRows();
    }))),
    el('tbody', {}, ...shownRows.map((row) => el('tr', { class: 'swept' }, ...sweptColumns.map((column) =>
      el(column.head ? 'th' : 'td', { scope: column.head ? 'row' : undefined, class: column.right ? 'right' : undefined }, shown(column.show(column.value(row)))))))));
  const failed = swept.rows.length - all.length;
  byId('sweep-count').textContent = shownRows.length + ' of ' + counted(all.length, 'row') + (failed ? '; ' + counted(failed, 'row') + ' did not run' : '') +
    '; medians, ratios over turns with 95 % intervals, errors against sums in double precision';
}

function drawSweep() {
  if (!swept) return;
  byId('sweep').hidden = false;
  byId('sweep-note').textContent = [shown(swept.device), counted(swept.threads, 'thread'), counted(swept.rows.length, 'row')].join(' · ');
  for (const [id, chosen] of [['sweep-across', 'size'], ['sweep-down', 'in']]) {
    byId(id).replaceChildren(...Object.entries(kSweepAxes).map(([axis, title]) => el('option', { value: axis, selected: axis === chosen }, title)));
    byId(id).addEventListener('change', drawHeatMap);
  }
  byId('sweep-how').replaceChildren(...swept.summaries.map((s) => el('option', { value: sweptHow(s) }, shown(sweptHow(s)))));
  byId('sweep-how').addEventListener('change', drawHeatMap);
  byId('sweep-filter').addEventListener('input', drawSweepRows);
  byId('sweep-top').addEventListener('change', drawSweepRows);
  drawSweepFigures();
  drawHeatMap();
  drawBest();
  drawSweepRows();
}
