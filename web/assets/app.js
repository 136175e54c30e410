// Live numbers, charts and conveniences. Every page and every operation works without this script.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (name, properties) => Object.assign(document.createElement(name), properties);

  // -- Theme: `theme.js` has set the stored one.

  const THEMES = ["system", "light", "dark"];

  function addThemeButton() {
    const bar = document.querySelector("body > header");
    if (!bar) return;
    const root = document.documentElement;
    const button = make("button", { type: "button", className: "plain" });
    const show = () => { button.textContent = `Theme: ${root.dataset.theme}`; };
    button.addEventListener("click", () => {
      root.dataset.theme = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
      try { localStorage.setItem("throng-theme", root.dataset.theme); } catch { /* It is not stored then. */ }
      show();
      charts.forEach(recolor);
    });
    show();
    bar.append(button);
  }

  // -- Lists: a box selects all rows, and a legend shows how many are selected.

  function addSelectAll(form) {
    const boxes = all('tbody input[type="checkbox"]', form);
    const head = form.querySelector("thead th");
    const legend = form.querySelector("legend");
    const box = make("input", { type: "checkbox" });
    box.setAttribute("aria-label", "Select all on this page");
    head.replaceChildren(box, make("span", { className: "unseen", textContent: "Select" }));
    form.addEventListener("change", (event) => {
      if (event.target === box) boxes.forEach((it) => { it.checked = box.checked; });
      const count = boxes.filter((it) => it.checked).length;
      box.checked = count === boxes.length;
      box.indeterminate = count > 0 && !box.checked;
      legend.textContent = `With the selected tasks: ${count} of ${boxes.length}`;
    });
  }

  function focusSearchOnSlash() {
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target.closest("input, textarea, select");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      const search = document.querySelector('header input[type="search"]');
      if (!search) return;
      event.preventDefault();
      search.focus();
    });
  }

  // -- Announcements: a screen reader hears one every 5 seconds at most.

  let lastSaid = 0;

  function say(text) {
    if (Date.now() - lastSaid < 5000) return;
    lastSaid = Date.now();
    const line = document.getElementById("live");
    if (line) line.textContent = text;
  }

  // -- Live parts: the server sends the HTML of elements by their ids. It is made by the functions that make the page.

  const POLL_EVERY = 5000;
  const light = make("span", { className: "pulse", textContent: "Connecting" });
  let source = null;
  let poll = 0;
  let doubt = 0;

  function showLive(state, text) {
    light.dataset.liveState = state;
    light.textContent = text;
  }

  function replacePart(id, html) {
    const old = document.getElementById(id);
    if (!old || old.contains(document.activeElement)) return; // The focus would be lost.
    const template = make("template", { innerHTML: html });
    const open = all("details", old).map((it) => it.open);
    old.replaceWith(template.content);
    all("details", document.getElementById(id) || make("p")).forEach((it, index) => { it.open = open[index] || false; });
  }

  function trust() {
    clearTimeout(doubt);
    doubt = 0;
  }

  function update(message) {
    trust();
    showLive("on", "Live");
    for (const [id, html] of message.parts) {
      replacePart(id, html);
      if (id === "part-warnings") say(document.getElementById(id).textContent);
    }
    for (const [id, data] of Object.entries(message.charts)) extend(id, data, message.is_whole);
  }

  function connect() {
    if (source || document.hidden) return;
    source = new EventSource(document.body.dataset.events);
    source.addEventListener("update", (event) => update(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      // The server ends each stream after a minute. The next one is usually there before anybody sees a change.
      doubt ||= setTimeout(() => showLive("off", "Reconnecting"), 3000);
      if (source && source.readyState === EventSource.CLOSED) { // The server has refused the stream.
        disconnect();
        poll = setInterval(fetchParts, POLL_EVERY);
      }
    });
  }

  function disconnect() {
    if (source) source.close();
    source = null;
    clearInterval(poll);
    trust();
  }

  async function fetchParts() {
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!response.ok) throw new Error(response.statusText);
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      all("[data-part]", page).forEach((it) => replacePart(it.id, it.outerHTML));
      showLive("on", "Every 5 s");
    } catch {
      showLive("off", "Not connected");
    }
  }

  // -- A bulk change: its page follows the progress until the end.

  const REFRESH_EVERY = 1000;

  function followProgress() {
    if (!document.querySelector("[data-refresh]")) return;
    setTimeout(async () => {
      if (!document.hidden) await fetchParts();
      followProgress();
    }, REFRESH_EVERY);
  }

  function goLive() {
    if (!document.body.dataset.events) return;
    document.querySelector("body > header")?.append(light);
    connect();
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) disconnect(); else connect();
    });
    addEventListener("pagehide", disconnect);
    addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  }

  // -- Charts: a figure has its numbers in `data-chart`, and the names and colours of its lines in its caption.

  const charts = new Map();

  function colorOf(element) { return getComputedStyle(element).color; }

  function readColors(place) {
    const read = (name) => {
      const element = place.appendChild(make("i", { className: name }));
      const color = colorOf(element);
      element.remove();
      return color;
    };
    return { grid: read("grid"), axis: read("axis") };
  }

  // The axis shows the whole period, even if there are few values.
  function period({ data, window }) {
    const end = data[0].at(-1) || Date.now() / 1000;
    return [end - window, end];
  }

  function draw(figure) {
    const place = figure.querySelector(".plot");
    const labels = all(".series", figure);
    const data = JSON.parse(figure.dataset.chart);
    const colors = readColors(place);
    const axis = {
      stroke: () => colors.axis, font: "11px system-ui, sans-serif", ticks: { show: false },
      grid: { stroke: () => colors.grid, width: 1 },
    };
    const chart = { place, labels, colors, data, window: Number(figure.dataset.window), millis: Number(figure.dataset.millis),
      at: figure.querySelector(".at") };
    chart.last = chart.at.textContent;
    chart.plot = new uPlot({
      width: place.clientWidth, height: place.clientHeight, legend: { show: false },
      cursor: { sync: { key: "throng" }, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { range: () => period(chart) }, y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.08] } },
      axes: [{ ...axis, space: 60, size: 30, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 52, values: (_, ticks) => ticks.map((it) => text(chart, it)),
        ...chart.millis && { incrs: STEPS.map((it) => it / chart.millis) } }],
      series: [{}, ...labels.map((label) => ({
        stroke: () => colorOf(label), width: 1.75, spanGaps: false, points: { show: false },
      }))],
      hooks: { setCursor: [(plot) => caption(charts.get(figure.id), plot.cursor.idx)] },
    }, data, place);
    charts.set(figure.id, chart);
    new ResizeObserver(() => chart.plot.setSize({ width: place.clientWidth, height: place.clientHeight })).observe(place);
  }

  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const short = (value) => value === null || value === undefined ? "-" : compact.format(value);

  // A time is printed as on the server: see `duration` in `text.rs`.
  function duration(millis) {
    const seconds = Math.floor(millis / 1000);
    if (millis < 100) return `${Math.floor(millis)} ms`;
    if (seconds < 10) return `${Math.floor(millis / 100) / 10}${millis % 1000 < 100 ? ".0" : ""} s`;
    if (seconds < 120) return `${seconds} s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  }

  const text = ({ millis }, value) => millis && Number.isFinite(value) ? duration(value * millis) : short(value);

  // The distances of the lines of a grid, in milliseconds.
  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...[1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600, 7200, 18000, 36000, 86400, 172800,
    432000, 864000, 8640000].map((it) => it * 1000)];

  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16); // UTC, as in the tables

  function caption(chart, index) {
    if (!chart) return;
    const last = chart.data[0].length - 1;
    chart.labels.forEach((label, line) => {
      label.querySelector("b").textContent = text(chart, chart.data[line + 1][index ?? last]);
    });
    chart.at.textContent = index === null || index === undefined ? chart.last : `${clock(chart.data[0][index])} UTC`;
  }

  function extend(id, data, isWhole) {
    const chart = charts.get(id);
    if (!chart) return;
    const joined = isWhole ? data : chart.data.map((values, line) => values.concat(data[line]));
    const start = joined[0].findIndex((at) => at > joined[0].at(-1) - chart.window);
    chart.data = joined.map((values) => values.slice(Math.max(start, 0)));
    chart.plot.setData(chart.data);
    caption(chart, chart.plot.cursor.idx);
  }

  function recolor(chart) {
    Object.assign(chart.colors, readColors(chart.place));
    chart.plot.redraw(false, true);
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(recolor));
  addThemeButton();
  all("form.selection").forEach(addSelectAll);
  focusSearchOnSlash();
  if (window.uPlot) all("figure[data-chart]").forEach(draw);
  goLive();
  followProgress();
})();
