"""Prepares a user's own network and data for a search in rungs: names, choice of layers, checks of the network."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from syno_lab.blame import blamed
from syno_lab.copies import check_values, copied, uncompiled
from syno_lab.data.datasets import DIGITS, data_path, is_class_folders
from syno_lab.data.own import OwnData
from syno_lab.data.own import offer as offer_data
from syno_lab.errors import SpecError
from syno_lab.experiments.trying import broken_layers, two_examples
from syno_lab.inputs import quoted
from syno_lab.models.layers import Survey, in_short, nothing_to_replace
from syno_lab.models.registry import OWN
from syno_lab.models.registry import offer as offer_network
from syno_lab.models.sites import Selection, Site
from syno_lab.models.tried import generators_kept
from syno_lab.patience import patient
from syno_lab.trial import TrialRequest, survey_of
from syno_lab.trial.own import DATA, MODEL, bring, checked, name_of
from syno_lab.user_code import user_code

#: Selections of layers: larger convolutions, 1x1 convolutions, linear layers. The first selection with a layer is used.
SELECTIONS = (Selection(), Selection(pointwise=True), Selection(kinds=("linear",)))
#: The selection that has the layers of all :data:`SELECTIONS`.
ANY_LAYER = Selection(kinds=("conv2d", "linear"), pointwise=True)
#: Coefficients of operators must divide the channels, so a layer is replaced only if this number divides its channels.
DIVISOR = 4
#: The width of operators' windows. A layer with a smaller input stays, because no operator with a window fits it.
WINDOW = 3
#: A layer is not replaced if it has less than this share of the FLOPs of the replaceable layers.
LEAST_SHARE = 0.01
_DIGEST = 12
#: The most reasons in a line about layers.
_MOST_REASONS = 8

#: If a network does not accept the images' own size, these sizes are tried, the usual sizes first.
SIZES = (224, 32, 28, 64, 96, 128, 256, 299, 384)

Model = nn.Module | Callable[[], nn.Module] | str
Data = Sequence[Any] | Callable[[], Sequence[Any]] | str | Path


def is_code(text: str) -> bool:
    """Whether a text names a function in a file: ``file.py:function``."""
    return ".py:" in text


def with_model(request: TrialRequest, model: Model) -> TrialRequest:
    """Return the request with a network, from a registered name, ``file.py:function``, a function or an ``nn.Module``.

    A module is copied with its weights for each training; a function draws new weights for each seed. Raises CodeError
    where the file or function cannot be read or run, or returns no network; SpecError for a model of another type.
    """
    if isinstance(model, str):
        if is_code(model):
            return _with_code(request, MODEL, "backbone", model)
        return msgspec.structs.replace(request, backbone=model)
    if isinstance(model, nn.Module):
        module = uncompiled(model)
        called = type(module).__name__
        build: Callable[[], nn.Module] = partial(copied, module)
        with blamed(called):
            check_values(module)
    elif callable(model):
        called = str(getattr(model, "__name__", type(model).__name__))
        build = checked(model, called, str(getattr(model, "__module__", "this process")))
    else:
        raise SpecError(f"model: expected a torch.nn.Module, a function or 'file.py:function', found {quoted(model)}")
    with generators_kept(), blamed(called):
        torch.manual_seed(0)
        name = f"{OWN}{called}@{_digest(build())}"
    offer_network(name, build)
    return msgspec.structs.replace(request, backbone=name)


def with_data(request: TrialRequest, data: Data) -> TrialRequest:
    """Return the request with data, from a data path, ``file.py:function``, a pair (train, test) or a function.

    Raises CodeError where the file or function cannot be read or run; DataError for another value.
    """
    if isinstance(data, str | Path):
        if is_code(str(data)):
            return _with_code(request, DATA, "data", str(data))
        location = DIGITS if data == DIGITS else str(Path(data).expanduser().absolute())
        return msgspec.structs.replace(request, data=location)
    called = str(getattr(data, "__name__", "data"))
    with patient(called):
        with blamed(called):
            value = data() if callable(data) else data
        own = OwnData.of(value, "data")
    own = replace(own, name=type(own.train.data).__name__)
    name = f"{OWN}{own.name}@{own.fingerprint[:_DIGEST]}"
    offer_data(name, lambda: own)
    return msgspec.structs.replace(request, data=name)


def _with_code(request: TrialRequest, role: str, field: str, text: str) -> TrialRequest:
    """Return the request with the code of ``file.py:function``, and run the code, as the user has named the file."""
    code = user_code(text)
    named = msgspec.structs.replace(request, own={role: code}, **{field: name_of(code)})
    bring(named)
    return msgspec.structs.replace(named, own={**(request.own or {}), **(named.own or {})})


def _digest(net: nn.Module) -> str:
    """Return a digest of a network's modules and weights."""
    digest = hashlib.sha256(repr(net).encode())
    for name, value in sorted(net.state_dict().items()):
        if not isinstance(value, Tensor) or is_lazy(value) or value.is_meta:
            digest.update(f"{name} {type(value).__name__}".encode())
            continue
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        plain = value.detach().cpu().to_dense() if value.is_sparse else value.detach().cpu()
        plain = plain.int_repr() if plain.is_quantized else plain.resolve_conj().resolve_neg()
        digest.update(plain.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:_DIGEST]


def with_layers(request: TrialRequest, patterns: Sequence[str] | None = None) -> tuple[TrialRequest, list[Site]]:
    """Return the request with the names of the layers that operators replace, and these layers: see :func:`choose`."""
    chosen = choose(request, patterns)
    return chosen.request, chosen.sites


@dataclass(frozen=True)
class Chosen:
    """The layers of a network that operators replace.

    Attributes:
        request: the request with the layers' names.
        sites: the layers.
        reasons: why each layer is not replaced, by the layer's name; None for a replaced layer.
    """

    request: TrialRequest
    sites: list[Site]
    reasons: Mapping[str, str | None]

    @property
    def stay(self) -> list[str]:
        """A line with the layers that are not replaced and the reasons; empty if there are no such layers."""
        stay = {name: why for name, why in self.reasons.items() if why is not None}
        return [f"{len(stay)} layers stay: {in_short(stay, _MOST_REASONS)}"] if stay else []


@generators_kept()
def choose(
    request: TrialRequest,
    patterns: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda line: None,
    *,
    tries: bool = True,
) -> Chosen:
    """Choose the layers that operators replace, and try a known operator in each (:func:`.trying.broken_layers`).

    Args:
        request: the request with the network.
        patterns: patterns of layers' names, as in a shell; None: the layers of the first of :data:`SELECTIONS` that has
            layers, except layers that read the input, return the output, or are too small.
        say: a function that is called with a line about each try.
        tries: whether operators are tried.

    Raises:
        SpecError: no layer can be replaced; the message has each layer's reason.
        SynoError: as :func:`check_fit`.
    """
    request = at_its_size(request, say)
    survey = survey_of(request)
    names = ("*",) if patterns is None else tuple(patterns)
    all_reasons = survey.reasons(replace(ANY_LAYER, names=names))
    for selection in SELECTIONS:
        reasons = survey.reasons(replace(selection, names=names))
        sites = [site for site in survey.sites if reasons[site.name] is None]
        unfit = {} if patterns is not None else unworthy(sites, survey)
        sites = [site for site in sites if site.name not in unfit]
        if sites and tries:
            unfit |= broken_layers(_with_sites(request, selection, sites), sites, say)
            sites = [site for site in sites if site.name not in unfit]
        if sites:
            return Chosen(_with_sites(request, selection, sites), sites, reasons | unfit)
        all_reasons |= unfit
    raise nothing_to_replace(survey.network, all_reasons)


def at_its_size(request: TrialRequest, say: Callable[[str], None]) -> TrialRequest:
    """Return the request with a resolution that the network accepts, if the images' own size is not accepted.

    A network with a linear layer on all pixels accepts a single size. So the network is tried on one example of each of
    :data:`SIZES`; ``say`` gets a line about the chosen size. Raises SpecError where no size is accepted.
    """
    is_known = request.resolution is not None or request.data in (DIGITS, "") or request.data.startswith(OWN)
    if is_known or not is_class_folders(data_path(request.data)):
        return request
    try:
        survey_of(request)
        return request
    except SpecError as error:
        refused = error
    for size in SIZES:
        scaled = msgspec.structs.replace(request, resolution=size)
        with suppress(SpecError):
            survey_of(scaled)
            say(f"the images are scaled to {size}x{size}, which the network needs: {refused}")
            return scaled
    raise SpecError(f"{refused}; if it needs another size of images, give resolution=SIZE (--resolution SIZE)")


def _with_sites(request: TrialRequest, selection: Selection, sites: Sequence[Site]) -> TrialRequest:
    options = {"match": [escape(site.name) for site in sites], "kinds": list(selection.kinds)}
    pointwise = {"pointwise": True} if selection.pointwise else {}
    return msgspec.structs.replace(request, options={**request.options, **options, **pointwise})


def unworthy(sites: Sequence[Site], seen: Survey) -> dict[str, str]:
    """Return why some layers are not replaced: indivisible channels, the output layer, small inputs or few FLOPs.

    A layer that is smaller than a window is replaced in two cases: all layers are, or all layers are 1x1 convolutions
    and the larger layers have at most half of the FLOPs.
    """
    last = next((site for site in reversed(seen.sites) if site.calls), None)
    reasons: dict[str, str] = {}
    for site in sites:
        sides = {"input": site.in_channels, "output": site.out_channels}
        odd = [f"{count} {side}" for side, count in sides.items() if count % DIVISOR]
        noun = "features" if site.kind == "linear" else "channels"
        if site is last and site.kind == "linear":
            reasons[site.name] = "it is the last linear layer, which gives the output"
        elif odd:
            reasons[site.name] = f"{DIVISOR} does not divide its {' and '.join(odd)} {noun}"
    fits = [site for site in sites if site.name not in reasons]
    roomy = [site for site in fits if site.kind == "linear" or min(site.height, site.width) >= WINDOW]
    reads_neighbours = any(max(site.kernel_size) > 1 for site in fits)
    if roomy and (reads_neighbours or 2 * _flops(roomy) > _flops(fits)):
        room = "its plane of {0.height}x{0.width} has no room for a window of 3x3"
        reasons |= {site.name: room.format(site) for site in fits if site not in roomy}
        fits = roomy
    least = LEAST_SHARE * _flops(fits)
    small = f"it takes less than {LEAST_SHARE:.0%} of the FLOPs of all layers that could be replaced"
    return reasons | {site.name: small for site in fits if site.flops < least}


def _flops(sites: Sequence[Site]) -> float:
    return math.fsum(site.flops for site in sites)


@generators_kept()
def check_fit(request: TrialRequest) -> None:
    """Refuse a network that does not accept the data, or has fewer outputs than classes; try it on two examples.

    Raises SpecError, TrainingError or DataError, in one line.
    """
    with two_examples(request) as two:
        two.check()
