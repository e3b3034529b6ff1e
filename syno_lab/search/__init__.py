"""Search: methods that look for the best operators of a space, all under the same ask and tell.

A space is what a system makes of a network's layers (:class:`syno_lab.protocol.OperatorSpace`); search knows it by its
first state (:mod:`syno_lab.search.protocol`) and imports no system.
"""

from syno_lab.search.asking import RandomSearch as RandomSearch
from syno_lab.search.asking import Search as Search
from syno_lab.search.bayesian import EstimateSearch as EstimateSearch
from syno_lab.search.elites import Elite as Elite
from syno_lab.search.elites import Elites as Elites
from syno_lab.search.elites import EliteSearch as EliteSearch
from syno_lab.search.elites import examine as examine
from syno_lab.search.evolution import RegularizedEvolution as RegularizedEvolution
from syno_lab.search.mcts import MonteCarloTreeSearch as MonteCarloTreeSearch
from syno_lab.search.pareto import SELECTIONS as SELECTIONS
from syno_lab.search.pareto import ParetoEvolution as ParetoEvolution
from syno_lab.search.pareto import Selection as Selection
from syno_lab.search.policies import rave as rave
from syno_lab.search.policies import uct as uct
from syno_lab.search.protocol import Candidate as Candidate
