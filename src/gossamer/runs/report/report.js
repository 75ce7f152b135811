"use strict";
// Values under the pointer, by mouse, finger or arrow keys; and on a live page, the next version of it.
(() => {
  const tip = document.getElementById("tip");
  let shown = null; // the chart whose values are shown

  // Titles of drawn things become tips of ours, which fingers can have too.
  function prepare(root) {
    for (const title of root.querySelectorAll("svg title")) {
      title.parentElement.dataset.tip = title.textContent;
      title.remove();
    }
    for (const svg of root.querySelectorAll("svg.chart")) svg.tabIndex = 0;
  }

  function show(lines, x, y) {
    tip.replaceChildren(...lines);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - width - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(y - height / 2, innerHeight - height - 4))}px`;
  }

  function hide() {
    tip.hidden = true;
    if (!shown) return;
    shown.classList.remove("pointed");
    shown.querySelectorAll(".near").forEach((group) => group.classList.remove("near"));
    shown = null;
  }

  function element(name, text, kind = "") {
    const made = document.createElement(name);
    made.textContent = text;
    made.className = kind;
    return made;
  }

  // The points of a line, as the page wrote them: where they are drawn, and what they say.
  function points(path) {
    if (!path.points) {
      const places = path.getAttribute("d").replace("h0", "").match(/[ML][^ML]+/g).map((at) => at.slice(1).split(" "));
      const at = path.dataset.at.split(";"), is = path.dataset.is.split(";");
      path.points = places.map(([x, y], i) => ({ x: +x, y: +y, at: at[i], is: is[i] }));
    }
    return path.points;
  }

  // Of every label that is visible, the point nearest to x.
  function nearest(svg, x) {
    const found = [];
    for (const group of svg.querySelectorAll("g.k[data-name]")) {
      if (getComputedStyle(group).display === "none") continue;
      const all = [...group.querySelectorAll("path.line")].flatMap(points);
      if (!all.length) continue;
      const point = all.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a));
      found.push({ group, ...point });
    }
    return found;
  }

  function read(svg, clientX, clientY) {
    const place = new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
    const found = nearest(svg, place.x);
    if (!found.length) return hide();
    const best = found.reduce((a, b) =>
      Math.hypot(b.x - place.x, b.y - place.y) < Math.hypot(a.x - place.x, a.y - place.y) ? b : a);
    present(svg, found, best, clientX, clientY);
  }

  function present(svg, found, best, clientX, clientY) {
    hide();
    shown = svg;
    svg.classList.add("pointed");
    best.group.classList.add("near");
    svg.pointedAt = best.x;
    svg.querySelector(".rule").setAttribute("transform", `translate(${best.x} 0)`);
    const close = found.filter((one) => Math.abs(one.x - best.x) < 12);
    close.sort((a, b) => Math.abs(a.y - best.y) - Math.abs(b.y - best.y)).splice(10);
    close.sort((a, b) => a.y - b.y);
    const rows = close.map((one) => {
      const row = element("div", "", one === best ? "row best" : "row");
      const apart = one.at === best.at ? "" : ` (${one.at})`;
      row.append(element("span", "", `swatch ${one.group.getAttribute("class")}`),
        element("span", one.group.dataset.name, "name"), element("b", one.is + apart));
      return row;
    });
    show([element("div", svg.dataset.x.replace("{}", best.at), "head"), ...rows], clientX, clientY);
  }

  // Arrow keys go from point to point.
  function step(svg, direction) {
    const xs = [...new Set([...svg.querySelectorAll("path.line")].flatMap(points).map((point) => point.x))];
    xs.sort((a, b) => a - b);
    const now = xs.findIndex((x) => x >= (svg.pointedAt ?? -1));
    const next = xs[Math.max(0, Math.min(xs.length - 1, shown ? now + direction : now))];
    const found = nearest(svg, next).filter((one) => one.x === next);
    if (!found.length) return;
    const at = new DOMPoint(next, found[0].y).matrixTransform(svg.getScreenCTM());
    present(svg, found, found[0], at.x, at.y);
  }

  let pointer = null; // where it is
  function pointed(event) {
    pointer = [event.clientX, event.clientY];
    const target = event.target.closest?.("[data-tip]");
    const svg = event.target.closest?.("svg.chart");
    if (svg) return read(svg, event.clientX, event.clientY);
    hide();
    if (target) show([element("div", target.dataset.tip)], event.clientX, event.clientY);
  }
  document.addEventListener("pointermove", pointed);
  document.addEventListener("pointerdown", pointed);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => {
    const svg = event.target.closest?.("svg.chart");
    if (event.key === "Escape") hide();
    if (!svg || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    step(svg, event.key === "ArrowLeft" ? -1 : 1);
  });

  // A live page: the server sends all that is in <main>; what was hidden, opened, scrolled, focused or pointed at
  // stays so, since a page of peers comes anew every second.
  function refresh(main, html) {
    const hidden = new Set([...main.querySelectorAll("input:not(:checked)")].map((box) => box.dataset.name));
    const names = (box) => box.querySelector("summary").textContent
      + (box.closest("figure")?.querySelector("figcaption").textContent ?? "");
    const open = new Set([...main.querySelectorAll("details[open]")].map(names));
    const places = () => [...main.querySelectorAll("svg.chart, .scroll, summary, input")];
    const at = document.activeElement?.id, place = places().indexOf(document.activeElement);
    const pointedAt = document.activeElement?.pointedAt, wasShown = shown;
    const scrolled = [...main.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    hide();
    main.innerHTML = html;
    for (const box of main.querySelectorAll("input[data-name]")) box.checked = !hidden.has(box.dataset.name);
    for (const box of main.querySelectorAll("details")) box.open = open.has(names(box));
    prepare(main);
    main.querySelectorAll(".scroll").forEach((box, i) => box.scrollTo(...(scrolled[i] ?? [0, 0])));
    const focused = at ? document.getElementById(at) : places()[place];
    focused?.focus({ preventScroll: true });
    if (!wasShown) return;
    const under = pointer && document.elementFromPoint(...pointer)?.closest("svg.chart");
    if (under) return read(under, ...pointer);
    if (!focused?.matches("svg.chart")) return;
    focused.pointedAt = pointedAt;
    step(focused, 0);
  }
  const main = document.querySelector("main");
  if (main.dataset.events) {
    const state = document.getElementById("state");
    const events = new EventSource(main.dataset.events);
    events.onmessage = (event) => refresh(main, JSON.parse(event.data));
    events.addEventListener("state", (event) => (state.textContent = event.data));
    events.onerror = () => (state.textContent = "not connected: is gossamer watch still running?");
  }

  // The list of runs: only those whose text has every word.
  const search = document.getElementById("search");
  search?.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/);
    for (const row of document.querySelectorAll("[data-run]"))
      row.hidden = !words.every((word) => row.dataset.run.toLowerCase().includes(word));
  });
  prepare(document);
})();
