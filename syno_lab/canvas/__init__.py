"""Canvas: kernels as micro-DAGs, with sizes that are filled to a network's budget (ASPLOS 2024).

>>> import syno_lab as sl
>>> print(sl.canvas.known.residual())
t0 = input: [C, H, W]
t1 = fc C(t0): [C, H, W]
t2 = add(t1, t0): [C, H, W]
"""

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
from syno_lab.canvas.sampler import Sampler as Sampler

# A kernel knows nothing of its fitting, so its methods that need it are bound here, as syno_lab.api does for pGraphs.
for _name, _method in {"fit": fit_to, "to_json": lambda kernel: Fitted(kernel).to_json()}.items():
    setattr(Kernel, _name, _method)
