// What `Stepper` keeps and hands on: the session as a word and as a link, comments on places, and what can be done with an
// operator that is complete.

const SESSION = "syno-session:";
let openedAddress = "";

/** The address of this page with a session behind it, without what only this reader may know. */
function addressOf(word) {
  const address = new URL(location.href);
  address.searchParams.delete("token");
  address.hash = word;
  return address.href;
}

class SessionBox {
  /** `told.act(kind, name)` asks the kernel, `told.say(text)` and `told.complain(text)` say how something went. */
  constructor(model, told) {
    this.model = model;
    this.told = told;
    const live = model.get("live");
    this.ways = make("section", { class: "syno-ways-on", "aria-label": "What to do next" });
    this.waysOn = menu("What to do next", "next", this.ways);
    this.waysOn.firstChild.append(" What to do next");
    this.writing = this.buildComment();
    this.element = this.build(live);
  }

  build(live) {
    const text = make("textarea", { rows: "2", "aria-label": "A session or an operator, as text", spellcheck: "false" });
    const copy = async () => {
      try {
        await copyText(this.model.get("word"));
        this.told.say("The session is on the clipboard.");
      } catch (error) {
        this.told.complain(`The session could not be copied: ${error.message}`);
      }
    };
    const link = async () => {
      try {
        await copyText(addressOf(this.model.get("word")));
        this.told.say("The link is on the clipboard: a stepper that is shown at this address opens the session.");
      } catch (error) {
        this.told.complain(`The link could not be copied: ${error.message}`);
      }
    };
    const isServed = location.protocol.startsWith("http");
    const open = make("button", { type: "button", "data-kind": "open", onclick: () => this.told.act("open", text.value) }, "Open");
    const words = live
      ? "All places and branches as one word, to be pasted here again or sent to somebody."
      : "All places and branches as one word, to be pasted into a stepper in a notebook, which continues from here.";
    return make(
      "details",
      { class: "syno-session" },
      make("summary", {}, live ? "Keep this session, or open another" : "Keep this session"),
      make("p", { class: "syno-quiet" }, words),
      make("button", { type: "button", onclick: copy }, "Copy session"),
      isServed && live ? make("button", { type: "button", "data-kind": "link", onclick: link }, "Copy link") : "",
      ...(live ? [text, open] : []),
    );
  }

  /** What the user writes about the place that is shown. */
  buildComment() {
    this.comment = make("textarea", { rows: "1", maxlength: "1000", "aria-label": "Comment on this place" });
    const keep = make("button", { type: "button", "data-kind": "comment", onclick: () => this.told.act("comment", this.comment.value) }, "Keep the comment");
    return make("div", { class: "syno-write" }, make("label", {}, "Comment on this place", this.comment), keep);
  }

  drawComment() {
    const place = this.model.get("place");
    const row = this.model.get("tree").find((one) => one.place === place);
    const said = row?.comment ?? "";
    // What is being typed stays until the place or the kept text is another.
    if (!this.comment || this.commented === `${place} ${said}`) return;
    this.commented = `${place} ${said}`;
    this.comment.value = said;
  }

  /** What can be done with an operator that is complete, as code for a cell. */
  drawWaysOn() {
    const ways = this.model.get("ways_on");
    this.waysOn.hidden = !ways.length || !this.model.get("live");
    const copy = (title, code) => async () => {
      try {
        await copyText(code);
        this.told.say(`Copied: ${title}`);
      } catch (error) {
        this.told.complain(`The code could not be copied: ${error.message}`);
      }
    };
    const way = ({ title, code }) =>
      make("li", {}, `${title}: `, make("code", {}, code.split("\n").pop()), " ", make("button", { type: "button", "aria-label": `Copy: ${title}`, onclick: copy(title, code) }, "Copy"));
    this.ways.replaceChildren(make("p", { class: "syno-quiet" }, "In a cell, with the stepper's own name in place of stepper:"), make("ul", {}, ...ways.map(way)));
  }

  /** A session in the address is opened by the first stepper that is shown there. */
  openAddress() {
    const word = location.hash.slice(1);
    if (!word.startsWith(SESSION) || openedAddress === word) return;
    openedAddress = word;
    this.told.act("open", word);
  }
}
