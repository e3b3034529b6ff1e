"""Search: methods that look for the best operators of a space, all with the same interface ``ask`` and ``tell``.

A system makes a space for a network's layers (:class:`syno_lab.protocol.OperatorSpace`). A search gets the space as its
first state (:mod:`syno_lab.search.protocol`) and imports no system.
"""

from syno_lab.search.asking import RandomSearch, Search
from syno_lab.search.bayesian import EstimateSearch
from syno_lab.search.elites import Elite, Elites, EliteSearch, examine
from syno_lab.search.evolution import RegularizedEvolution
from syno_lab.search.mcts import MonteCarloTreeSearch
from syno_lab.search.pareto import SELECTIONS, ParetoEvolution, Selection
from syno_lab.search.protocol import Candidate
from syno_lab.search.tree import rave, uct
