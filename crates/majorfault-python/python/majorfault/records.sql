-- Records of majorfault (JSON Lines, also gzip-compressed) as views for DuckDB 1.5 and later, every column with its type:
--
--   majorfault report --drift records --csv claims.csv --json > drift.json
--   duckdb -cmd "SET VARIABLE records = 'records/*.jsonl.gz'; SET VARIABLE claims = 'claims.csv'; SET VARIABLE drift = 'drift.json'" \
--          -cmd ".read records.sql"
--
--   runs    one row for each run: machine, trial, outcome, what it did
--   phases  one row for each part of a run (open, visit, close), with its counters
--   claims  one row for each published claim and session: the verdict, and the machine
--   drift   one row for each claim, kernel, kind of device and file system: the verdict on which its sessions agree; flips are marked
--
-- `claims` and `drift` are what the command has judged: records do not hold verdicts. Without its files, the first two are made.
-- In Python: majorfault.fleet.database('records/*.jsonl.gz').

CREATE OR REPLACE VIEW records AS
SELECT * FROM read_json(getvariable('records'), format = 'newline_delimited', filename = true, maximum_object_size = 268435456, columns = {
    'format': 'UINTEGER',
    'tool': 'VARCHAR',
    'session': 'VARCHAR',
    'began_unix_s': 'UBIGINT',
    'trial': 'STRUCT(
        data STRUCT(files VARCHAR[], offset_bytes UBIGINT, size_bytes UBIGINT),
        workload STRUCT("name" VARCHAR, given MAP(VARCHAR, VARCHAR)),
        direction VARCHAR, arm MAP(VARCHAR, JSON), block_bytes UBIGINT, threads UINTEGER, iodepth UINTEGER,
        memory_bytes UBIGINT, "cache" VARCHAR, seed UBIGINT, repetition UINTEGER)',
    'machine': 'STRUCT(
        kernel VARCHAR, architecture VARCHAR, cpu VARCHAR, cpus UINTEGER, memory_bytes UBIGINT, filesystem VARCHAR, device VARCHAR,
        read_ahead_kb UBIGINT, max_sectors_kb UBIGINT, rotational BOOLEAN, thp VARCHAR, lru VARCHAR, cgroup VARCHAR, hypervisor VARCHAR)',
    'settings': 'MAP(VARCHAR, VARCHAR)',
    'outcome': 'JSON',
    'phases': 'STRUCT("name" VARCHAR, began_ns UBIGINT, wall_ns UBIGINT, counters MAP(VARCHAR, UBIGINT))[]',
    'threads': 'STRUCT(accesses UBIGINT, bytes UBIGINT, wall_ns UBIGINT)[]',
    'gates': 'STRUCT("name" VARCHAR, finding VARCHAR, says VARCHAR)[]',
    'figures': 'MAP(VARCHAR, UBIGINT)',
    'cell': 'STRUCT(experiment VARCHAR, "name" VARCHAR, scale VARCHAR)',
    'question': 'VARCHAR'
});

CREATE OR REPLACE VIEW runs AS
SELECT
    -- HOST.jsonl.gz, as a sweep leaves it, is the host's name.
    regexp_extract(filename, '([^/]*?)(\.jsonl)?(\.gz)?$', 1) AS source,
    format, tool, session, began_unix_s,
    machine.kernel, machine.architecture, machine.cpu, machine.cpus, machine.memory_bytes AS machine_memory_bytes,
    machine.filesystem, machine.device, machine.read_ahead_kb, machine.rotational, machine.thp, machine.lru, machine.cgroup,
    machine.hypervisor,
    map_keys(trial.arm)[1] AS arm_kind,
    map_values(trial.arm)[1] ->> '$.name' AS arm,
    settings,
    trial.workload.name AS workload, trial.workload.given AS workload_given,
    trial.direction, trial.block_bytes, trial.threads, trial.iodepth, trial.data.size_bytes,
    trial.memory_bytes, trial.cache, trial.seed, trial.repetition,
    cell.experiment, cell.name AS cell, cell.scale, question,
    -- "done", or an object with one key.
    CASE json_type(outcome) WHEN 'OBJECT' THEN json_keys(outcome)[1] ELSE outcome ->> '$' END AS outcome,
    CASE json_type(outcome) WHEN 'OBJECT' THEN coalesce(outcome ->> '$.missing.reason', outcome ->> '$.failed') END AS outcome_reason,
    coalesce(list_sum([thread.accesses FOR thread IN threads]), 0)::UBIGINT AS accesses,
    coalesce(list_sum([thread.bytes FOR thread IN threads]), 0)::UBIGINT AS bytes,
    [gate.name FOR gate IN gates IF gate.finding = 'spoiled'] AS spoiled_by,
    figures, phases
FROM records;

CREATE OR REPLACE VIEW phases AS
SELECT source, session, kernel, device, arm_kind, arm, settings, workload, block_bytes, threads, seed, repetition, experiment, cell,
    phase.name AS phase, phase.began_ns, phase.wall_ns, phase.counters
FROM (SELECT *, unnest(phases) AS phase FROM runs);

CREATE OR REPLACE VIEW claims AS
SELECT claim AS id, experiment, verdict, reason, ours, figure, runs, session, source, "commit" AS tool, kernel, filesystem, device, scale, machine,
    "time" AS began_unix_s, branch
FROM read_csv(getvariable('claims'), header = true, auto_detect = false, delim = ',', quote = '"', escape = '"', nullstr = '', columns = {
    'time': 'UBIGINT', 'branch': 'VARCHAR', 'figure': 'DOUBLE', 'claim': 'VARCHAR', 'experiment': 'VARCHAR', 'verdict': 'VARCHAR', 'reason': 'VARCHAR',
    'ours': 'VARCHAR', 'runs': 'UBIGINT', 'session': 'VARCHAR', 'source': 'VARCHAR', 'commit': 'VARCHAR', 'kernel': 'VARCHAR', 'filesystem': 'VARCHAR',
    'device': 'VARCHAR', 'scale': 'VARCHAR', 'machine': 'VARCHAR'
});

CREATE OR REPLACE VIEW drift AS
WITH document AS (
    SELECT unnest(claims) AS claim FROM read_json(getvariable('drift'), maximum_object_size = 268435456, columns = {
        'claims': 'STRUCT(
            id VARCHAR, experiment VARCHAR, kind VARCHAR, says VARCHAR, published VARCHAR, sides STRUCT(
                kernel VARCHAR, device VARCHAR, filesystem VARCHAR, verdict VARCHAR, reason VARCHAR, sessions UBIGINT, verdicts MAP(VARCHAR, UBIGINT),
                figure DOUBLE[], began_unix_s UBIGINT[], conditions MAP(VARCHAR, VARCHAR[]), flips BOOLEAN,
                beside STRUCT(axis VARCHAR, other VARCHAR, was VARCHAR, flips BOOLEAN, also_different VARCHAR[])[])[])[]'
    })
)
SELECT id, experiment, kind, says, published, unnest(sides, max_depth := 2) FROM (SELECT unnest(claim) FROM document);
