"""What your tests may import to put your model, your objects and your formats through thousands of
failures: the simulation, in which time is virtual and the services are in memory.
"""

from penstock.core.rows.payload import Payload
from penstock.errors import Rejected
from penstock.formats.runs import RowOptions
from penstock.ports import Answers
from penstock.tools.simulation.simulation import Report, Scenario, Violation, simulate

__all__ = [
    "Answers",
    "Payload",
    "Rejected",
    "Report",
    "RowOptions",
    "Scenario",
    "Violation",
    "simulate",
]
