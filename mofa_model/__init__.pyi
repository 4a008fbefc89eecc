from typing import Final

from mofa_model.answers.advise import advise as advise
from mofa_model.answers.ettr import ettr as ettr
from mofa_model.answers.explain import explain as explain
from mofa_model.answers.simulate import simulate as simulate
from mofa_model.answers.sweep import sweep as sweep
from mofa_model.answers.which import which as which
from mofa_model.errors import InputError as InputError
from mofa_model.errors import MofaError as MofaError
from mofa_model.errors import NoFeasibleStrategy as NoFeasibleStrategy
from mofa_model.errors import SourceUnreachable as SourceUnreachable

VERSION: Final[str]
