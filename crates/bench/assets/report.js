"use strict";
// Draws the reports that stand in the page as JSON. Every text goes in as text, never as HTML.
const reports = JSON.parse(document.getElementById("reports").textContent);
const page = document.getElementById("page");
const plots = [];
// Two beside each other fit on a page of A4 or Letter.
const PAPER_CHART = 330;
const colors = ["#2f6fde", "#d9730d", "#1a9c57", "#a745c4", "#c9302c", "#6b7a89"];
const at = (value, path) => path.split("/").reduce((v, key) => (v == null ? v : v[key]), value);
const add = (parent, tag, text, kind) => {
  const element = document.createElement(tag);
  if (text != null) element.textContent = text;
  if (kind) element.className = kind;
  parent.append(element);
  return element;
};
const round = (n, digits) => n == null ? "" : Number(n).toLocaleString("en-US", { maximumFractionDigits: digits });
// What several reports have in common is not said in every legend, and what is run again is counted.
const scenarios = [...new Set(reports.map((report) => at(report, "scenario/name") || ""))];
const labels = new Map();
for (const report of reports) {
  const name = (at(report, "target/broker") || (at(report, "target/urls") || []).join(", ")) +
    (scenarios.length > 1 ? ", " + (at(report, "scenario/name") || "") : "") +
    (report.ramp ? ", rate " + round(report.ramp.rate, 3) : "");
  const before = [...labels.values()].filter((one) => one.name === name).length;
  labels.set(report, { name, text: before ? name + ", run " + (before + 1) : name });
}
const label = (report) => labels.get(report).text;

function table(parent, heads, rows) {
  const element = add(add(parent, "div", null, "scroll"), "table");
  const head = add(add(element, "thead"), "tr");
  heads.forEach((text) => add(head, "th", text));
  const body = add(element, "tbody");
  for (const row of rows) {
    const line = add(body, "tr");
    row.forEach((text) => add(line, "td", text));
  }
}

function overview() {
  add(page, "h1", scenarios.join(", "));
  for (const report of reports) {
    const line = add(page, "p", label(report) + ": ");
    const faults = report.faults || [];
    add(line, "b", faults.length ? faults.join("; ") : "passed", faults.length ? "bad" : "good");
    for (const warning of report.warnings || []) add(page, "p", warning, "note");
  }
  add(page, "h2", "Overview");
  const rows = [
    ["clients planned", "clients/planned", 0], ["clients connected", "clients/live_at_start", 0],
    ["published a second", "rates/published", 0], ["received a second", "rates/received", 0],
    ["deliveries expected", "messages/expected", 0], ["deliveries received", "messages/received", 0],
    ["lost", "messages/lost", 0], ["duplicates", "messages/duplicates", 0], ["reordered", "messages/reordered", 0],
    ["never acknowledged", "messages/unanswered", 0], ["measured, s", "phases_s/measure", 1],
    ["requests of all kinds a second", "overview/requests_per_s", 1], ["of them successful", "overview/success_per_s", 1],
    ["of them failed", "overview/failed_per_s", 1], ["most virtual users", "overview/virtual_users_max", 0],
    ["response time of all kinds, mean, ms", "overview/response_ms/mean", 3], ["least, ms", "overview/response_ms/min", 3],
    ["most, ms", "overview/response_ms/max", 3], ["answered with success, of 1", "overview/success", 5],
    ["verified, of 1", "overview/verified", 5], ["message, KiB", "overview/request_kib", 3],
    ["publishers", "overview/publishers", 0], ["subscribers", "overview/subscribers", 0], ["topics", "overview/topics", 0],
    ["broker CPU, processors", "target_use/cpu/mean", 2], ["broker CPU us a delivery", "target_use/cpu_us_per_delivery", 2],
    ["broker memory at most, KB", "target_use/memory_kb/max", 0], ["tester's busiest thread", "own/thread_cpu_max", 2],
    ["the same while connecting", "own/thread_cpu_max_connecting", 2],
  ];
  table(page, [""].concat(reports.map(label)), rows.map(([name, path, digits]) =>
    [name].concat(reports.map((report) => round(at(report, path), digits)))));
}

function detail() {
  add(page, "h2", "Detail");
  add(page, "p", "Milliseconds. Latency counts from the time at which a message was meant to leave.", "note");
  const keys = ["hits", "mean", "min", "p50", "p90", "p99", "p999", "max", "stdev", "mean_fastest_90", "kib", "success_per_s", "failed_per_s", "checks_passed", "checks_failed", "failed"];
  const rows = [];
  for (const report of reports) for (const sampler of report.samplers || []) {
    rows.push([sampler.name, label(report)].concat(keys.map((key) => round(sampler[key], 3)))
      .concat(round(sampler.success * 100, 2) + " %"));
  }
  table(page, ["sampler", "broker"].concat(keys.map((key) => key.replace("mean_fastest_90", "fastest 90 %").replaceAll("_", " "))).concat("success"), rows);
}

function chart(parent, title, path, scale, digits) {
  const seen = reports.filter((report) => (report.seconds || []).some((second) => at(second, path) != null));
  if (!seen.length) return;
  const times = [...new Set(seen.flatMap((report) => report.seconds.map((second) => second.t)))].sort((a, b) => a - b);
  const place = new Map(times.map((time, index) => [time, index]));
  const data = [times].concat(seen.map((report) => {
    const values = new Array(times.length).fill(null);
    for (const second of report.seconds) {
      const value = at(second, path);
      if (value != null) values[place.get(second.t)] = value * scale;
    }
    return values;
  }));
  const box = add(parent, "div", null, "chart");
  add(box, "h3", title);
  const ink = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = { stroke: ink("--faint"), grid: { stroke: ink("--line"), width: 1 }, size: 64 };
  const series = [{ label: "s", value: (_, v) => round(v, 1) }].concat(seen.map((report, index) => ({
    label: label(report), stroke: colors[index % colors.length], width: 2, spanGaps: true, value: (_, v) => round(v, digits),
  })));
  const width = () => Math.max(280, box.clientWidth);
  const plot = new uPlot({ width: width(), height: 220, series, scales: { x: { time: false } }, axes: [{ ...axis, size: 32 }, axis] }, data, box);
  const fit = (isPaper) => plot.setSize(isPaper ? { width: PAPER_CHART, height: 180 } : { width: width(), height: 220 });
  addEventListener("resize", () => fit(false));
  plots.push({ plot, fit });
}

function charts() {
  add(page, "h2", "Over time");
  add(page, "p", "Drag to zoom, double-click to see all.", "note hint");
  const grid = add(page, "div", null, "charts");
  chart(grid, "Sub latency, mean, ms", "sub_ms/mean", 1, 3);
  chart(grid, "Sub latency, 99th percentile, ms", "sub_ms/p99", 1, 3);
  chart(grid, "Pub latency, mean, ms", "pub_ms/mean", 1, 3);
  chart(grid, "Connect latency, mean, ms", "connect_ms/mean", 1, 3);
  chart(grid, "Received a second", "received", 1, 0);
  chart(grid, "Published a second", "published", 1, 0);
  chart(grid, "Successful requests a second", "succeeded", 1, 0);
  chart(grid, "Failed requests in a second", "failed", 1, 0);
  chart(grid, "Clients", "live", 1, 0);
  chart(grid, "Received, KB a second", "bytes_in", 1 / 1024, 0);
  chart(grid, "Broker CPU, processors", "target/cpu", 1, 2);
  chart(grid, "Broker memory, MB", "target/memory_kb", 1 / 1024, 1);
  chart(grid, "Host CPU, %", "target/host_cpu", 100, 0);
  chart(grid, "Host memory in use, MB", "target/host_memory_kb", 1 / 1024, 0);
  chart(grid, "Broker threads", "target/threads", 1, 0);
  chart(grid, "Broker descriptors", "target/descriptors", 1, 0);
  chart(grid, "Broker context switches a second", "target/switches_per_s", 1, 0);
  chart(grid, "Broker disk writes, KB a second", "target/disk_written_per_s", 1 / 1024, 0);
  chart(grid, "Host network in, KB a second", "target/net_in_per_s", 1 / 1024, 0);
  chart(grid, "Host network out, KB a second", "target/net_out_per_s", 1 / 1024, 0);
  chart(grid, "Tester's busiest thread, % of a processor", "thread_cpu_max", 100, 0);
}

function faults() {
  for (const report of reports) {
    const failures = report.failures || [];
    const streams = (report.streams || []).filter((stream) => stream.lost + stream.duplicates + stream.reordered > 0);
    if (!failures.length && !streams.length) continue;
    add(page, "h2", "Faults of " + label(report));
    if (failures.length) table(page, ["failure", "how often"], failures.map((one) => [one.what, round(one.count, 0)]));
    const keys = ["publisher", "topic", "sent", "expected", "received", "lost", "duplicates", "reordered"];
    if (streams.length) table(page, keys, streams.map((stream) => keys.map((key) => stream[key])));
  }
}

function disclosure() {
  add(page, "h2", "Disclosure");
  for (const report of reports) {
    table(page, ["", label(report)], [
      ["tool", report.tool + " " + report.version], ["command", report.command], ["target", (at(report, "target/urls") || []).join(", ")],
      ["broker's version", at(report, "target/version")], ["network", at(report, "host/network")],
      ["broker's command", at(report, "target/command")], ["scale", at(report, "scenario/scale")], ["scaled", at(report, "scenario/scaled")],
      ["processor", at(report, "host/processors") + " x " + at(report, "host/processor")],
      ["memory", round(at(report, "host/memory_kb") / 1048576, 1) + " GiB"], ["system", at(report, "host/system")], ["kernel", at(report, "host/kernel")],
      ["began", new Date(report.began_unix_s * 1000).toISOString()],
    ].filter((row) => row[1] != null && row[1] !== ""));
  }
  for (const report of reports) if (at(report, "target/configuration")) add(page, "pre", at(report, "target/configuration"));
  add(page, "pre", at(reports[0], "scenario/text"));
}

function paper(isPaper) {
  document.documentElement.classList.toggle("paper", isPaper);
  plots.forEach(({ plot, fit }) => { fit(isPaper); plot.redraw(false, true); });
}
addEventListener("beforeprint", () => paper(true));
addEventListener("afterprint", () => paper(false));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paper(false));

overview(); detail(); charts(); faults(); disclosure();
document.body.dataset.drawn = String(document.querySelectorAll(".uplot").length);
