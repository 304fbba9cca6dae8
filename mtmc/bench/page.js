// Runs after the chart is drawn; plotly puts its element id in place of the braces.
const plot = document.getElementById("{plot_id}");
const panel = document.getElementById("panel");
const read = id => JSON.parse(document.getElementById(id).textContent);
let body, head, sorted = { column: 0, up: true };

function element(parent, tag, text, name) {
  const made = parent.appendChild(document.createElement(tag));
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function show(problem) {
  const fact = facts[problem];
  panel.replaceChildren();
  element(panel, "h2", fact.title);
  element(panel, "span", fact.status, fact.good ? "status good" : "status");
  if (fact.message) element(panel, "div", fact.message, "message");
  const list = element(panel, "dl");
  for (const [name, value] of fact.figures) {
    element(list, "dt", name);
    element(list, "dd", value);
  }
  for (const row of body.rows) row.classList.toggle("shown", row.dataset.problem === problem);
}

// Cells are compared as numbers where they begin with one; "1/19" as level and number; empty ones come last.
function value(cell) {
  const place = cell.match(/^(\d+)\/(\d+)/);
  if (place) return Number(place[1]) * 1e4 + Number(place[2]);
  const number = parseFloat(cell);
  return Number.isNaN(number) ? cell : number;
}

function compare(a, b) {
  if (a === "" || b === "") return 0;
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}

function order(column) {
  sorted = { column, up: sorted.column === column ? !sorted.up : column === 0 };
  [...head.cells].forEach((cell, index) => {
    if (index === column) cell.setAttribute("aria-sort", sorted.up ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  });
  const text = row => row.cells[column].textContent;
  const rows = [...body.rows].sort((a, b) => {
    const empty = (text(a) === "") - (text(b) === "");
    return empty || compare(value(text(a)), value(text(b))) * (sorted.up ? 1 : -1);
  });
  body.append(...rows);
}

const facts = read("facts");
function build() {
  const problems = document.getElementById("problems"), table = read("table");
  body = problems.tBodies[0];
  head = element(problems.tHead, "tr");
  table.heads.forEach((name, column) => element(head, "th", name).addEventListener("click", () => order(column)));
  for (const [problem, ...cells] of table.rows) {
    const row = element(body, "tr");
    row.dataset.problem = problem;
    row.addEventListener("click", () => show(problem));
    for (const cell of cells) element(row, "td", cell);
  }
  document.getElementById("filter").addEventListener("input", event => {
    const wanted = event.target.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  show(table.rows[0][0]);
}

// The table stands below the chart, so it is there only when the page is read to its end.
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", build);
else build();
plot.on("plotly_click", event => { if (event.points[0].customdata) show(event.points[0].customdata); });
