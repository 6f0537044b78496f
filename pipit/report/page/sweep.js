// A sweep of layers: what each precision, kernel or mode brings, over what was swept, layer by layer.

const swept = data.sweep;
const sweptForm = swept && (swept.command === 'sweep sparsity' ? kSparsitySweep : kConvSweep);
const sweptRows = swept && (sweptForm.rows ? sweptForm.rows(swept.rows) : swept.rows);
const times = (value) => digits(value, 3) + ' ×';
const timesWithin = (row) => times(row.speedup) + ' [' + row.speedup_interval95.map((v) => digits(v, 3)).join(', ') + ']';
const sweptMean = (rows) => Math.exp(rows.reduce((sum, row) => sum + Math.log(row.speedup), 0) / rows.length);

// Geometric means; a cell is the stronger the further it is from 1, as in the SVG that the command writes.
function drawHeatMap() {
  const across = byId('sweep-across').value, down = byId('sweep-down').value;
  const measured = sweptRows.filter((row) => sweptForm.mapped(row) && sweptForm.how(row) === byId('sweep-how').value);
  // Words keep their order.
  const values = (axis) => {
    const all = [...new Set(measured.map((row) => row[axis]))];
    return typeof all[0] === 'number' ? all.sort((a, b) => a - b) : all;
  };
  const columns = values(across), lines = values(down);
  const place = byId('sweep-map');
  const longest = Math.max(0, ...lines.map((line) => String(line).length));
  const left = Math.max(60, 7 * Math.min(longest, 24) + 14), top = 40, high = 32, width = widthOf(place);
  const wide = Math.min(110, (width - left) / Math.max(columns.length, 1));
  const fitting = (label, room) => (7 * label.length > room ? label.slice(0, Math.max(1, Math.floor(room / 7) - 1)) + '…' : label);
  const axes = sweptForm.axes;
  const image = picture(width, top + high * lines.length + 6, 'Geometric means of speed-ups by ' + axes[across] + ' and ' + axes[down]);
  image.append(text(width, 14, 'end', axes[across] + ' →'), text(0, 14, 'start', axes[down] + ' ↓'));
  columns.forEach((column, c) => image.append(text(left + (c + 0.5) * wide, top - 8, 'middle', shown(fitting(String(column), wide)))));
  lines.forEach((line, l) => {
    image.append(text(left - 10, top + l * high + 20, 'end', shown(fitting(String(line), left - 10))));
    columns.forEach((column, c) => {
      const rows = measured.filter((row) => row[across] === column && row[down] === line);
      if (!rows.length) return;
      const mean = sweptMean(rows);
      const strength = Math.min(1, Math.abs(Math.log(mean)) / Math.log(4));
      const cell = svg('rect', { class: 'cell ' + (mean > 1 ? 'better' : 'worse'), 'fill-opacity': strength * 0.75, x: left + c * wide, y: top + l * high,
        width: wide - 2, height: high - 2 });
      const sorted = [...rows].sort((a, b) => b.speedup - a.speedup);
      const worst = sorted[sorted.length - 1];
      const words = () => [counted(rows.length, 'layer'), 'best ' + timesWithin(sorted[0]) + ', ' + sweptForm.title(sorted[0]),
        'worst ' + timesWithin(worst) + ', ' + sweptForm.title(worst)];
      image.append(mark(cell, null, column + ' and ' + line + ': ' + times(mean), words),
        text(left + (c + 0.5) * wide, top + l * high + 20, 'middle', digits(mean, 3), { class: 'lane' }));
    });
  });
  place.replaceChildren(image);
}

let sweptBy = { title: '×', down: true };

function drawSweepRows() {
  const wanted = byId('sweep-filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = sweptRows.filter((row) => !row.problem);
  const columns = sweptForm.columns, words = columns.filter((column) => !column.right);
  const rows = all.filter((row) => wanted.every((word) => words.some((column) => column.value(row).toLowerCase().includes(word))));
  sortRows(rows, columns, sweptBy);
  const shownRows = rows.slice(0, Number(byId('sweep-top').value) || rows.length);
  byId('sweep-table').replaceChildren(
    el('thead', {}, el('tr', {}, ...sortingTitles(byId('sweep-table'), columns, sweptBy, (by) => {
      sweptBy = by;
      drawSweepRows();
    }))),
    el('tbody', {}, ...shownRows.map((row) => el('tr', { class: 'swept' }, ...columns.map((column) =>
      el(column.head ? 'th' : 'td', { scope: column.head ? 'row' : undefined, class: column.right ? 'right' : undefined }, shown(column.show(column.value(row)))))))));
  const failed = sweptRows.length - all.length;
  byId('sweep-count').textContent = shownRows.length + ' of ' + counted(all.length, 'row') + (failed ? '; ' + counted(failed, 'row') + ' did not run' : '') +
    '; medians, ratios over turns with 95 % intervals, ' + sweptForm.errors;
}

function drawSweepPictures() {
  drawHeatMap();
  sweptForm.draw();
}

function drawSweep() {
  if (!swept) return;
  byId('sweep').hidden = false;
  byId('h-sweep').textContent = 'Sweep of ' + sweptForm.heading.toLowerCase();
  byId('sweep-note').textContent = [shown(swept.device), counted(swept.threads, 'thread'), counted(swept.rows.length, 'row')].join(' · ');
  for (const [id, chosen] of [['sweep-across', sweptForm.across], ['sweep-down', sweptForm.down]]) {
    byId(id).replaceChildren(...Object.entries(sweptForm.axes).map(([axis, title]) => el('option', { value: axis, selected: axis === chosen }, title)));
    byId(id).addEventListener('change', drawHeatMap);
  }
  const ways = [...new Set(sweptRows.filter((row) => row.problem || sweptForm.mapped(row)).map(sweptForm.how))];
  byId('sweep-how').replaceChildren(...ways.map((how) => el('option', { value: how }, shown(how))));
  byId('sweep-how').addEventListener('change', drawHeatMap);
  byId('sweep-filter').addEventListener('input', drawSweepRows);
  byId('sweep-top').addEventListener('change', drawSweepRows);
  byId('sweep-figures').replaceChildren(...sweptForm.figures());
  sweptForm.begin();
  drawSweepPictures();
  drawSweepRows();
}
