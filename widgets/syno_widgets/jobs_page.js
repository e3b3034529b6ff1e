// The page of `JobsView`: its table alone. It stands behind shared.js and jobs_view.js and loads nothing.

/** One view; whatever goes wrong while it is made is said in its place. */
function render({ model, el }) {
  try {
    const view = new JobsTable(model, el);
    return () => view.destroy();
  } catch (error) {
    el.append(make("p", { role: "alert" }, `The jobs cannot be shown: ${error.message}`));
    return () => {};
  }
}
