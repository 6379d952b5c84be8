"use strict";
// Interaction in a browser: fits the drawing to the window, zooms on click, and searches names.
const root = document.documentElement;
const box = document.getElementById("frames");
const said = document.getElementById("said");
const letter = 6.6;
const frames = [...box.querySelectorAll("g")].map(g => {
    const rect = g.querySelector("rect");
    const text = g.querySelector("text") || g.appendChild(document.createElementNS(root.namespaceURI, "text"));
    const part = name => parseFloat(rect.getAttribute(name)) / 100;
    const y = parseFloat(rect.getAttribute("y"));
    text.setAttribute("y", y + 12);
    return {g, rect, text, name: g.dataset.name, left: part("x"), wide: part("width"), y,
        value: Number(rect.dataset.value), colour: rect.getAttribute("fill")};
});
let zoomed = null, query = "";
const percent = part => (100 * part).toFixed(4) + "%";
function draw() {
    const room = box.clientWidth || box.getBoundingClientRect().width;
    const [from, all] = zoomed ? [zoomed.left, zoomed.wide] : [0, 1];
    for (const frame of frames) {
        const isCaller = zoomed && frame.y > zoomed.y && frame.left <= from + 1e-6
            && frame.left + frame.wide >= from + all - 1e-6;
        const left = isCaller ? 0 : (frame.left - from) / all;
        const wide = isCaller ? 1 : frame.wide / all;
        const isSeen = isCaller || !zoomed
            || (frame.y <= zoomed.y && left > -1e-6 && left + wide < 1 + 1e-6);
        frame.g.style.display = isSeen ? "" : "none";
        if (!isSeen) continue;
        frame.g.style.opacity = isCaller ? 0.6 : "";
        frame.rect.setAttribute("x", percent(left));
        frame.rect.setAttribute("width", percent(wide));
        const letters = Math.floor((wide * room - 4) / letter);
        const name = frame.name;
        frame.text.textContent = letters < 3 ? ""
            : name.length <= letters ? name : name.slice(0, letters - 2) + "..";
        frame.text.setAttribute("x", percent(left));
        frame.text.setAttribute("dx", 2);
        frame.rect.setAttribute("fill", isFound(frame) ? "rgb(230,0,230)" : frame.colour);
    }
    document.getElementById("whole").style.display = zoomed ? "" : "none";
}
function isFound(frame) { return query !== "" && frame.name.toLowerCase().includes(query); }
function zoom(frame) { zoomed = frame; draw(); }
// Highlights frames by name and shows their share of the whole. Nested matches count once.
function search(text) {
    query = (text || "").trim().toLowerCase();
    const found = frames.filter(isFound);
    const outer = found.filter(f => !found.some(other => other !== f && other.y > f.y
        && other.left <= f.left + 1e-6 && other.left + other.wide >= f.left + f.wide - 1e-6));
    const part = outer.reduce((sum, f) => sum + f.wide, 0);
    said.textContent = query === "" ? "Search"
        : `"${query}": ${found.length} rectangles, ${(100 * part).toFixed(1)} % (click to clear)`;
    draw();
}
function ask() { search(query === "" ? prompt("Part of a name") : ""); }
function fit() {
    root.setAttribute("width", "100%");
    root.removeAttribute("viewBox");
    box.setAttribute("width", Math.max(root.clientWidth - 20, 100));
    draw();
}
for (const frame of frames) frame.g.addEventListener("click", () => zoom(frame));
document.getElementById("whole").addEventListener("click", () => zoom(null));
said.addEventListener("click", ask);
addEventListener("keydown", event => {
    if (event.key === "Escape") zoom(null);
    if (event.key === "/" || (event.ctrlKey && event.key === "f")) { event.preventDefault(); ask(); }
});
addEventListener("resize", fit);
search("");
fit();
