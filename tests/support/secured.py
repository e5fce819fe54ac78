"""The real services once more, with TLS and credentials: each in a folder and on ports of its own.

Rule: the programs are those of the stack, taken from its cache; certificates are made here, by an
authority that nobody else trusts. What was started is stopped at the end of the session.
"""

import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from realstack import processes
from realstack.kafka import AUDIENCE, ISSUER, LOGGING, OAUTH, Kafka
from realstack.layout import free_ports
from realstack.minio import Minio
from realstack.model_servers import TorchServe

# Each takes a few seconds on idle cores, and twenty times that while all tests begin at once.
READY_S = 180.0
LOOK_S = 0.1
# After this time the broker asks who we are again.
SESSION_MS = 3_000
USER, PASSWORD = "penstock", "a-password-nobody-may-see"
STORE_KEY, STORE_SECRET = "a-key-nobody-may-see", "a-secret-nobody-may-see"

KAFKA = Template("""\
process.roles=broker,controller
node.id=1
listeners=PLAIN://127.0.0.1:$plain,SASL://127.0.0.1:$sasl,SECURE://127.0.0.1:$secure,\
MUTUAL://127.0.0.1:$mutual,OAUTH://127.0.0.1:$oauth,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAIN://127.0.0.1:$plain,SASL://127.0.0.1:$sasl,SECURE://127.0.0.1:$secure,\
MUTUAL://127.0.0.1:$mutual,OAUTH://127.0.0.1:$oauth
listener.security.protocol.map=PLAIN:PLAINTEXT,SASL:SASL_PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL,\
OAUTH:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAIN
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:$controller
log.dirs=$folder/data
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=$plain_module
listener.name.secure.plain.sasl.jaas.config=$plain_module
listener.name.sasl.scram-sha-256.sasl.jaas.config=$scram_module
listener.name.sasl.scram-sha-512.sasl.jaas.config=$scram_module
listener.name.secure.scram-sha-256.sasl.jaas.config=$scram_module
listener.name.secure.scram-sha-512.sasl.jaas.config=$scram_module
listener.name.sasl.scram-sha-512.connections.max.reauth.ms=$session_ms
${oauth_properties}listener.name.mutual.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location=$folder/server.pem
ssl.truststore.type=PEM
ssl.truststore.location=$ca
""")
# Beside them, if there is a realm of Kerberos. Its tickets name the host.
KERBEROS = Template("""\
listener.name.kerberos.connections.max.reauth.ms=3000
listener.name.kerberos.sasl.enabled.mechanisms=GSSAPI
listener.name.kerberos.sasl.kerberos.service.name=kafka
listener.name.kerberos.gssapi.sasl.jaas.config=$kerberos_module required useKeyTab=true \
storeKey=true keyTab="$keytab" principal="kafka/localhost";
""")
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PLAIN_MODULE = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
)
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Authority:
    """Signs certificates for 127.0.0.1; `cafile` is what its friends trust."""

    def __init__(self, folder: Path) -> None:
        self.cafile = folder / "ca.pem"
        self._folder = folder
        self._key = folder / "ca.key"
        self._openssl("req", "-x509", "-subj", "/CN=tests", "-out", self.cafile, key=self._key)

    def sign(self, name: str) -> tuple[Path, Path]:
        """Certificate and key, the key as PKCS8."""
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        signed = ("-CA", self.cafile, "-CAkey", self._key)
        names = ("-addext", "subjectAltName=IP:127.0.0.1")
        usual = ("req", "-x509", "-subj", f"/CN={name}", "-out", certificate)
        self._openssl(*usual, *signed, *names, "-addext", "basicConstraints=CA:FALSE", key=key)
        return certificate, key

    def sign_for(self, life_s: float, name: str) -> tuple[Path, Path]:
        """Those of a client, for so many seconds from now on."""
        certificate, key = self.sign(name)
        asked = x509.load_pem_x509_certificate(certificate.read_bytes())
        now = datetime.now(UTC)
        authority = serialization.load_pem_private_key(self._key.read_bytes(), None)
        assert isinstance(authority, rsa.RSAPrivateKey)
        signed = (
            x509.CertificateBuilder(asked.issuer, asked.subject, asked.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(seconds=life_s))
            .sign(authority, hashes.SHA256())
        )
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return certificate, key

    @staticmethod
    def _openssl(*arguments: str | Path, key: Path) -> None:
        # TorchServe takes RSA keys only.
        new = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
        command = ["openssl", *map(str, arguments), *new, "-keyout", str(key)]
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def running(
    argv: list[str], folder: Path, env: Mapping[str, str], answers: Callable[[], bool]
) -> Iterator[None]:
    """Until `answers`, then as long as the block lasts."""
    log = folder / "log"
    process = processes.start(argv, log=log, cwd=folder, env=env)
    try:
        deadline_s = time.monotonic() + READY_S
        while not answers():
            assert process.running, processes.tail(log)
            assert time.monotonic() < deadline_s, processes.tail(log)
            time.sleep(LOOK_S)
        yield
    finally:
        processes.stop(process)


def ports(*names: str) -> dict[str, int]:
    return dict(zip(names, free_ports().values(), strict=False))


def listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def kafka(
    authority: Authority,
    folder: Path,
    keys: str,
    kerberos: tuple[Path, Path] | None = None,
    *,
    session_ms: int = SESSION_MS,
) -> Iterator[dict[str, str]]:
    """Addresses by listener: `plain`, `sasl`, `secure` (SASL over TLS), `mutual`, `oauth`. `keys`:
    the URL of the public keys by which it knows the tokens of `oauth`; a file is read once.
    `kerberos`: the broker's keytab and the configuration of its realm, for a listener `kerberos`.
    """
    server = Kafka()
    server.build()
    certificate, key = authority.sign("kafka")
    (folder / "server.pem").write_text(key.read_text() + certificate.read_text())
    (folder / "log4j2.properties").write_text(LOGGING)
    chosen = ports("plain", "sasl", "secure", "mutual", "oauth", "controller", "kerberos")
    properties = folder / "server.properties"
    properties.write_text(
        KAFKA.substitute(
            chosen,
            folder=folder,
            ca=authority.cafile,
            plain_module=PLAIN_MODULE,
            scram_module=SCRAM_MODULE,
            oauth_properties=OAUTH.substitute(
                keys=keys, audience=AUDIENCE, issuer=ISSUER, session_ms=session_ms
            ),
            session_ms=session_ms,
        )
    )
    if kerberos is not None:
        text = properties.read_text().replace(
            ",CONTROLLER://", f",KERBEROS://localhost:{chosen['kerberos']},CONTROLLER://"
        )
        text = text.replace(
            f"OAUTH://127.0.0.1:{chosen['oauth']}\n",
            f"OAUTH://127.0.0.1:{chosen['oauth']},KERBEROS://localhost:{chosen['kerberos']}\n",
        )
        text = text.replace("CONTROLLER:PLAINTEXT", "KERBEROS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT")
        properties.write_text(
            text + KERBEROS.substitute(keytab=kerberos[0], kerberos_module=KERBEROS_MODULE)
        )
    # Compiled lightly: it carries little, and not for long.
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    java += ["-cp", f"{server.jars}/libs/*"]
    if kerberos is not None:
        java.append(f"-Djava.security.krb5.conf={kerberos[1]}")
    java.append(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}")
    java.append(f"-Dlog4j2.configurationFile={folder}/log4j2.properties")
    format_storage = ["kafka.tools.StorageTool", "format", "--standalone", "-c", str(properties)]
    format_storage += ["-t", "aaaaaaaaaaaaaaaaaaaaaA"]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        format_storage += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
    subprocess.run([*java, *format_storage], check=True, capture_output=True)
    argv = [*java, "kafka.Kafka", str(properties)]
    with running(argv, folder, {}, lambda: listens(chosen["mutual"]) and listens(chosen["plain"])):
        yield {name: f"127.0.0.1:{port}" for name, port in chosen.items()}


def change_password(address: str, password: str) -> None:
    """That of `USER` by SCRAM-SHA-512; `address`: of a listener that asks nobody who he is."""
    terms = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
    change = UserScramCredentialUpsertion(USER, terms, password.encode())
    admin = AdminClient({"bootstrap.servers": address})
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result()


@contextmanager
def minio(authority: Authority, folder: Path) -> Iterator[str]:
    """Its https address."""
    server = Minio()
    server.build()
    certificate, key = authority.sign("minio")
    (folder / "certs").mkdir()
    shutil.copy(certificate, folder / "certs" / "public.crt")
    shutil.copy(key, folder / "certs" / "private.key")
    (port,) = ports("minio").values()
    argv = [str(server.binary), "server", "--quiet", "--address", f"127.0.0.1:{port}"]
    argv += ["--certs-dir", str(folder / "certs"), str(folder / "data")]
    env = {
        "MINIO_ROOT_USER": STORE_KEY,
        "MINIO_ROOT_PASSWORD": STORE_SECRET,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    url = f"https://127.0.0.1:{port}"
    with running(argv, folder, env, lambda: _status(f"{url}/minio/health/ready", authority) == 200):
        yield url


@contextmanager
def torchserve(authority: Authority, folder: Path) -> Iterator[tuple[str, Path]]:
    """Its https address, and the file with its keys."""
    server = TorchServe()
    server.build()
    certificate, key = authority.sign("torchserve")
    names = ("torchserve", "torchserve_metrics", "torchserve_grpc")
    chosen = ports(*names, "torchserve_grpc_management", "torchserve_worker")
    launch = server.configure(folder, chosen)
    settings = folder / "config.properties"
    text = settings.read_text().replace("disable_token_authorization=true\n", "")
    text = text.replace("inference_address=http:", "inference_address=https:")
    text += f"private_key_file={key}\ncertificate_file={certificate}\n"
    settings.write_text(text)
    url, keys = f"https://127.0.0.1:{chosen['torchserve']}", folder / "key_file.json"

    def answers() -> bool:
        with suppress(OSError, ValueError, KeyError):
            return _status(f"{url}/predictions/rows", authority, token(keys), b"[]") == 200
        return False

    with running(launch.argv, folder, launch.env, answers):
        yield url, keys


def token(keys: Path) -> str:
    """What TorchServe asks for, from the file that it wrote."""
    key: str = json.loads(keys.read_text())["inference"]["key"]
    return key


def _status(
    url: str, authority: Authority, token: str | None = None, body: bytes | None = None
) -> int | None:
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, body, headers)
    trusting = ssl.create_default_context(cafile=authority.cafile)
    try:
        with urllib.request.urlopen(request, timeout=5.0, context=trusting) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
