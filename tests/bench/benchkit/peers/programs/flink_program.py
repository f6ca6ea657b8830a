"""The workloads in Flink SQL.

    python flink_program.py W1|W2|W3 DATA FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench_functions import remade

os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

from pyflink.common import Configuration, Encoder
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, OutputFileConfig
from pyflink.table import DataTypes, StreamTableEnvironment
from pyflink.table.udf import udf

SITE = "www.tecnico.ulisboa.pt"
FILES = "'connector' = 'filesystem', 'path' = 'file://{}', 'format' = 'csv'"


def environment(folder):
    settings = {
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "taskmanager.numberOfTaskSlots": "1",
        "taskmanager.memory.process.size": "2g",
        "rest.bind-port": "0",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    found = StreamExecutionEnvironment.get_execution_environment(configuration)
    found.set_parallelism(1)
    return found


def count_words(tables, data):
    source = FILES.format(data / "lines.txt")
    tables.execute_sql(f"CREATE TABLE texts (line STRING) WITH ({source}, 'csv.field-delimiter' = '|')")
    return "SELECT word, COUNT(*) FROM texts CROSS JOIN UNNEST(SPLIT(line, ' ')) AS words (word) GROUP BY word"


def count_visitors(tables, data):
    tables.execute_sql(
        "CREATE TABLE visits (`user` STRING, site STRING, url STRING, ts BIGINT, moment AS PROCTIME()) "
        f"WITH ({FILES.format(data / 'visits.csv')})"
    )
    return f"""
        SELECT url, COUNT(*) FROM (
            SELECT url, ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY moment ASC) AS number
            FROM visits WHERE site = '{SITE}'
        ) WHERE number = 1 GROUP BY url"""


def merge(tables, data, output):
    """In order of the ids, which are taken for times."""
    for side in ("left", "right"):
        tables.execute_sql(
            f"CREATE TABLE `{side}` (id BIGINT, text STRING, moment AS TO_TIMESTAMP_LTZ(id, 3), "
            f"WATERMARK FOR moment AS moment) WITH ({FILES.format(data / f'{side}.csv')})"
        )
    tables.create_temporary_function("remade", udf(remade, result_type=DataTypes.STRING()))
    tables.execute_sql(f"CREATE TABLE made (id BIGINT, text STRING) WITH ({FILES.format(output)})")
    tables.execute_sql(
        "INSERT INTO made SELECT id, remade(text) FROM "
        "(SELECT id, text, moment FROM `left` UNION ALL SELECT id, text, moment FROM `right`) ORDER BY moment"
    ).wait()


def main(workload, data, folder):
    streams = environment(folder)
    tables = StreamTableEnvironment.create(streams)
    output = f"{folder}/output"
    if workload == "W3":
        merge(tables, Path(data), output)
        return
    query = {"W1": count_words, "W2": count_visitors}[workload](tables, Path(data))
    files = FileSink.for_row_format(f"file://{output}", Encoder.simple_string_encoder())
    files = files.with_output_file_config(OutputFileConfig.builder().with_part_prefix("part").build())
    tables.to_changelog_stream(tables.sql_query(query)).sink_to(files.build())
    streams.execute(workload)


if __name__ == "__main__":
    main(*sys.argv[1:])
