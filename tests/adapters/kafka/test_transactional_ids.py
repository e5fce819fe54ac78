"""Who may fence whom: one input, and one group, each for itself."""

from penstock.adapters.kafka.transactions import transactional_id
from penstock.ports import Where


def of(group: str, topic: str, partition: int = 0) -> str:
    return transactional_id(group, Where(topic, partition))


def test_inputs_that_have_nothing_in_common_share_no_id() -> None:
    assert of("penstock", "site1-refs") != of("penstock-site1", "refs")
    assert of("a", "b-1", 2) != of("a", "b", 12)
    assert of("a/b", "c") != of("a", "c")


def test_an_id_is_that_of_its_input_in_every_worker() -> None:
    assert of("penstock", "refs", 3) == of("penstock", "refs", 3) == "penstock/refs/3"
