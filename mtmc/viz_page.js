// Runs after the figure is drawn; plotly puts its element id in place of the braces.
const plot = document.getElementById("{plot_id}");
const panel = document.getElementById("panel");
const steps = JSON.parse(document.getElementById("steps").textContent);

function element(parent, tag, text, name) {
  const made = parent.appendChild(document.createElement(tag));
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function lineClass(line) {
  if (line.startsWith("@@") || line.startsWith("+++") || line.startsWith("---")) return "place";
  return line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
}

function show(key) {
  const step = steps[key];
  panel.replaceChildren();
  element(panel, "h2", step.sentence);
  element(panel, "span", step.status, "status").style.background = step.colour;
  if (step.message) element(panel, "div", step.message, "message");
  const list = element(panel, "dl");
  for (const [name, value] of step.figures) {
    element(list, "dt", name);
    element(list, "dd", value);
  }
  if (!step.patch.length) return;
  const block = element(panel, "pre");
  for (const line of step.patch) element(block, "span", line || " ", lineClass(line));
}

plot.on("plotly_click", event => {
  const { customdata: key, x, y } = event.points[0];
  if (!key) return;
  show(key);
  Plotly.restyle(plot, { x: [[x]], y: [[y]] }, plot.data.findIndex(trace => trace.name === "shown"));
});
show(plot.layout.meta.selected);
