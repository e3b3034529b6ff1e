"""The key and certificate by which the processes of a lab's own Dask know each other: only who has the file is let in.

Dask takes pickled functions from whoever may connect, so its scheduler, its worker and its clients show each other one
certificate that no other file holds, and trust nothing else. It is drawn anew for every scheduler and holds for ever: a
clock that is wrong must not lock the lab out of its own cluster.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from syno_lab import private

#: From long before any clock's present to the end that stands for "none" (RFC 5280, section 4.1.2.5).
_BEGIN, _END = datetime.datetime(2000, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59)
_NAME = "syno-lab"


def make(path: Path) -> None:
    """Write a new private key and its certificate, in PEM, to ``path``: whole, and readable by the user alone.

    Raises OSError where it cannot be written.
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
    half = path.with_name(f"{path.name}.new")
    half.unlink(missing_ok=True)
    with private.create(half, "xb") as file:
        file.write(key.private_bytes(serialization.Encoding.PEM, *form))
        file.write(certificate.public_bytes(serialization.Encoding.PEM))
    half.replace(path)


def environment(path: Path) -> dict[str, str]:
    """Dask's settings for a scheduler or a worker that shows and wants the certificate in ``path``."""
    held = {f"{role}__CERT": str(path) for role in ("SCHEDULER", "WORKER", "CLIENT")}
    tls = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": value for name, value in {"CA_FILE": str(path), **held}.items()}
    return {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True", **tls}
