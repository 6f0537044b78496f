// The page as a whole: key figures, environment, which result is shown, light and dark.

function figure(title, value, more) {
  return [el('div', {}, el('dt', {}, title), el('dd', {}, value, el('small', {}, more || '')))];
}

function accuracyFigures() {
  const found = data.accuracy;
  if (!found) return [];
  const points = (share) => digits(100 * share, 4);
  const of = (key) => 'in [' + found[key + '_interval95'].map(points).join(', ') + '], ' + counted(found.images, 'image') + ', ' + shown(found.precision);
  return [...figure('Top-1', points(found.top1) + ' %', of('top1')), ...(found.top5 === undefined ? [] : figure('Top-5', points(found.top5) + ' %', of('top5')))];
}

function drawFigures(result) {
  const macs = result.layers.reduce((sum, layer) => sum + layer.macs, 0);
  const whole = result.end_to_end_ms;
  const kept = result.layers.filter((layer) => layer.kept < 1).length;
  byId('figures').replaceChildren(
    ...figure('Median of a run', ms(whole) + ' ms', 'p10 ' + ms(result.end_to_end_p10_ms) + ', p90 ' + ms(result.end_to_end_p90_ms)),
    ...figure('Throughput', digits(1e3 * result.batch / whole, 3) + ' /s', 'images, one run after the other'),
    ...figure('Arithmetic', prefixed(macs, 'MACs'), prefixed(2e3 * macs / result.layers_ms, 'FLOP/s') + ' over all layers'),
    ...figure('No layer explains', percent(result.residual_ms / (result.graph_ms || whole)), ms(result.residual_ms) + ' ms of a run'),
    ...figure('Layers', String(result.layers.length), kept ? counted(kept, 'layer') + ' leave out zeros' : 'kernel calls in ' + (result.micro_batch.runs > 1 ? 'a micro-batch' : 'a run')),
    ...figure('Arena', bytes(result.arena_bytes), 'for ' + bytes(result.arena.activation_bytes) + ' of activations'),
    ...figure('Memory', bytes(result.device_memory_peak_bytes || result.memory.peak_rss_bytes),
      (result.device_memory_peak_bytes ? 'on the GPU at worst' : 'of the process at worst') + '; kernels packed ' + bytes(result.memory.packed_bytes)),
    ...figure('First answer', ms(result.first_answer_ms) + ' ms', 'read ' + ms(result.read_ms) + ', plan ' + ms(result.load_ms) + ', run ' + ms(result.first_run_ms)),
    ...(result.floor_ms ? figure('Floor', ms(result.floor_ms) + ' ms', 'the layers take ' + digits(result.layers_ms / result.floor_ms, 3) + ' times that; ' +
      result.bounds.map((b) => b.bound + ' ' + percent(b.floor_ms / result.floor_ms)).join(', ')) : []),
    ...accuracyFigures());
}

function drawEnvironment(result) {
  const facts = [['measured', data.measured_at], ['on', result.machine], ...data.environment.map((f) => [f.name, f.value]),
    ['micro-batches', result.micro_batch.why]];
  byId('environment').replaceChildren(...facts.filter(([, value]) => value)
    .flatMap(([title, value]) => [el('dt', {}, shown(title)), el('dd', {}, shown(value))]));
}

function drawPictures(result) {
  drawTimeline(result);
  drawRoofline(result);
  drawMemory(result);
  drawRuns(result);
}

function show(result) {
  result.colours = result.colours || coloursOf(result);
  shownTime = null;
  byId('model').textContent = shown(result.model);
  byId('setting').textContent = [result.precision, 'batch ' + result.batch, counted(result.threads, 'thread'), 'on ' + result.device,
    result.input ? 'input ' + shown(result.input) : 'random input'].join(' · ');
  document.title = shown(result.model) + ' · pipit profile';
  byId('made').textContent = 'pipit ' + shown(data.pipit) + ' · ' + shown(data.measured_at);
  drawFigures(result);
  drawLegend(result);
  drawBars(result);
  drawTable(result);
  drawEnvironment(result);
  drawPictures(result);
}

// The system's choice until somebody makes another.
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId('theme').textContent = theme === 'dark' ? '☀ Light' : '☾ Dark';
}

function beginProfile() {
  let current = results[0];
  const choice = byId('result');
  byId('result-choice').hidden = results.length < 2;
  choice.replaceChildren(...results.map((result, i) => el('option', { value: i }, settingOf(result))));
  choice.addEventListener('change', () => {
    current = results[Number(choice.value)];
    show(current);
  });
  byId('filter').addEventListener('input', drawRows);
  byId('type').addEventListener('change', drawRows);
  drawJoined();
  show(current);
  onNewWidth(() => drawPictures(current));
}

function showSweepAlone() {
  byId('profile').hidden = true;
  byId('eyebrow').textContent = 'pipit sweep';
  byId('model').textContent = sweptForm.heading;
  byId('setting').textContent = byId('sweep-note').textContent;
  byId('made').textContent = 'pipit ' + shown(data.pipit);
  document.title = sweptForm.heading + ' · pipit sweep';
}

function onNewWidth(draw) {
  let width = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth === width) return;
    width = innerWidth;
    draw();
  });
}

function begin() {
  const system = matchMedia('(prefers-color-scheme: dark)');
  let chosen = null;
  setTheme(system.matches ? 'dark' : 'light');
  system.addEventListener('change', () => { if (!chosen) setTheme(system.matches ? 'dark' : 'light'); });
  byId('theme').addEventListener('click', () => {
    chosen = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    setTheme(chosen);
  });
  drawSweep();
  if (swept) onNewWidth(drawSweepPictures);
  if (results.length) beginProfile();
  else showSweepAlone();
  addEventListener('beforeprint', () => setTheme('light'));
  addEventListener('afterprint', () => setTheme(chosen || (system.matches ? 'dark' : 'light')));
}

begin();
