// What is wrong with a page as it is laid out, in words; nothing, when all is well.
(() => {
  const wrong = [];
  const say = (kind, what) => wrong.push(`${kind}: ${what}`);
  const name = (node) => {
    const kind = node.getAttribute("class");
    return node.tagName.toLowerCase() + (kind ? "." + kind.split(" ").join(".") : "") +
      ` "${node.textContent.trim().slice(0, 30)}"`;
  };
  const seen = (node) => {
    const box = node.getBoundingClientRect();
    if (box.width < 1 || box.height < 1 || node.closest(".unseen")) return false;
    return node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  };

  // Nothing but what has a box of its own goes beyond the window.
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) {
    say("overflow", `the page is ${document.documentElement.scrollWidth} of ${wide} wide`);
  }
  for (const node of document.querySelectorAll("main *")) {
    if (!seen(node) || node.closest(".scroll") !== null && !node.matches(".scroll")) continue;
    const box = node.getBoundingClientRect();
    if (box.right > wide + 1 || box.left < -1) say("overflow", name(node));
    const style = getComputedStyle(node);
    if (["hidden", "clip"].includes(style.overflowX) && node.scrollWidth > node.clientWidth + 1 &&
        !(node instanceof SVGElement)) say("clipped", name(node));
  }

  // Texts of a plot stand inside it, apart from each other, and large enough to be read.
  const apart = (nodes, where) => {
    const boxes = nodes.map((node) => [node, node.getBoundingClientRect()]);
    boxes.forEach(([one, a], place) => {
      for (const [other, b] of boxes.slice(place + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 1) say("overlap", `${where}: ${name(one)} and ${name(other)}`);
      }
    });
  };
  for (const plot of document.querySelectorAll(".plot svg")) {
    const frame = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll("text")];
    for (const text of texts) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
          box.top < frame.top - 1 || box.bottom > frame.bottom + 1) say("clipped", name(text));
      const size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;
      if (size < 10) say("small", `${name(text)} is ${size.toFixed(1)} px`);
    }
    apart(texts, "plot");
  }
  for (const chart of document.querySelectorAll(".chart")) {
    apart([...chart.querySelectorAll("tbody th, .value, .scale span")].filter(
      (node) => seen(node) && node.textContent), "chart");
    const frame = chart.closest(".plot").getBoundingClientRect();
    for (const node of chart.querySelectorAll("th, .value, .track, .scale span")) {
      const box = node.getBoundingClientRect();
      if (seen(node) && (box.right > frame.right + 1 || box.left < frame.left - 1)) {
        say("clipped", name(node));
      }
    }
  }

  // Every text stands out from what is behind it.
  const sheet = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    sheet.clearRect(0, 0, 1, 1); sheet.fillStyle = colour; sheet.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = sheet.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((n) => top[n] * top[3] + below[n] * (1 - top[3]));
  const behind = (node) => {
    if (node.closest(".drawing svg")) {
      const rect = node.closest(".view")?.querySelector("rect") ??
        node.closest("svg").querySelector(".paper");
      return over(rgba(getComputedStyle(rect).fill), [255, 255, 255]);
    }
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      layers.push(rgba(getComputedStyle(at).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((n) => n / 255).map(
      (n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const spoken = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (spoken.nextNode()) {
    const node = spoken.currentNode.parentElement;
    if (!spoken.currentNode.data.trim() || ["TITLE", "title", "desc", "STYLE", "SCRIPT"].includes(
      node.tagName) || !seen(node)) continue;
    texts += 1;
    const style = getComputedStyle(node);
    let opacity = 1;
    for (let at = node; at; at = at.parentElement) opacity *= +getComputedStyle(at).opacity;
    const ink = rgba(node instanceof SVGElement ? style.fill : style.color);
    const back = behind(node);
    const fore = over([...ink.slice(0, 3), ink[3] * opacity], back);
    const [high, low] = [light(fore), light(back)].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) say("contrast", `${name(node)} has ${contrast.toFixed(2)}`);
  }
  if (texts < 50) say("blank", `only ${texts} texts`);

  // The diagrams are there to be seen.
  const diagrams = [...document.querySelectorAll(".drawing svg")];
  if (!diagrams.length) say("diagram", "none");
  for (const each of diagrams) {
    const box = each.getBoundingClientRect();
    if (!seen(each) || box.width < 300 || box.height < 200) say("diagram", "not to be seen");
    const font = getComputedStyle(each.querySelector("text")).fontSize;
    if (parseFloat(font) < 10) say("diagram", `text of ${font}`);
    const accused = each.querySelector(".accused text");
    if (accused && getComputedStyle(accused).textDecorationLine !== "underline") {
      say("diagram", "the message is not marked");
    }
  }

  // Structure: one first heading, none left out, headers with scope, targets of links.
  let before = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    const level = +heading.tagName[1];
    if (level > before + 1) say("headings", `${name(heading)} after level ${before}`);
    before = level;
  }
  if (document.querySelectorAll("h1").length !== 1) say("headings", "not one first heading");
  for (const th of document.querySelectorAll("th:not([scope])")) say("scope", name(th));
  for (const a of document.querySelectorAll("a[href]")) {
    const to = a.getAttribute("href");
    if (!to.startsWith("#")) say("outside", to);
    else if (!document.getElementById(decodeURIComponent(to.slice(1)))) say("link", to);
  }
  for (const svg of document.querySelectorAll("svg[role=img]")) {
    if (!svg.querySelector("title") || !svg.querySelector("desc")) say("untold", "an svg");
  }
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  if (new Set(ids).size !== ids.length) say("ids", "an id stands twice");
  return wrong;
})()
