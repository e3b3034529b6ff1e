"""Endpoints of Dask clusters: the lab's own, a cluster that the user names, or the cluster that started this job.

The lab trusts the scheduler at an endpoint, so no endpoint is read from a lab's folder, which another user may own.
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

#: The file in the user's settings that names the cluster, as ``address``, and its TLS files.
SETTINGS = "cluster.toml"
#: The environment variable of a job, started by a foreign worker, with the endpoint of that worker's cluster.
VARIABLE = "SYNO_LAB_CLUSTER"
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Endpoint:
    """The address of a scheduler and the TLS files for it.

    Attributes:
        address: the scheduler's address, ``tls://HOST:PORT``, or ``tcp://HOST:PORT`` on this machine alone.
        ca, certificate, key: PEM files or their text; empty: the files of Dask's own configuration.

    Raises JobError where the cluster is on another machine and does not use TLS.
    """

    address: str
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        host = self.address.rpartition("://")[2].rpartition(":")[0].strip("[]")
        if not self.is_encrypted and not is_loopback(host):
            raise JobError(
                f"the Dask cluster at {inputs.quoted(self.address)} is without TLS, and whoever reaches it can run "
                "code in it: start it with --tls-ca-file, --tls-cert and --tls-key, and name it as tls://HOST:PORT"
            )

    @property
    def is_encrypted(self) -> bool:
        """Whether the scheduler admits only clients with a key."""
        return self.address.partition("://")[0] in ("tls", "wss")

    def security(self) -> Any:
        """Return the TLS settings for Dask's client, a `distributed.Security`.

        Raises JobError where there is no certificate; SynoError where the user does not own the key's file.
        """
        from distributed.security import Security

        options = {"tls_ca_file": self.ca, "tls_client_cert": self.certificate, "tls_client_key": self.key}
        for path in (self.certificate, self.key):
            if path and "\n" not in path:
                private.check_own(Path(path))
        files = {name: value for name, value in options.items() if value}
        security: Any = Security(require_encryption=self.is_encrypted, **files)
        if self.is_encrypted and not (security.tls_ca_file and security.tls_client_cert):
            raise JobError(
                f"expected TLS files for the Dask cluster at {self.address}, found none: name them in "
                f"{private.config_folder() / SETTINGS} as ca, certificate and key"
            )
        return security


def named(address: str | None) -> Endpoint | None:
    """Return the cluster at an address, by default at the address in the user's settings; None if neither exists.

    The TLS files are named in ``cluster.toml`` in `private.config_folder`, relative to this folder, for example::

        address = "tls://10.0.0.5:8786"
        ca = "cluster-ca.pem"
        certificate = "me.pem"
        key = "me.key"

    Raises JobError where the file is malformed, or a cluster on another machine does not use TLS; SynoError where
    another user owns the file.
    """
    file = private.config_folder() / SETTINGS
    known = [field.name for field in fields(Endpoint)]
    try:
        private.check_own(file)
        settings = tomllib.loads(inputs.read_text(file, _MOST_BYTES))
    except FileNotFoundError:
        return None if address is None else Endpoint(address)
    except (OSError, ValueError) as error:
        raise JobError(f"{file}: expected TOML with {', '.join(known)}, found: {error}") from None
    if wrong := [name for name, value in settings.items() if name not in known or not isinstance(value, str)]:
        raise JobError(f"{file}: expected texts under {', '.join(known)}, found {inputs.quoted(wrong[0])}")
    paths = {name: str(file.parent / Path(settings[name]).expanduser()) for name in known[1:] if settings.get(name)}
    address = settings.get("address") if address is None else address
    return Endpoint(address, **paths) if address else None


def inherited() -> Endpoint | None:
    """Return the foreign cluster whose worker started this process as a job; None for any other process."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        return Endpoint(**json.loads(text))
    except (ValueError, TypeError):
        raise JobError(f"{VARIABLE}: expected the endpoint from a Dask worker, found {inputs.quoted(text)}") from None


def passed_on() -> dict[str, str]:
    """Return the environment variable that names a foreign worker's cluster to a job; empty for a lab's worker."""
    from distributed import get_worker

    from syno_lab.jobs import node

    try:
        worker: Any = get_worker()
    except ValueError:  # ValueError: this process is no worker
        return {}
    if node.is_ours():
        return {}
    security = worker.security
    paths = {"ca": security.tls_ca_file, "certificate": security.tls_worker_cert, "key": security.tls_worker_key}
    files = {name: path for name, path in paths.items() if path}
    return {VARIABLE: json.dumps({"address": worker.scheduler.address, **files})}
