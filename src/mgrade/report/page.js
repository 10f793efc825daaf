"use strict";
// The page is complete without this script. It adds values at the pointer, attractors that turn, lists to pick from,
// and a choice of light or dark.
{
  const root = document.documentElement;
  const svg = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const data = (drawing) => JSON.parse(drawing.parentElement.querySelector("script").textContent);
  root.classList.add("scripted");

  // Light or dark: the system's, until the user chooses; the choice is stored where the browser allows it.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.style.colorScheme || (system.matches ? "dark" : "light")) === "dark";
  const kept = (value) => {
    try {
      if (value) localStorage.setItem("theme", value);
      return localStorage.getItem("theme");
    } catch {
      return null;
    }
  };
  const show = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
  };
  if (["light", "dark"].includes(kept())) root.style.colorScheme = kept();
  button.hidden = false;
  button.addEventListener("click", () => {
    root.style.colorScheme = dark() ? "light" : "dark";
    kept(root.style.colorScheme);
    show();
  });
  system.addEventListener("change", show);
  show();

  // Alternatives: a list to pick from; only the picked one is shown.
  for (const [index, place] of document.querySelectorAll(".pick").entries()) {
    const options = [...place.children];
    const select = document.createElement("select");
    select.id = `pick${index}`;
    select.ariaLabel = `Show: ${place.closest("section").querySelector("h2").textContent}`;
    options.forEach((option, i) => select.add(new Option(option.dataset.option, i)));
    const label = document.createElement("label");
    label.htmlFor = select.id;
    label.textContent = "Show";
    const line = document.createElement("div");
    line.className = "picker";
    line.append(label, select);
    place.before(line);
    const pick = () => options.forEach((option, i) => { option.hidden = i !== Number(select.value); });
    select.addEventListener("change", pick);
    pick();
  }

  // Shows the value at the pointer, or steps through values with the arrow keys.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);

  const say = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, x - box.width / 2), root.clientWidth - box.width - 8);
    const top = y - box.height - 14;
    tip.style.transform = `translate(${left}px, ${top < 8 ? y + 18 : top}px)`;
  };

  const REACH = 60; // how far the pointer may be from a value, in units of the drawing
  for (const drawing of document.querySelectorAll("[data-spots]")) {
    let spots, at = -1;
    const ring = svg("circle", { class: "ring", r: 6, visibility: "hidden" });
    const mark = (index) => {
      if (!ring.isConnected) drawing.append(ring);
      at = index;
      const [x, y, text] = spots[index];
      ring.setAttribute("cx", x);
      ring.setAttribute("cy", y);
      ring.setAttribute("visibility", "visible");
      const place = new DOMPoint(x, y).matrixTransform(drawing.getScreenCTM());
      say(text, place.x, place.y);
    };
    const leave = () => {
      ring.setAttribute("visibility", "hidden");
      tip.hidden = true;
    };
    const point = (event) => {
      spots ??= data(drawing);
      const here = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
      let nearest = -1, least = REACH;
      spots.forEach(([x, y], index) => {
        const away = Math.hypot(x - here.x, y - here.y);
        if (away < least) [nearest, least] = [index, away];
      });
      if (nearest < 0) leave();
      else mark(nearest);
    };
    drawing.addEventListener("pointermove", point);
    drawing.addEventListener("pointerdown", point);
    drawing.addEventListener("pointerleave", leave);
    drawing.addEventListener("blur", leave);
    drawing.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") leave();
      if (!step) return;
      event.preventDefault();
      spots ??= data(drawing);
      mark((at + step + spots.length) % spots.length);
    });
  }

  // Turns an attractor, with the same projection that drew it.
  for (const drawing of document.querySelectorAll("[data-orbit]")) {
    let orbit, turn, tilt, held = null, waiting = false;
    const load = () => {
      if (!orbit) [turn, tilt] = (orbit = data(drawing)).view;
    };
    const project = (x, y, z) => {
      const across = x * Math.cos(turn) - y * Math.sin(turn);
      const depth = x * Math.sin(turn) + y * Math.cos(turn);
      const up = z * Math.cos(tilt) - depth * Math.sin(tilt);
      const scale = (orbit.zoom * orbit.size) / 2000;
      return [orbit.width / 2 + scale * across, 24 + orbit.size / 2 - scale * up];
    };
    const draw = () => {
      waiting = false;
      const paths = ["", ""];
      for (const [lobe, values] of orbit.strokes) {
        for (let i = 0; i < values.length; i += 3) {
          const [x, y] = project(values[i], values[i + 1], values[i + 2]);
          paths[lobe] += `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
        }
      }
      for (const path of drawing.querySelectorAll("[data-lobe]")) path.setAttribute("d", paths[path.dataset.lobe] || "M0 0");
      const [middle, height] = project(0, 0, 0);
      for (const axis of drawing.querySelectorAll("[data-axis]")) {
        const [x, y] = project(...[0, 1, 2].map((i) => (i === Number(axis.dataset.axis) ? 1000 : 0)));
        const [line, name] = axis.children;
        const corner = [line.x1.baseVal.value, line.y1.baseVal.value];
        const [dx, dy] = [orbit.triad * (x - middle), orbit.triad * (y - height)];
        line.setAttribute("x2", corner[0] + dx);
        line.setAttribute("y2", corner[1] + dy);
        name.setAttribute("x", corner[0] + 1.5 * dx);
        name.setAttribute("y", corner[1] + 1.5 * dy + 4);
      }
    };
    const rotate = (across, down) => {
      load();
      turn += across;
      tilt = Math.min(Math.PI / 2, Math.max(-Math.PI / 2, tilt + down));
      if (!waiting) requestAnimationFrame(draw);
      waiting = true;
    };
    drawing.addEventListener("pointerdown", (event) => {
      held = [event.clientX, event.clientY];
      drawing.setPointerCapture(event.pointerId);
    });
    drawing.addEventListener("pointermove", (event) => {
      if (!held) return;
      rotate((event.clientX - held[0]) / 120, (event.clientY - held[1]) / 120);
      held = [event.clientX, event.clientY];
    });
    for (const end of ["pointerup", "pointercancel"]) drawing.addEventListener(end, () => { held = null; });
    drawing.addEventListener("keydown", (event) => {
      const [across, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
      if (!across && !down) return;
      event.preventDefault();
      rotate(across / 10, down / 10);
    });
  }

  // In print, everything is unfolded.
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
}
