-- Records of majorfault (JSON Lines, also gzip-compressed) as views for DuckDB 1.5 and later, every column with its type:
--
--   majorfault reproduce --from 'records'/*.jsonl.gz --json > ledger.json
--   duckdb -cmd "SET VARIABLE records = 'records/*.jsonl.gz'; SET VARIABLE ledger = 'ledger.json'" -cmd ".read records.sql"
--
--   runs    one row for each run: machine, trial, outcome, what it did
--   phases  one row for each part of a run (open, visit, close), with its counters
--   claims  one row for each published claim and session: the verdict, and the machine
--   drift   the verdicts of a claim from kernel to kernel on the same kind of device and file system; flips are marked
--
-- `claims` and `drift` need the ledger: records do not hold verdicts, the command judges them. Without it, the first two are made.
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
WITH ledger AS (
    SELECT unnest(claims) AS claim FROM read_json(getvariable('ledger'), maximum_object_size = 268435456, columns = {
        'claims': 'STRUCT(
            id VARCHAR, experiment VARCHAR, kind VARCHAR, says VARCHAR, published VARCHAR,
            sessions STRUCT("session" VARCHAR, verdict VARCHAR, ours VARCHAR, reason VARCHAR, n UBIGINT, run BOOLEAN)[])[]'
    })
), judged AS (
    SELECT claim.id, claim.experiment, claim.kind, claim.says, claim.published, unnest(claim.sessions) AS judged FROM ledger
), machines AS (
    SELECT session, any_value(source) AS source, any_value(kernel) AS kernel, any_value(filesystem) AS filesystem, any_value(device) AS device,
        any_value(read_ahead_kb) AS read_ahead_kb, any_value(cpu) AS cpu, any_value(hypervisor) AS hypervisor, min(began_unix_s) AS began_unix_s
    FROM runs GROUP BY session
)
SELECT judged.id, experiment, kind, says, published, machines.session, judged.judged.verdict, judged.judged.ours, judged.judged.reason,
    judged.judged.n AS runs, machines.* EXCLUDE (session)
FROM judged JOIN machines ON machines.session = judged.judged.session
WHERE judged.judged.run;

CREATE OR REPLACE VIEW drift AS
WITH sides AS (
    SELECT id, says, filesystem, coalesce(nullif(regexp_extract(device, '^(nvme|mmcblk|loop|zram|pmem|xvd|vd|sd|dm|md)'), ''), device) AS device_class, kernel,
        -- 6.9 comes before 6.10.
        [part::UINTEGER FOR part IN regexp_extract_all(regexp_extract(kernel, '^[0-9.]+'), '[0-9]+')] AS kernel_order,
        count(*) AS sessions, list_sort(list_distinct(list(verdict))) AS verdicts, list(ours ORDER BY began_unix_s) AS ours
    FROM claims GROUP BY ALL
)
SELECT id, says, filesystem, device_class, kernel, sessions,
    CASE len(verdicts) WHEN 1 THEN verdicts[1] ELSE 'sessions differ' END AS verdict, ours,
    lag(verdicts) OVER kernels IS NOT NULL AND lag(verdicts) OVER kernels <> verdicts AS flips
FROM sides
WINDOW kernels AS (PARTITION BY id, filesystem, device_class ORDER BY kernel_order)
ORDER BY id, filesystem, device_class, kernel_order;
