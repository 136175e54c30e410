// Live numbers, charts and small comforts. Every page and every action works without this script.
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

  // -- Times: the page has them in UTC. The difference between the two clocks is known from the page.

  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

  function relative(seconds) {
    const size = Math.abs(seconds);
    const [unit, length] = UNITS.find(([, length]) => size >= length) || UNITS[3];
    const number = Math.floor(size / length);
    if (number === 0) return "now";
    return seconds < 0 ? `${number} ${unit} ago` : `in ${number} ${unit}`;
  }

  function showTimes() {
    const now = Date.now() + clockOffset;
    for (const time of all("time[data-relative]")) {
      time.title ||= time.dateTime;
      const text = relative((Date.parse(time.dateTime) - now) / 1000);
      if (time.textContent !== text) time.textContent = text;
    }
  }

  let clockOffset = 0;

  function readClock() {
    const now = Number(document.body.dataset.now);
    if (now) clockOffset = now - Date.now();
  }

  // -- Lists: a box selects all rows, and buttons tell how many are selected.

  function watchSelections() {
    document.addEventListener("change", (event) => {
      const box = event.target;
      if (box.type !== "checkbox" || !box.form) return;
      const boxes = all('input[type="checkbox"][name]', box.form);
      if (box.matches("[data-select-all]")) boxes.forEach((it) => { it.checked = box.checked; });
      const count = boxes.filter((it) => it.checked).length;
      all("[data-selected]", box.form).forEach((it) => { it.textContent = `${count} selected`; });
    });
    all("[data-select-all]").forEach((it) => { it.hidden = false; });
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

  function update(message) {
    clearTimeout(doubt);
    showLive("on", "Live");
    for (const [id, html] of message.parts) {
      replacePart(id, html);
      if (id === "part-warnings") say(document.getElementById(id).textContent);
    }
    if (message.now) clockOffset = message.now - Date.now();
    for (const [id, data] of Object.entries(message.charts)) extend(id, data, message.is_whole);
    showTimes();
  }

  function connect() {
    if (source || document.hidden) return;
    source = new EventSource(document.body.dataset.events);
    source.addEventListener("update", (event) => update(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      // The server ends each stream after a minute. The next one is usually there before anybody sees a change.
      clearTimeout(doubt);
      doubt = setTimeout(() => showLive("off", "Reconnecting"), 3000);
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
    clearTimeout(doubt);
  }

  async function fetchParts() {
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!response.ok) throw new Error(response.statusText);
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      all("[data-part]", page).forEach((it) => replacePart(it.id, it.outerHTML));
      showLive("on", "Every 5 s");
      showTimes();
    } catch {
      showLive("off", "Not connected");
    }
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
    const end = data[0].at(-1) || (Date.now() + clockOffset) / 1000;
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
    const chart = { place, labels, colors, data, window: Number(figure.dataset.window) };
    chart.plot = new uPlot({
      width: place.clientWidth, height: place.clientHeight, legend: { show: false },
      cursor: { sync: { key: "throng" }, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { range: () => period(chart) }, y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.08] } },
      axes: [{ ...axis, space: 70, size: 32 }, { ...axis, size: 48, values: (_, ticks) => ticks.map(short) }],
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

  function caption(chart, index) {
    if (!chart) return;
    const last = chart.data[0].length - 1;
    chart.labels.forEach((label, line) => {
      label.querySelector("b").textContent = short(chart.data[line + 1][index ?? last]);
    });
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
  readClock();
  showTimes();
  setInterval(showTimes, 1000);
  watchSelections();
  focusSearchOnSlash();
  if (window.uPlot) all("figure[data-chart]").forEach(draw);
  goLive();
})();
