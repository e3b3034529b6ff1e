"""Text on a page that is cut off or lies on other text, by the boxes that the browser gives it."""

from __future__ import annotations

from playwright.sync_api import Page

_FIND = """async ([place, skip]) => {
  // What fits itself to a new width does so before the next picture, so that nobody sees it otherwise.
  await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  const root = document.querySelector(place);
  const boxes = [];
  const found = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const say = (text) => JSON.stringify(text.trim().slice(0, 60));
  const hides = (value) => value === "hidden" || value === "clip";
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const owner = node.parentElement;
    if (!node.data.trim() || ["STYLE", "SCRIPT", "TITLE", "OPTION"].includes(owner.tagName.toUpperCase())) continue;
    if (skip && owner.closest(skip)) continue;
    if (!owner.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      let isOutside = false;
      let isScrolledAway = false;
      for (let up = owner; up && up !== document.body; up = up.parentElement) {
        const style = getComputedStyle(up);
        const frame = up.getBoundingClientRect();
        // A letter may stand out of its line by a hair; what can be scrolled to is not cut.
        if (["auto", "scroll"].includes(style.overflowX) || ["auto", "scroll"].includes(style.overflowY)) {
          isOutside = true;
          isScrolledAway = box.bottom > frame.bottom || box.top < frame.top || box.left > frame.right;
          break;
        }
        const across = hides(style.overflowX) && (box.left < frame.left - 1.5 || box.right > frame.right + 1.5);
        const down = hides(style.overflowY) && (box.top < frame.top - 2.5 || box.bottom > frame.bottom + 2.5);
        if (across || down) found.push(`cut: ${say(node.data)}`);
      }
      if (!isScrolledAway) boxes.push([node, box]);
      const end = document.documentElement.clientWidth + 1;
      if (!isOutside && box.right > end) found.push(`beyond the page: ${say(node.data)}`);
    }
  }
  for (let a = 0; a < boxes.length; a += 1) {
    for (let b = a + 1; b < boxes.length; b += 1) {
      const [[first, one], [second, other]] = [boxes[a], boxes[b]];
      if (first === second) continue;
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (across > 1.5 && down > 3.5) found.push(`${say(first.data)} lies on ${say(second.data)}`);
    }
  }
  return [...new Set(found)];
}"""


def unreadable(page: Page, place: str, skip: str = "") -> list[str]:
    """What cannot be read within an element: cut off, beyond the page, or on other text.

    Args:
        page: as wide as it is.
        place: a selector of the element.
        skip: a selector of parts that are not looked at.
    """
    found: list[str] = page.evaluate(_FIND, [place, skip])
    return found
