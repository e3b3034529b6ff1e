// The page of `JobsView`: its table alone. It stands behind shared.js and jobs_view.js and loads nothing.

const render = renderer(JobsTable, "The jobs");
