// The table of layers, sorted by its titles and filtered by what is typed, and that of several settings.

const number = (title, value, show, extra) => ({ title, value, show, right: true, ...extra });
const name = (title, value, extra) => ({ title, value, show: (v) => v, ...extra });
const stored = (layer) => (layer.input_type === layer.output_type ? layer.output_type : layer.input_type + ' → ' + layer.output_type);

function columnsOf(result) {
  const columns = [number('#', (l) => l.index, String), name('Layer', (l) => l.name, { head: true }), name('Type', (l) => l.type),
    name('Kernel', (l) => l.kernel + (l.variant ? ' ' + l.variant : '')), number('ms', (l) => l.median_ms, ms),
    number('p10', (l) => l.p10_ms, ms), number('p90', (l) => l.p90_ms, ms),
    number('Share', (l) => l.share, percent, { bar: true, right: false }),
    number('GFLOP/s', (l) => l.gflops, (v) => (v ? digits(v, 3) : '')), number('MACs', (l) => l.macs, (v) => (v ? prefixed(v) : '')),
    number('Bytes', (l) => l.bytes, bytes), name('Stored as', stored)];
  if (result.layers.some((l) => l.weight_bytes > 0)) columns.push(number('Weights', (l) => l.weight_bytes, (v) => (v ? bytes(v) : '')));
  if (result.layers.some((l) => l.workspace_bytes > 0)) columns.push(number('Workspace', (l) => l.workspace_bytes, (v) => (v ? bytes(v) : '')));
  if (result.layers.some((l) => l.kept < 1)) columns.push(number('Weights kept', (l) => (l.kept === undefined ? 1 : l.kept), percent));
  columns.push(number('FLOP/B', (l) => l.flop_per_byte, (v) => (v ? digits(v, 3) : '')));
  if (result.ceilings)
    columns.push(number('Floor µs', (l) => l.floor_us, (v) => digits(v, 3)), number('Of limit', (l) => l.share_of_limit, percent),
      name('Bound', (l) => l.bound || ''));
  columns.push(name('Geometry', (l) => l.geometry), name('Input', (l) => shape(l.input)), name('Output', (l) => shape(l.output)));
  return columns;
}

// Rows that are equal stay in their order.
function sortRows(rows, columns, sorted) {
  const by = columns.find((c) => c.title === sorted.title) || columns[0];
  const order = (a, b) => (typeof a === 'number' ? a - b : String(a).localeCompare(String(b), 'en', { numeric: true }));
  rows.sort((a, b) => (sorted.down ? -1 : 1) * order(by.value(a), by.value(b)));
}

// Titles of a table that sort it: `sort` is called with the new order, after which the title has the focus again.
function sortingTitles(table, columns, sorted, sort) {
  return columns.map((column) => {
    const button = el('button', { type: 'button' }, column.title);
    button.addEventListener('click', () => {
      const same = sorted.title === column.title;
      // Numbers show their largest first.
      sort({ title: column.title, down: same ? !sorted.down : (column.right || column.bar) && column.title !== '#' });
      table.querySelectorAll('thead button')[columns.indexOf(column)].focus();
    });
    const state = sorted.title === column.title ? (sorted.down ? 'descending' : 'ascending') : 'none';
    return el('th', { scope: 'col', 'aria-sort': state, class: column.right ? 'right' : undefined }, button);
  });
}

let sortedBy = { title: '#', down: false };
let tableOf = null;

function drawTable(result) {
  tableOf = result;
  const types = [...new Set(result.layers.map((layer) => layer.type))].sort();
  const select = byId('type');
  const chosen = select.value;
  select.replaceChildren(el('option', { value: '' }, 'all'), ...types.map((type) => el('option', { value: type }, shown(type))));
  select.value = types.includes(chosen) ? chosen : '';
  drawRows();
}

function drawRows() {
  const result = tableOf;
  const columns = columnsOf(result);
  const wanted = byId('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  const type = byId('type').value;
  const layers = result.layers.filter((layer) => (!type || layer.type === type) &&
    wanted.every((word) => columns.some((c) => !c.bar && String(c.show(c.value(layer))).toLowerCase().includes(word)) ||
      layer.nodes.some((node) => node.toLowerCase().includes(word))));
  sortRows(layers, columns, sortedBy);

  const titles = sortingTitles(byId('table'), columns, sortedBy, (by) => {
    sortedBy = by;
    drawRows();
  });
  const most = Math.max(...result.layers.map((layer) => layer.share));
  const rows = layers.map((layer) => el('tr', { id: 'layer-' + layer.index }, ...columns.map((column) => {
    const content = shown(column.show(column.value(layer)));
    if (column.bar) {
      const bar = el('span', { class: result.colours.fill(layer), 'aria-hidden': 'true' });
      bar.style.width = 42 * layer.share / most + 'px';
      return el('td', { class: 'share' }, bar, content);
    }
    if (column.head) return el('th', { scope: 'row', title: layer.nodes.map(shown).join('\n') }, content);
    return el('td', { class: column.right ? 'right' : undefined }, content);
  })));
  const sum = (key) => layers.reduce((total, layer) => total + layer[key], 0);
  const foot = el('tr', {}, ...columns.map((column) => {
    if (column.head) return el('th', { scope: 'row' }, layers.length < result.layers.length ? 'Sum of these' : 'Sum');
    const total = column.title === 'MACs' ? prefixed(sum('macs')) : column.title === 'ms' ? ms(sum('median_ms'))
      : column.title === 'Share' ? percent(sum('share')) : '';
    return el('td', { class: column.right ? 'right' : undefined }, total);
  }));
  byId('table').replaceChildren(el('caption', { hidden: true }, 'Layers of ' + shown(result.model)), el('thead', {}, el('tr', {}, ...titles)),
    el('tbody', {}, ...rows), el('tfoot', {}, foot));
  byId('count').textContent = layers.length === result.layers.length ? counted(layers.length, 'layer') + '; medians of ' + counted(result.runs, 'run')
    : layers.length + ' of ' + counted(result.layers.length, 'layer');
}

// Leads from a mark to its row.
function showRow(index) {
  byId('filter').value = '';
  byId('type').value = '';
  drawRows();
  const row = byId('layer-' + index);
  row.scrollIntoView({ block: 'center', behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' });
  row.classList.add('flash');
  setTimeout(() => row.classList.remove('flash'), 2500);
}

const settingOf = (result) => result.precision + ', batch ' + result.batch + ', ' + counted(result.threads, 'thread');

function drawJoined() {
  if (!data.joined) return;
  byId('joined-section').hidden = false;
  const titles = ['Layer', ...results.flatMap((result, i) => (i ? [settingOf(result), '×'] : [settingOf(result)]))];
  const show = (value, text) => el('td', { class: 'right' }, value === null || value === undefined ? '' : text(value));
  byId('joined').replaceChildren(
    el('thead', {}, el('tr', {}, ...titles.map((title, i) => el('th', { scope: 'col', class: i > 0 ? 'right' : undefined }, title)))),
    el('tbody', {}, ...data.joined.map((row) => el('tr', {}, el('th', { scope: 'row', title: row.nodes.map(shown).join('\n') }, shown(row.name)),
      ...row.median_ms.flatMap((time, i) => (i ? [show(time, ms), show(row.speedup[i], (v) => digits(v, 3))] : [show(time, ms)]))))));
}
