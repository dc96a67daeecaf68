// What a reader would find wrong with a page: asked in the page, by tests/test_pages.py.
() => {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth)
    found.push(`the page is ${root.scrollWidth} px wide in a window of ${root.clientWidth}`);

  const numbers = text => (text.match(/[0-9.]+/g) || []).map(Number);
  const linear = part => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const luminance = colour =>
    0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2]);
  const contrast = (one, other) => {
    const [dim, bright] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dim + 0.05);
  };
  // A colour of a share of opacity over another.
  const over = (colour, below, share) => {
    const [r, g, b, a = 1] = numbers(colour);
    return [r, g, b].map((part, i) => part * a * share + below[i] * (1 - a * share));
  };
  const paper = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(getComputedStyle(e).backgroundColor);
    const canvas = getComputedStyle(root).colorScheme === "dark" ? [18, 18, 18] : [255, 255, 255];
    return layers.reverse().reduce((below, colour) => over(colour, below, 1), canvas);
  };
  const seen = element => element.checkVisibility() && element.getClientRects().length > 0;
  const shown = element => (element.textContent || "").trim().slice(0, 60);
  let texts = 0, marks = 0, charts = 0;

  // Text of the page stands out from what it lies on.
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const asked = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || asked.has(element) || element.closest("svg,script"))
      continue;
    asked.add(element);
    if (!seen(element)) continue;
    const below = paper(element);
    const ratio = contrast(over(getComputedStyle(element).color, below, 1), below);
    texts += 1;
    if (ratio < 4.5) found.push(`'${shown(element)}' has a contrast of ${ratio.toFixed(2)}`);
  }

  // Four corners of a text as it is drawn, also where it is turned.
  const corners = text => {
    const box = text.getBBox(), matrix = text.getScreenCTM();
    return [[0, 0], [1, 0], [1, 1], [0, 1]].map(([x, y]) => {
      const point = new DOMPoint(box.x + x * box.width, box.y + y * box.height);
      const placed = point.matrixTransform(matrix);
      return [placed.x, placed.y];
    });
  };
  // By how much two of them lie on each other: the least over the sides of both.
  const overlap = (one, other) => {
    let least = Infinity;
    for (const shape of [one, other])
      for (const i of [0, 1]) {
        const [dx, dy] = [shape[i + 1][0] - shape[i][0], shape[i + 1][1] - shape[i][1]];
        const length = Math.hypot(dx, dy) || 1;
        const along = points => points.map(([x, y]) => (x * dx + y * dy) / length);
        const [a, b] = [along(one), along(other)];
        least = Math.min(least, Math.max(...a) - Math.min(...b), Math.max(...b) - Math.min(...a));
      }
    return least;
  };

  for (const svg of document.querySelectorAll("svg")) {
    if (!seen(svg)) continue;
    charts += 1;
    const name = svg.getAttribute("aria-label").slice(0, 40);
    const ground = paper(svg.parentElement);
    const frame = svg.getBoundingClientRect();
    const opacity = element => {
      let share = 1;
      for (let e = element; e !== svg; e = e.parentElement) share *= getComputedStyle(e).opacity;
      return share;
    };

    // Marks stand out from the page, by what fills them or by their outline.
    const filled = [];
    for (const mark of svg.querySelectorAll("path, line, rect, circle")) {
      const style = getComputedStyle(mark), share = opacity(mark);
      const box = mark.getBoundingClientRect();
      if (!seen(mark) || !share || (!box.width && !box.height)) continue;
      if (mark.closest(".role-axis-grid, .background, .foreground")) continue;
      const ratios = [];
      if (style.fill !== "none" && +style.fillOpacity) {
        const fill = over(style.fill, ground, share * style.fillOpacity);
        ratios.push(contrast(fill, ground));
        filled.push([box, fill]);
      }
      if (style.stroke !== "none" && +style.strokeOpacity && parseFloat(style.strokeWidth))
        ratios.push(contrast(over(style.stroke, ground, share * style.strokeOpacity), ground));
      // What is faint on purpose repeats a mark that is not: spreads, intervals that were cut.
      if (!ratios.length || share < 0.5) continue;
      marks += 1;
      if (Math.max(...ratios) < 3)
        found.push(`${name}: a mark (${style.fill}, ${style.stroke}) has a contrast of ` +
          Math.max(...ratios).toFixed(2));
    }

    const drawn = [...svg.querySelectorAll("text")].filter(
      text => seen(text) && opacity(text) && text.textContent.trim());
    const places = drawn.map(corners);
    drawn.forEach((text, i) => {
      texts += 1;
      const middle = [0, 1].map(k => places[i].reduce((sum, p) => sum + p[k], 0) / 4);
      // The last mark in the middle of a text is the one that it lies on.
      const below = filled.filter(([box]) => box.width > 4 && box.height > 4 &&
        box.left < middle[0] && middle[0] < box.right &&
        box.top < middle[1] && middle[1] < box.bottom).map(([, fill]) => fill).pop() || ground;
      const ratio = contrast(over(getComputedStyle(text).fill, below, 1), below);
      if (ratio < 4.5) found.push(`${name}: '${shown(text)}' has a contrast of ${ratio.toFixed(2)}`);
      const size = parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a;
      if (size < 8) found.push(`${name}: '${shown(text)}' has letters of ${size.toFixed(1)} px`);
      for (const [x, y] of places[i])
        if (x < frame.left - 2 || x > frame.right + 2 || y < frame.top - 2 || y > frame.bottom + 2) {
          found.push(`${name}: '${shown(text)}' is cut off`);
          break;
        }
      for (let j = 0; j < i; j++)
        if (overlap(places[i], places[j]) > 2.5)
          found.push(`${name}: '${shown(text)}' lies on '${shown(drawn[j])}'`);
    });
  }

  // Headings do not leave out a level, and what is drawn or scrolled has a name.
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    if (+heading.tagName[1] > level + 1) found.push(`'${shown(heading)}' leaves out a level`);
    level = +heading.tagName[1];
  }
  for (const element of document.querySelectorAll("svg, [role=region]"))
    if (!element.getAttribute("aria-label")) found.push(`a ${element.tagName} has no name`);
  for (const heading of document.querySelectorAll("th"))
    if (!heading.scope) found.push(`'${shown(heading)}' heads neither a row nor a column`);
  const names = [...document.querySelectorAll("[id]")].map(element => element.id);
  for (const name of names.filter((name, i) => names.indexOf(name) < i))
    found.push(`two elements are called ${name}`);
  return {found: [...new Set(found)], texts, marks, charts};
}
