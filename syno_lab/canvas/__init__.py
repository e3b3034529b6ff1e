"""Canvas: kernels as micro-DAGs, with sizes that fit a network's budget (ASPLOS 2024).

>>> import syno_lab as sl
>>> print(sl.canvas.known.residual())
t0 = input: [C, H, W]
t1 = fc C(t0): [C, H, W]
t2 = add(t1, t0): [C, H, W]
"""

from syno_lab.canvas import aim as _aim
from syno_lab.canvas import drawing as _drawing
from syno_lab.canvas import known as known
from syno_lab.canvas.fitted import Fitted as Fitted
from syno_lab.canvas.fitted import fit_to
from syno_lab.canvas.kernel import Draft as Draft
from syno_lab.canvas.kernel import Kernel as Kernel
from syno_lab.canvas.matching import broadcast as broadcast
from syno_lab.canvas.places import Budget as Budget
from syno_lab.canvas.places import Place as Place
from syno_lab.canvas.primitives import PRIMITIVES as PRIMITIVES
from syno_lab.canvas.primitives import Primitive as Primitive
from syno_lab.canvas.rules import RULES as RULES
from syno_lab.canvas.rules import Room as Room
from syno_lab.canvas.sampler import Sampler as Sampler

# The modules of drafts and kernels import no modules for growth, fitting and drawing. Methods that need such modules
# are added here, as syno_lab.api does for pGraphs.
_METHODS = {
    Draft: {
        "broadcast": broadcast,
        "candidates": _aim.candidates_of,
        "why_dead": _aim.why_dead,
        "dot": _drawing.dot,
        "svg": _drawing.svg,
    },
    Kernel: {
        "fit": fit_to,
        "to_json": lambda kernel: Fitted(kernel).to_json(),
        "dot": lambda kernel, **options: Fitted(kernel).dot(**options),
        "svg": lambda kernel, **options: Fitted(kernel).svg(**options),
    },
}
for _class, _methods in _METHODS.items():
    for _name, _method in _methods.items():
        setattr(_class, _name, _method)
