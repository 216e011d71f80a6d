const luminance = (c) => {
  const [r, g, b] = c.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
};
const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
const behind = (element, style) => {
  for (let one = element; one; one = one.parentElement) {
    const color = rgb(style(one).backgroundColor);
    if (color.length === 3 || color[3] > 0) return color.slice(0, 3);
  }
  return [255, 255, 255];
};
const look = (frame, width) => {
  const page = frame.contentDocument;
  const style = (element) => frame.contentWindow.getComputedStyle(element);
  page.querySelectorAll("details").forEach((one) => { one.open = true; });
  const is_shown = (element) => {
    const box = element.getBoundingClientRect();
    return box.width > 1 && box.height > 1;
  };
  const found = { width, cells: 0, cut: [], low: [], faint: [], small: [] };
  page.querySelectorAll(".scroll").forEach((box) => {
    const edge = box.getBoundingClientRect();
    box.querySelectorAll("td, th").forEach((cell) => {
      if (!is_shown(cell)) return;
      const at = cell.getBoundingClientRect();
      found.cells += 1;
      const is_cut = at.right > edge.right + 1 || at.left < edge.left - 1 || cell.scrollWidth > cell.clientWidth + 1;
      if (is_cut || at.right > width + 1) found.cut.push(cell.textContent);
    });
  });
  found.page_width = page.documentElement.scrollWidth;
  page.body.querySelectorAll("*").forEach((element) => {
    const has_text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!has_text || !is_shown(element) || ["SCRIPT", "STYLE"].includes(element.tagName)) return;
    const own = style(element);
    const ratio = contrast(rgb(own.color).slice(0, 3), behind(element, style));
    if (ratio < 4.5) found.low.push(element.textContent + " " + ratio.toFixed(2));
    if (parseFloat(own.fontSize) < 12) found.small.push(element.textContent);
    if (element.getBoundingClientRect().right > width + 1) found.cut.push(element.textContent);
  });
  page.querySelectorAll(".line, .bar rect").forEach((shape) => {
    const own = style(shape);
    const color = rgb(shape.matches(".line") ? own.stroke : own.fill).slice(0, 3);
    const ratio = contrast(color, behind(shape, style));
    if (ratio < 3) found.faint.push(shape.outerHTML + " " + ratio.toFixed(2));
  });
  const shown = [...page.body.querySelectorAll("*")].filter(is_shown);
  found.texts = {};
  shown.filter((one) => one.children.length === 0).forEach((one) => {
    found.texts[one.textContent] = (found.texts[one.textContent] || 0) + 1;
  });
  const sentence = page.querySelector(".sentence");
  found.sentence = sentence.textContent;
  found.sentence_at = sentence.getBoundingClientRect().bottom;
  found.bars = [...page.querySelectorAll(".bars.main .bar rect")].map((bar) => bar.getBoundingClientRect().width);
  found.charts = page.querySelectorAll(".chart").length;
  found.unlabelled = [...page.querySelectorAll("svg")].filter((one) =>
    one.getAttribute("aria-hidden") !== "true" && !(one.getAttribute("role") === "img" && one.getAttribute("aria-label"))).length;
  found.background = style(page.body).backgroundColor;
  return found;
};
addEventListener("load", () => setTimeout(() => {
  const all = [...document.querySelectorAll("iframe")].map((frame) => look(frame, frame.clientWidth));
  document.body.textContent = "FOUND" + JSON.stringify(all) + "END";
}, 300));
