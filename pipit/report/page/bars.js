// Time by type, by kernel, and of the slowest layers.

const kMostBars = 24;
let barsBy = 'type';

function drawBars(result) {
  const by = byId('bars-by');
  by.replaceChildren(...[['type', 'Type'], ['kernel', 'Kernel'], ['layer', 'Layer']].map(([key, title]) => {
    const button = el('button', { type: 'button', 'aria-pressed': String(barsBy === key) }, title);
    button.addEventListener('click', () => {
      barsBy = key;
      drawBars(result);
    });
    return button;
  }));
  const groups = new Map();
  for (const layer of result.layers) {
    const key = barsBy === 'layer' ? layer.index : layer[barsBy];
    const group = groups.get(key) || { name: barsBy === 'layer' ? layer.name : key, ms: 0, layers: 0, layer, parts: new Map() };
    group.ms += layer.median_ms;
    group.layers += 1;
    const fill = result.colours.fill(layer);
    group.parts.set(fill, (group.parts.get(fill) || 0) + layer.median_ms);
    groups.set(key, group);
  }
  let rows = [...groups.values()].sort((a, b) => b.ms - a.ms);
  // Of the medians' sum, so that all shares make a whole.
  const all = rows.reduce((sum, row) => sum + row.ms, 0) || 1;
  const rest = rows.slice(kMostBars);
  rows = rows.slice(0, kMostBars);
  const most = rows.length ? rows[0].ms : 1;
  const cells = rows.flatMap((row) => {
    const name = el('span', { class: 'name', title: shown(row.name) }, shown(row.name));
    if (barsBy !== 'layer') name.append(' ', el('small', {}, counted(row.layers, 'layer')));
    const bars = [...row.parts].sort((a, b) => b[1] - a[1]).map(([fill, part]) => {
      const bar = el('span', { class: fill });
      bar.style.width = 100 * part / most + '%';
      return bar;
    });
    const track = el('span', { class: 'track', 'aria-hidden': 'true' }, ...bars);
    return [barsBy === 'layer' ? mark(name, row.layer, row.name, () => describeLayer(row.layer)) : name, track,
      el('span', { class: 'number' }, ms(row.ms) + ' ms'), el('span', { class: 'number soft' }, percent(row.ms / all))];
  });
  if (rest.length) {
    const sum = rest.reduce((total, row) => total + row.ms, 0);
    cells.push(el('span', { class: 'name' }, '… and ' + rest.length + ' more'), el('span'),
      el('span', { class: 'number' }, ms(sum) + ' ms'), el('span', { class: 'number soft' }, percent(sum / all)));
  }
  byId('bars').replaceChildren(...cells);
}
