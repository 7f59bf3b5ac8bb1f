"""Settings of a reader that change how much room text takes, applied to a page that is already loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from playwright.async_api import Page

from tests.browser.typefaces import EM, NARROW, WIDE, Typeface

#: A browser's own setting of 19.2 px instead of 16 px has this effect on the root element.
LARGER = 1.2
#: Characters of the text that shows which typeface a page uses.
SAMPLE = "Refloat: 1,024 agents (●▲✖ 25 %) → proxy_1…"
#: Pixels that rounding may add.
TOLERANCE = 0.5


@dataclass(frozen=True, slots=True)
class Setting:
    """A typeface, and the size of text as a multiple of the usual one."""

    name: str
    typeface: Typeface
    scale: float = 1.0


#: The last one takes most room.
SETTINGS = (
    Setting("wide", WIDE),
    Setting("narrow", NARROW),
    Setting("wide and 20 % larger", WIDE, LARGER),
)

_RULES = "\n".join(
    f'{face.rule} :root[data-typeface="{face.family}"] :is(*, *::before, *::after)'
    f' {{ font-family: "{face.family}" !important }}'
    for face in (WIDE, NARROW)
)
#: Answers the font size of the body, and the width of a sample in it and in code, in pixels and font sizes.
_APPLY = """async ({ family, scale, sample }) => {
  const root = document.documentElement;
  root.dataset.typeface = family;
  root.style.fontSize = `${100 * scale}%`;
  await document.fonts.load(`16px "${family}"`);
  await document.fonts.ready;
  const measure = (name) => {
    const element = document.createElement(name);
    element.style.cssText = "position: absolute; visibility: hidden; white-space: pre; letter-spacing: 0";
    element.textContent = sample;
    document.body.append(element);
    const width = element.getBoundingClientRect().width / parseFloat(getComputedStyle(element).fontSize);
    element.remove();
    return width;
  };
  return { size: parseFloat(getComputedStyle(document.body).fontSize), text: measure("span"), code: measure("code") };
}"""
#: Answers the widths of document and window, and what reaches beyond an edge and cannot be scrolled.
_OVERFLOW = """() => {
  const edge = document.documentElement.clientWidth;
  const contained = (node) => {
    // An absolutely placed box scrolls only with the boxes around its containing block.
    let leaves = node.nodeType === Node.ELEMENT_NODE && isPlaced(node);
    for (let box = node.parentElement; box !== null && box !== document.body; box = box.parentElement) {
      if (leaves && getComputedStyle(box).position === "static") continue;
      if (getComputedStyle(box).overflowX !== "visible") return true;
      leaves = isPlaced(box);
    }
    return false;
  };
  const isPlaced = (element) => getComputedStyle(element).position === "absolute";
  const beyond = (box) => box.width > 0 && (box.right > edge + 0.5 || (box.left < -1.5 && box.right > 0));
  const describe = (element, box) => `${element.localName}${element.id && `#${element.id}`}`
    + [...element.classList].map((name) => `.${name}`).join("")
    + ` from ${Math.round(box.left)} to ${Math.round(box.right)}: ${element.textContent.trim().slice(0, 60)}`;
  const offenders = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const element = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
    if (node.nodeType === Node.TEXT_NODE) range.selectNodeContents(node);
    const boxes = node.nodeType === Node.TEXT_NODE ? [...range.getClientRects()] : [node.getBoundingClientRect()];
    const box = boxes.find(beyond);
    if (box === undefined || element.closest(".skip, script") !== null || contained(node)) continue;
    offenders.add(describe(element, box));
  }
  return { document: document.documentElement.scrollWidth, window: edge, offenders: [...offenders].slice(0, 8) };
}"""


async def prepare(page: Page) -> float:
    """Give a page the typefaces, open its details, pause it, and return its font size in pixels."""
    # What the bar says of the numbers' age comes with the socket's first words, and on the map a moment after a pause.
    await page.wait_for_function("""document.getElementById("age-text")?.textContent !== "Loading…" """)
    await page.add_style_tag(content=_RULES)
    size = float(
        await page.evaluate("""() => {
          for (const details of document.querySelectorAll("details")) details.open = true;
          document.getElementById("pause")?.click();
          return parseFloat(getComputedStyle(document.body).fontSize);
        }""")
    )
    await page.wait_for_function("""() => !location.pathname.endsWith("/map/")
      || document.getElementById("age-text").textContent.startsWith("Paused · ")""")
    return size


async def apply(page: Page, setting: Setting, usual_size: float) -> None:
    """Show a prepared page with a setting; fail when the typeface or the size has no effect on the text."""
    measurements = await page.evaluate(
        _APPLY, {"family": setting.typeface.family, "scale": setting.scale, "sample": SAMPLE}
    )
    width = len(SAMPLE) * setting.typeface.advance / EM
    for element in ("text", "code"):
        assert abs(measurements[element] - width) < width * 0.01, (
            f"{setting.name}: {element} has another typeface: {measurements[element]} em, not {width}"
        )
    grown = measurements["size"] / usual_size
    assert abs(grown - setting.scale) < 0.01, f"{setting.name}: the text is {grown:.2f} times as large"


async def overflow(page: Page) -> list[str]:
    """Return what is wider than the window and cannot be scrolled by itself; empty when the page fits."""
    overflow_report: dict[str, Any] = await page.evaluate(_OVERFLOW)
    if overflow_report["document"] <= overflow_report["window"] and not overflow_report["offenders"]:
        return []
    return [
        f"the document is {overflow_report['document']} px wide of {overflow_report['window']}",
        *overflow_report["offenders"],
    ]
