"""What the doctor says of services that are far away."""

from penstock.config import Config, Model, Objects, Window
from penstock.tools.doctor.examine import permitted


def test_what_the_settings_permit_follows_from_the_times_of_answers() -> None:
    cfg = Config(
        objects=Objects(concurrency=16),
        model=Model(max_in_flight=4),
        window=Window(max_rows=100),
    )
    errors = permitted(cfg, store_s=0.04, model_s=0.05, kafka_s=0.01)
    assert "a read takes 40 ms, a call with one row 50 ms, a question to Kafka 10 ms" in errors
    assert "after 110 ms or more" in errors
    assert "16 reads and 4 calls of 100 rows" in errors
    assert "400 objects a second (small ones of 20 streams at 20 Hz) and 8,000 rows" in errors
