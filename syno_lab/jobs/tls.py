"""The key and certificate of a lab's own Dask processes. A process without the file cannot connect.

Dask unpickles functions from every client. So the lab's scheduler, worker and clients trust only the certificate in
this file. Each scheduler gets a new certificate, without an expiry, so that a wrong clock cannot lock the lab out.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from syno_lab.scratch import put

#: The validity: from a time that is past on any clock, to the time that means "no expiry" (RFC 5280, section 4.1.2.5).
_BEGIN, _END = datetime.datetime(2000, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59)
_NAME = "syno-lab"


def make(path: Path) -> None:
    """Write a new private key and its certificate to the PEM file ``path`` atomically; only the user can read the file.

    Raises OSError where the file cannot be written.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), _BEGIN, _END)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    encoding = serialization.Encoding.PEM
    put(path, key.private_bytes(encoding, *form) + certificate.public_bytes(encoding))


def environment(path: Path) -> dict[str, str]:
    """Return Dask's settings for a scheduler or a worker that presents and demands the certificate in ``path``."""
    roles = {f"{role}__CERT": str(path) for role in ("SCHEDULER", "WORKER", "CLIENT")}
    tls = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": value for name, value in {"CA_FILE": str(path), **roles}.items()}
    return {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True", **tls}
