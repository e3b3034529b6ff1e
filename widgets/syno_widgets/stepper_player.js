// What `Stepper` has instead of a kernel on a page that stands alone: every place of the session, worked out beforehand
// (syno_lab/player.py). It moves as a session does: back to the place before, forth to the one that was visited last, and to
// any place of the tree. The address ends in the place, and leads there again.

const UNHELD = "The next steps of this place are not in this page: open the session in a notebook to see them.";

class Player {
  constructor(model) {
    this.model = model;
    const { parents = [], ahead = [], places = {}, courses = {} } = model.get("player");
    Object.assign(this, { parents, ahead: [...ahead], places, courses });
    this.onAddress = () => this.goToAddress();
  }

  has(place) {
    return String(place) in this.places;
  }

  /** What a button of the stepper asks for. */
  take(kind, { index }) {
    const place = this.model.get("place");
    if (kind === "undo") this.go(this.parents[place]);
    else if (kind === "redo") this.go(this.ahead[place]);
    else if (kind === "go") this.go(index);
  }

  go(place) {
    if (!this.has(place)) return;
    this.show(place);
    try {
      history.replaceState(null, "", `#${place}`);
    } catch {
      // The page is shown within another, where it has no address.
    }
  }

  show(place) {
    for (let at = place; this.parents[at] !== null; at = this.parents[at]) this.ahead[this.parents[at]] = at;
    const line = [place];
    while (this.parents[line[0]] !== null) line.unshift(this.parents[line[0]]);
    for (let at = this.ahead[place]; at !== null; at = this.ahead[at]) line.push(at);
    const { menu, distance, svg, ...rest } = this.places[place];
    const course = this.courses[line[line.length - 1]]?.[place] ?? "";
    const values = {
      ...{ links: rest.links, description: rest.description, selected: "", line, place },
      ...{ ticks: [], preview: {}, why: {}, menu: menu ?? [], unlisted: menu ? "" : UNHELD, distance: { ...distance, course } },
      ...rest,
    };
    // The picture last: what is not in its frame waits for it.
    for (const [name, value] of Object.entries({ ...values, svg })) this.model.set(name, value);
  }

  // -- the address

  followAddress() {
    addEventListener("hashchange", this.onAddress);
    this.goToAddress();
  }

  goToAddress() {
    const [, digits] = /^#(\d{1,9})$/.exec(location.hash) ?? [];
    const place = Number(digits);
    if (digits !== undefined && place !== this.model.get("place") && this.has(place)) this.show(place);
  }

  stop() {
    removeEventListener("hashchange", this.onAddress);
  }
}
