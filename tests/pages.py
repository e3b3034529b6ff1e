"""The data of a page that stands alone (:mod:`syno_widgets.standalone`)."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

_DATA = re.compile(r'(id="state">)([^<]*)')


def page_state(text: str) -> Any:
    """The traits in the text of a page."""
    found = _DATA.search(text)
    assert found, "the page has no data"
    return json.loads(zlib.decompress(base64.b64decode(found[2])))


def with_state(text: str, state: Any) -> str:
    """The page with other traits."""
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    changed, times = _DATA.subn(lambda found: found[1] + packed, text)
    assert times == 1
    return changed
