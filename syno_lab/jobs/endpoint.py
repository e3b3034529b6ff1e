"""How to connect to a Dask cluster: the lab's own, one that the user names, or the one that started this job.

None of it is ever read from a lab's folder, which may be somebody else's: whoever answers at an address is believed.
"""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from syno_lab import inputs, private
from syno_lab.errors import JobError
from syno_lab.processes.own_listener import is_loopback

#: In the folder of the user's settings: the cluster to use, ``address``, and the TLS files for it.
SETTINGS = "cluster.toml"
#: In the environment of a job that somebody else's worker has started: that worker's cluster.
VARIABLE = "SYNO_LAB_CLUSTER"
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Endpoint:
    """A scheduler and what opens it.

    Attributes:
        address: of the scheduler, ``tls://HOST:PORT``, or ``tcp://HOST:PORT`` on this machine alone.
        ca, certificate, key: PEM files, or their text; where empty, those of Dask's own configuration.

    Raises JobError where the cluster is on another machine and not behind TLS.
    """

    address: str
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if not self.is_encrypted and not self._is_here():
            raise JobError(
                f"the Dask cluster at {inputs.quoted(self.address)} is without TLS, and whoever reaches it can run "
                "code in it: start it with --tls-ca-file, --tls-cert and --tls-key, and name it as tls://HOST:PORT"
            )

    @property
    def is_encrypted(self) -> bool:
        """Whether nobody comes in without a key."""
        return self.address.partition("://")[0] in ("tls", "wss")

    def _is_here(self) -> bool:
        return is_loopback(self.address.rpartition("://")[2].rpartition(":")[0].strip("[]"))

    def security(self) -> Any:
        """What Dask's client shows and wants to see, a `distributed.Security`.

        Raises JobError where there is no certificate; SynoError where the key is not the user's own file.
        """
        from distributed.security import Security

        wanted = {"tls_ca_file": self.ca, "tls_client_cert": self.certificate, "tls_client_key": self.key}
        for path in (self.certificate, self.key):
            if path and "\n" not in path:
                private.check_own(Path(path))
        given = {name: value for name, value in wanted.items() if value}
        security: Any = Security(require_encryption=self.is_encrypted, **given)
        if self.is_encrypted and not (security.tls_ca_file and security.tls_client_cert):
            raise JobError(
                f"expected TLS files for the Dask cluster at {self.address}, found none: name them in "
                f"{private.config_folder() / SETTINGS} as ca, certificate and key"
            )
        return security


def named(address: str | None) -> Endpoint | None:
    """The cluster at the address of the command line, else the one of the user's settings; None where neither is.

    The TLS files are those of the user's settings. An example of ``cluster.toml``, in the folder that
    `private.config_folder` gives, on which relative paths go::

        address = "tls://10.0.0.5:8786"
        ca = "cluster-ca.pem"
        certificate = "me.pem"
        key = "me.key"

    Raises JobError where the file is malformed, or the cluster is elsewhere and not behind TLS; SynoError where the
    file is not the user's own.
    """
    file = private.config_folder() / SETTINGS
    known = [field.name for field in fields(Endpoint)]
    try:
        private.check_own(file)
        found = tomllib.loads(inputs.read_text(file, _MOST_BYTES))
    except FileNotFoundError:
        return None if address is None else Endpoint(address)
    except (OSError, ValueError) as error:
        raise JobError(f"{file}: expected TOML with {', '.join(known)}, found: {error}") from None
    if wrong := [name for name, value in found.items() if name not in known or not isinstance(value, str)]:
        raise JobError(f"{file}: expected texts under {', '.join(known)}, found {inputs.quoted(wrong[0])}")
    paths = {name: str(file.parent / Path(found[name]).expanduser()) for name in known[1:] if found.get(name)}
    address = found.get("address") if address is None else address
    return Endpoint(address, **paths) if address else None


def inherited() -> Endpoint | None:
    """The cluster whose worker has started this process as a job; None where it was the lab's own, or nobody."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        return Endpoint(**json.loads(text))
    except (ValueError, TypeError):
        raise JobError(f"{VARIABLE}: expected what a Dask worker gives its jobs, found {inputs.quoted(text)}") from None


def passed_on() -> dict[str, str]:
    """What a job's environment says of the cluster of the Dask worker that this is: nothing where a lab started it."""
    from distributed import get_worker

    from syno_lab.jobs import node

    try:
        worker: Any = get_worker()
    except ValueError:  # a supervisor by itself
        return {}
    if node.is_ours():
        return {}
    held = worker.security
    paths = {"ca": held.tls_ca_file, "certificate": held.tls_worker_cert, "key": held.tls_worker_key}
    given = {name: path for name, path in paths.items() if path}
    return {VARIABLE: json.dumps({"address": worker.scheduler.address, **given})}
