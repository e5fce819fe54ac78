"""Apache Kafka as one KRaft node: jars from Maven, topics created explicitly."""

import asyncio
import logging
import os
import re
import subprocess
import uuid
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from string import Template

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code

from realstack import layout
from realstack.prerequisites import run
from realstack.service import Launch, NotReady, Ports

VERSION = "4.4.0"
# Names another release. `scripts/stack up --kafka VERSION` sets it for itself, and brokers that
# tests start are of this release, too.
RELEASE = "PENSTOCK_STACK_KAFKA_VERSION"
# The topics, with their numbers of partitions. Each has four partitions, so that several workers
# and lanes can share a topic.
TOPICS = {"refs": 4, "refs-by-stream": 4, "predictions": 4, "predictions.dlq": 4}
TOPIC_ALREADY_EXISTS = 36

POM = Template("""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId>
  <artifactId>kafka-libs</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$version</version>
    </dependency>
    <dependency> <!-- without it the broker logs nothing; its version is that of Kafka's log4j -->
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
""")

# With one node every internal topic has one replica. Internal topics have few partitions, because
# each partition takes files and start-up time. There is no rebalance delay, because a test's group
# is complete within milliseconds.
PROPERTIES = Template("""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:$kafka,CONTROLLER://127.0.0.1:$kafka_controller
advertised.listeners=PLAINTEXT://127.0.0.1:$kafka
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:$kafka_controller
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$folder/data
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
""")

# The URL of the keys by which the broker knows tokens. If it is set, the broker has a listener
# more, whose clients log in by tokens of `AUDIENCE` and `ISSUER`, and each five seconds anew.
KEYS = "PENSTOCK_STACK_KAFKA_KEYS"
AUDIENCE, ISSUER, SESSION_MS = "kafka", "tests", 5_000
# Before Kafka 4.2 a broker takes any token unless it names its validator (CVE-2026-33557).
OAUTH = Template("""\
listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oauth.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;
listener.name.oauth.oauthbearer.sasl.server.callback.handler.class=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.oauth.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=$keys
listener.name.oauth.oauthbearer.sasl.oauthbearer.expected.audience=$audience
listener.name.oauth.oauthbearer.sasl.oauthbearer.expected.issuer=$issuer
listener.name.oauth.oauthbearer.sasl.oauthbearer.clock.skew.seconds=0
listener.name.oauth.oauthbearer.connections.max.reauth.ms=$session_ms
sasl.oauthbearer.jwt.validator.class=org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator
""")

LOGGING = """\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


def version() -> str:
    return os.environ.get(RELEASE, VERSION)


def _pom() -> str:
    return POM.substitute(version=version())


def _fetch(folder: Path) -> None:
    (folder / "pom.xml").write_text(_pom())
    run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"],
        what=f"fetching Apache Kafka {version()} with Maven",
        cwd=folder,
    )


class Kafka:
    name = "kafka"

    @property
    def jars(self) -> Path:
        return layout.cache() / f"kafka-{version()}-{sha256(_pom().encode()).hexdigest()[:8]}"

    def build(self) -> None:
        layout.build_once(self.jars, _fetch)

    def configure(self, folder: Path, ports: Ports) -> Launch:
        properties, keys = folder / "server.properties", os.environ.get(KEYS)
        text = PROPERTIES.substitute(ports, folder=folder)
        java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{self.jars}/libs/*"]
        if keys is not None:
            address = f"OAUTH://127.0.0.1:{ports['kafka_oauth']}"
            text = re.sub(r"(?m)^((?:advertised\.)?listeners=.*)", rf"\1,{address}", text)
            text = re.sub(r"(?m)^(listener\.security.*)", r"\1,OAUTH:SASL_PLAINTEXT", text)
            text += OAUTH.substitute(
                keys=keys, audience=AUDIENCE, issuer=ISSUER, session_ms=SESSION_MS
            )
            java.append(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}")
        properties.write_text(text)
        (folder / "log4j2.properties").write_text(LOGGING)
        java.append(f"-Dlog4j2.configurationFile={folder}/log4j2.properties")
        if not (folder / "data" / "meta.properties").exists():
            # Id and option are joined to one argument, because one id in 64 begins with a minus.
            identity = f"--cluster-id={new_id()}"
            format_storage = ["format", "--standalone", identity, "-c", str(properties)]
            subprocess.run(
                [*java, "kafka.tools.StorageTool", *format_storage], check=True, capture_output=True
            )
        return Launch([*java, "kafka.Kafka", str(properties)])

    def probe(self, ports: Ports) -> None:
        # The client logs every refused connection, but here refusals are expected.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        asyncio.run(_ensure_topics(f"127.0.0.1:{ports['kafka']}"))


def new_id() -> str:
    """A new id for a cluster or a directory, in Kafka's own form."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


async def _ensure_topics(bootstrap_servers: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        await admin.start()
        missing = TOPICS.keys() - set(await admin.list_topics())
        if missing:
            answer = await admin.create_topics(
                [NewTopic(name, TOPICS[name], 1) for name in missing]
            )
            for name, code, *_ in answer.topic_errors:
                if code not in (0, TOPIC_ALREADY_EXISTS):
                    raise NotReady(f"topic {name} was not created: {for_code(code).__name__}")
    except (KafkaError, OSError) as error:
        raise NotReady(f"Kafka does not answer: {error}") from error
    finally:
        await admin.close()
