#!/bin/sh
#SBATCH --job-name=majorfault
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --no-requeue
# One host for each task of an array, alone on it; its records go to a folder that all hosts share:
#
#   sbatch --array=1-32 contrib/fleet/slurm.sh compare /data/rows.bin --bs 16k
#
# A host on which a second task of the array arrives is left alone: records hold each host once. MAJORFAULT_RECORDS: the folder (records, below where it
# was submitted); MAJORFAULT: the command.
set -eu
majorfault=${MAJORFAULT:-majorfault}
records=${MAJORFAULT_RECORDS:-${SLURM_SUBMIT_DIR:-.}/records}
host=${SLURMD_NODENAME:-$(hostname)}
case ${1:-} in
compare | reproduce) word=$1 && shift ;;
*)
    echo "slurm.sh compare FILE… or slurm.sh reproduce IDS…: these leave records" >&2
    exit 2
    ;;
esac
mkdir -p "$records"
# mkdir(2) is whole on shared file systems, too: one task is first.
if ! mkdir "$records/.$host.${SLURM_ARRAY_JOB_ID:-$$}" 2>/dev/null; then
    echo "$host was measured by another task of this array"
    exit 0
fi
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
status=0
"$majorfault" "$word" --records "$own/records.jsonl" "$@" || status=$?
# Also what a command that failed half-way has left. Members of gzip files may follow each other.
if [ -s "$own/records.jsonl" ]; then gzip -c "$own/records.jsonl" >>"$records/$host.jsonl.gz"; fi
# 1: it ran, and the answer is no (no method is surely best).
[ "$status" -le 1 ]
