"""What is wrong in the configuration is said at the start, as an error of usage."""

import pytest

from consumers.config import Config, Kafka
from consumers.errors import EXIT_USAGE, Fatal
from consumers.settings import for_worker


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "is no regular expression"),
        ("^([^/]+)/", r"needs the group \(\?P<stream>"),
    ],
)
def test_a_pattern_that_can_name_no_stream_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(Fatal, match=said) as caught:
        for_worker(
            Config(kafka=Kafka(stream_from=pattern)),
            None,
            input_partitions=1,
            output_partitions=1,
            dead_letter_partitions=1,
        )
    assert caught.value.exit_code == EXIT_USAGE
