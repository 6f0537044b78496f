'use strict';
// The data, numbers and names as text, and elements. Names come from models that nobody has checked: they become text
// nodes and attributes only, never markup.

const data = JSON.parse(document.getElementById('data').textContent);
const results = data.results || (data.layers ? [data] : []);  // none in the report of a sweep
const byId = (id) => document.getElementById(id);

// Controls and direction marks written out.
function shown(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

function digits(value, count) {
  if (!isFinite(value)) return '–';
  if (value === 0) return '0';
  const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
  return value.toFixed(Math.max(0, count - Math.max(whole, 1)));
}
const ms = (value) => digits(value, 4);
const percent = (share) => digits(100 * share, 3) + ' %';

function prefixed(value, unit) {
  const steps = ['', 'k', 'M', 'G', 'T', 'P'];
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < steps.length - 1) {
    value /= 1000;
    ++step;
  }
  return (step === 0 && Number.isInteger(value) ? String(value) : digits(value, 3)) + ' ' + steps[step] + (unit || '');
}

function bytes(value) {
  const steps = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let step = 0;
  while (value >= 1000 && step < steps.length - 1) {
    value /= 1024;
    ++step;
  }
  return (step === 0 ? String(value) : digits(value, 3)) + ' ' + steps[step];
}

const shape = (extents) => extents.join('×');
const counted = (count, one) => count + ' ' + one + (count === 1 ? '' : 's');

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children) element.append(child);
  return element;
}
const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  build(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

// Round numbers from 0 or `low` to `high`.
function ticks(low, high, most) {
  const raw = (high - low) / Math.max(most, 1);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); ++i) found.push(i * step);
  return found;
}

// 1, 2 and 5 times powers of ten between two positive numbers; the powers alone where there are many.
function logTicks(low, high) {
  const factors = Math.log10(high / low) > 2.2 ? [1] : [1, 2, 5];
  const found = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p)
    for (const f of factors) if (f * 10 ** p >= low * 0.999 && f * 10 ** p <= high * 1.001) found.push(f * 10 ** p);
  return found;
}
