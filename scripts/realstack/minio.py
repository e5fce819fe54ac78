"""MinIO, built by Go, with Kafka as a target for bucket events: a real producer of references; and
a botocore client of any S3 store.

Rule: tests and scripts make their clients by `s3_client`, so that they do not depend on the clients
of the package. Owner: the caller, who closes the client.
"""

import os
from pathlib import Path
from typing import Any

import botocore.config
import botocore.exceptions
import botocore.session

from realstack import layout
from realstack.prerequisites import go_install
from realstack.service import Launch, NotReady, Ports

# The last version that Go can install. The project publishes no binaries of this version.
MODULE = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
KEY = "penstock"
SECRET = "penstock-secret"
REGION = "us-east-1"
SETTINGS = {
    "MINIO_ROOT_USER": KEY,
    "MINIO_ROOT_PASSWORD": SECRET,
    "MINIO_BROWSER": "off",
    "MINIO_UPDATE": "off",
}
BUCKET = "penstock"
# The probe writes an object, because only a write proves that the store can write. The probe has a
# bucket of its own, so that this object is not announced.
PROBE_BUCKET = "penstock-probe"
EVENTS_ARN = "arn:minio:sqs::P:kafka"
EVENTS_TOPIC = "refs"


class Minio:
    name = "minio"

    @property
    def binary(self) -> Path:
        return layout.cache() / f"minio-{MODULE.rpartition('-')[2]}" / "minio"

    def build(self) -> None:
        go_install(MODULE, self.binary, what="about 3 minutes")

    def configure(self, folder: Path, ports: Ports) -> Launch:
        (folder / "data").mkdir(exist_ok=True)
        argv = [str(self.binary), "server", "--quiet", "--address", f"127.0.0.1:{ports['minio']}"]
        environment = {
            **SETTINGS,
            # Announce an object before its PUT is acknowledged. Otherwise the announcement of a
            # later object may come first.
            "MINIO_API_SYNC_EVENTS": "on",
            "MINIO_NOTIFY_KAFKA_ENABLE_P": "on",
            "MINIO_NOTIFY_KAFKA_BROKERS_P": f"127.0.0.1:{ports['kafka']}",
            "MINIO_NOTIFY_KAFKA_TOPIC_P": EVENTS_TOPIC,
        }
        return Launch([*argv, str(folder / "data")], environment)

    def probe(self, ports: Ports) -> None:
        # One attempt, without the client's retries, because the caller asks again.
        once = botocore.config.Config(
            retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=5
        )
        client = s3_client(f"http://127.0.0.1:{ports['minio']}", KEY, SECRET, REGION, config=once)
        try:
            buckets = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
            for bucket in {BUCKET, PROBE_BUCKET} - buckets:
                client.create_bucket(Bucket=bucket)
            client.put_object(Bucket=PROBE_BUCKET, Key="probe", Body=os.urandom(16))
            client.put_bucket_notification_configuration(
                Bucket=BUCKET,
                NotificationConfiguration={
                    "QueueConfigurations": [
                        {"QueueArn": EVENTS_ARN, "Events": ["s3:ObjectCreated:*"]}
                    ]
                },
            )
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
            raise NotReady(f"MinIO does not answer: {error}") from error


def s3_client(
    url: str | None, key: str | None, secret: str | None, region: str | None = None, **more: Any
) -> Any:
    """`more`: further arguments of botocore's `create_client`."""
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=url,
        region_name=region or "us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        **more,
    )
