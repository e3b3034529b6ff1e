// How `Stepper` asks for a comparison of the place that is shown with another one; it opens below the stepper.

class PlaceComparison {
  /** `told.compare(place)` is called with the number of the other place. */
  constructor(model, told) {
    this.model = model;
    const asked = (event) => {
      event.preventDefault();
      if (this.number.reportValidity()) told.compare(Number(this.number.value));
    };
    this.number = make("input", {
      type: "number",
      min: "0",
      step: "1",
      required: true,
      value: "0",
      "aria-label": "The other place",
      onkeydown: (event) => event.key === "Enter" && asked(event), // JupyterLab keeps it from submitting the form
    });
    const button = make("button", { type: "submit" }, "Compare");
    const words = make("span", {}, "Compare this place with place ");
    this.element = make("form", { class: "syno-bar", hidden: !model.get("live"), onsubmit: asked }, words, this.number, button);
    this.place = make("div", { class: "syno-compared" });
    this.child = new ChildView(model, this.place, (text) => told.complain(`The comparison cannot be shown: ${text}`));
    this.listener = listener(model);
    this.listener.on(["tree"], () => this.number.setAttribute("max", String(model.get("tree").length - 1)));
    this.listener.on(["compared"], () => this.child.draw(model.get("compared")));
  }

  destroy() {
    this.listener.off();
    this.child.close();
  }
}
