"""The request to a pane of a pGraph."""

from __future__ import annotations

from syno_lab import panes
from syno_lab.ir.operator import Operator

Asked = panes.Asked[Operator]
