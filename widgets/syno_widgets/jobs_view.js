// The table of jobs, for `JobsView` (jobs_page.js) and `RunsView`. Everything it shows is a trait, everything it asks for
// one small message. It stands behind shared.js (scripts.py) and loads nothing: no address stands in this file.

const JOB_COLUMNS = ["job", "kind", "name", "state", "done", "left", "attempt", "wall_s", "use", "message"];
const JOB_HEADS = { wall_s: "seconds" };
const JOB_VERBS = { cancel: "Cancel", pause: "Pause", resume: "Resume", retry: "Retry", log: "Log" };

class JobsTable extends LiveView {
  constructor(model, el) {
    super();
    this.model = model;
    this.lines = new Map();
    this.status = make("p", { class: "syno-jobs-status", role: "status", "aria-live": "polite" });
    this.machine = make("p", { class: "syno-quiet" });
    this.error = make("p", { class: "syno-jobs-error", role: "alert" });
    this.body = make("tbody");
    const head = [...JOB_COLUMNS, "actions"].map((name) => make("th", { scope: "col" }, JOB_HEADS[name] ?? name));
    this.table = make("table", {}, make("thead", {}, make("tr", {}, ...head)), this.body);
    this.log = make("pre", { class: "syno-jobs-log", tabindex: "0", role: "group", "aria-label": "Log" });
    const frame = make("div", { class: "syno-jobs-frame", tabindex: "0", role: "group", "aria-label": "Table of jobs" });
    frame.append(this.table);
    this.root = make("div", { class: "syno-shared syno-jobs", role: "group", "aria-label": "Jobs" });
    this.root.append(this.status, this.machine, this.error, frame, this.log);
    this.attach(el, "The jobs continue; run the cell again to see them.");
    this.listen(["rows"], this.drawRows);
    this.listen(["status"], () => write(this.status, model.get("status")));
    this.listen(["machine"], () => write(this.machine, model.get("machine")));
    this.listen(["log"], this.drawLog);
  }

  drawLog() {
    const log = this.model.get("log");
    this.log.hidden = !("job" in log);
    if ("job" in log) write(this.log, `Log of job ${log.job}\n${log.text || "nothing yet"}`);
  }

  drawRows() {
    const rows = this.model.get("rows");
    const ids = new Set(rows.map((row) => row.job));
    for (const [id, line] of this.lines) {
      if (ids.has(id)) continue;
      line.row.remove();
      this.lines.delete(id);
    }
    let before = null;
    for (const row of rows) {
      if (!this.lines.has(row.job)) this.lines.set(row.job, this.makeLine(row.job));
      const line = this.lines.get(row.job);
      const place = before === null ? this.body.firstChild : before.nextSibling;
      if (line.row !== place) this.body.insertBefore(line.row, place);
      line.row.dataset.state = row.state;
      for (const name of JOB_COLUMNS) write(line.cells[name], String(row[name] ?? ""));
      for (const [kind, button] of Object.entries(line.buttons)) button.hidden = !row.actions.includes(kind);
      before = line.row;
    }
    this.table.hidden = rows.length === 0;
  }

  makeLine(job) {
    const cells = Object.fromEntries(JOB_COLUMNS.map((name) => [name, make("td", { class: `syno-jobs-${name}` })]));
    const buttons = {};
    for (const [kind, verb] of Object.entries(JOB_VERBS)) {
      const options = { type: "button", "aria-label": `${verb} job ${job}`, onclick: () => this.asker.ask(kind, { job }) };
      buttons[kind] = make("button", options, verb);
    }
    const row = make("tr", { "data-job": job }, ...Object.values(cells), make("td", {}, ...Object.values(buttons)));
    return { row, cells, buttons };
  }
}
