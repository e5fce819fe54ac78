"""What cannot be answered on the real services: each in its place, by an error and a dead letter.
"""

import gzip
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import orjson
import pytest

from tests.support.loads import csv, tar_gz
from tests.support.reference_model import random_rows
from tests.support.services import ROOT, Services, Topics
from tests.support.topic_tools import Broker, Message, Record, broker_of
from tests.support.worker import environment, running_worker

GOOD = csv(random_rows(3))
ROWS = GOOD.splitlines(keepends=True)


@pytest.fixture
async def broker(services: Services) -> AsyncIterator[Broker]:
    async with broker_of(services) as broker:
        yield broker


@pytest.fixture
def shared(s3: Any, bucket: str) -> str:
    """A bucket that everybody may read, as `bucket` itself may not be."""
    name = f"{bucket}-shared"
    s3.create_bucket(Bucket=name)
    grants = [("s3:GetObject", f"arn:aws:s3:::{name}/*"), ("s3:ListBucket", f"arn:aws:s3:::{name}")]
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": "*", "Action": action, "Resource": resource}
            for action, resource in grants
        ],
    }
    s3.put_bucket_policy(Bucket=name, Policy=json.dumps(policy))
    return name
