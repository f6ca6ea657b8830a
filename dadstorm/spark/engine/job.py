"""A step as a Spark job: the stages one after the other, with the parcels sorted into partitions between them."""

from __future__ import annotations

from functools import partial

import msgspec

from dadstorm.spark.engine.book import Outcome, outcome
from dadstorm.spark.engine.parcels import received
from dadstorm.spark.engine.stages import Stages
from dadstorm.spark.engine.task import Step, partition, read_sources, run_stage
from dadstorm.spark.session import Session


def run_step(session: Session, stages: Stages, step: Step) -> Outcome:
    """Have Spark do a step; what reaches the driver of it."""
    told = msgspec.msgpack.encode(step)
    readers = len(stages.readers)
    rdd = session.spark.sparkContext.parallelize(range(readers), readers)
    rdd = rdd.mapPartitions(partial(read_sources, told))
    for stage in range(1, stages.count):
        rdd = rdd.partitionBy(stages.partitions[stage], partition)
        rdd = rdd.mapPartitions(partial(run_stage, stage, told))
    return outcome(received(rdd.collect()))
