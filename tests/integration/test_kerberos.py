"""A worker that shows who it is by tickets of 60 s, which its keytab renews.

Run where Debian's krb5-kdc and the extra kerberos are: they take long to install. IDENTITY_SECONDS
says for how many seconds, if not for the usual number.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from realstack.token_server import Signer
from tests.support import kerberos, secured
from tests.support.kerberos import CLIENT, SERVICE, Realm
from tests.support.secured import Authority
from tests.support.services import Services, Topics
from tests.support.topic_tools import Broker, Message
from tests.support.worker import environment, penstock, running_worker

pytest.importorskip("gssapi", reason="the extra kerberos is not installed")

# The first ticket has ended by then, and the broker asks again each SESSION_MS.
MESSAGES, PAUSE_S = int(os.environ.get("IDENTITY_SECONDS", "90")), 1.0
pytestmark = [
    pytest.mark.skipif(not kerberos.IS_HERE, reason="krb5-kdc is not installed"),
    pytest.mark.timeout(MESSAGES + 480),
]


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    with kerberos.realm(tmp_path) as running:
        yield running


async def test_tickets_are_renewed_by_the_keytab(
    services: Services, realm: Realm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, configuration = tmp_path_factory.mktemp("kafka"), Path(realm.environ["KRB5_CONFIG"])
    authority = Authority(tmp_path_factory.mktemp("authority"))
    keys = Signer(tmp_path_factory.mktemp("signer")).keys.as_uri()
    of_broker = realm.keytab(SERVICE), configuration
    topics = Topics(*(f"kerberos-{kind}" for kind in ("in", "out", "dlq")))
    with secured.kafka(authority, folder, keys, of_broker) as addresses:
        keyed: dict[str, object] = {
            "KAFKA__BOOTSTRAP_SERVERS": addresses["kerberos"].replace("127.0.0.1", "localhost"),
            "KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "KAFKA__SASL_MECHANISM": "GSSAPI",
            "KAFKA__KERBEROS_KEYTAB": realm.keytab(CLIENT),
        }
        environ = environment(services, topics, None, **keyed) | realm.environ
        created = await penstock("topics", "create", "--partitions", "1", environ=environ)
        assert created.code == 0, created.stderr
        broker = Broker(addresses["plain"], "read_committed")
        await broker.start()
        async with running_worker(environ) as worker:
            await worker.ready(partitions=1)
            for number in range(MESSAGES):
                row = {"stream": "s", "inline": [[float(number)] * 16]}
                await broker.publish(topics.input, [Message(row, key=b"s")])
                await asyncio.sleep(PAUSE_S)
            await broker.until_committed(topics.input, topics.input, {0: MESSAGES})
            assert await worker.stop() == 0, worker.said
            assert "error" not in worker.said, worker.said
        (records,) = (await broker.records(topics.output)).values()
        await broker.stop()
        realm.call("kadmin.local", "-q", f"delprinc -force {CLIENT}")
        refused = await penstock("topics", "create", environ=environ)
        assert refused.code == 2, refused.stderr
        assert "not found in Kerberos database" in refused.stderr
    answered = [record.document["source"]["offset"] for record in records]
    assert answered == list(range(MESSAGES))
