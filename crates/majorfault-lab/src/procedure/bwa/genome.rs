//! Genomes and reads for an aligner: made from a seed, or one that Debian has as an example.

use flate2::read::MultiGzDecoder;
use majorfault::{Error, Missing, Result};
use rand::Rng;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

/// E. coli 536, 4.9 million bases, of Debian's package bowtie-examples.
const EXAMPLE: &str = "/usr/share/doc/bowtie/examples/genomes/NC_008253.fna.gz";

/// Bases of a line, as FASTA files usually have.
const LINE: usize = 80;

/// Bases of a piece, one in five of which repeats an earlier one: genomes repeat themselves, with changes.
const PIECE: usize = 10_000;
const REPEATS: f64 = 0.2;

/// One base in so many of a repeated piece, or of a read, is another one.
const CHANGED: usize = 100;

/// Bases of a read.
const READ: usize = 100;

const BASES: &[u8; 4] = b"ACGT";

/// So many bases, the same for each seed.
pub(super) fn synthetic(bases: usize, seed: u64) -> Vec<u8> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut genome: Vec<u8> = Vec::with_capacity(bases + PIECE);
    while genome.len() < bases {
        match genome.len() >= PIECE && random.random_bool(REPEATS) {
            true => {
                let from = random.random_range(0..=genome.len() - PIECE);
                let piece = changed(&genome[from..from + PIECE], &mut random);
                genome.extend(piece);
            }
            false => genome.extend((0..PIECE).map(|_| base(&mut random))),
        }
    }
    genome.truncate(bases);
    genome
}

fn base(random: &mut Pcg64) -> u8 {
    BASES[random.random_range(0..BASES.len())]
}

/// A copy in which some bases are drawn anew.
fn changed(piece: &[u8], random: &mut Pcg64) -> Vec<u8> {
    let mut piece = piece.to_vec();
    for _ in 0..piece.len() / CHANGED {
        let at = random.random_range(0..piece.len());
        piece[at] = base(random);
    }
    piece
}

/// Writes a genome as FASTA.
///
/// Errors: Io (full disk).
pub(super) fn write(genome: &[u8], to: &Path) -> Result<()> {
    let lines = |file: &mut dyn Write| {
        writeln!(file, ">genome")?;
        genome.chunks(LINE).try_for_each(|line| file.write_all(line).and_then(|()| file.write_all(b"\n")))
    };
    written(to, lines)
}

/// Writes so many reads of a genome as FASTQ, from places in no order.
///
/// Errors: Io (full disk).
pub(super) fn write_reads(genome: &[u8], reads: usize, seed: u64, to: &Path) -> Result<()> {
    let mut random = Pcg64::seed_from_u64(seed);
    let quality = "I".repeat(READ);
    written(to, |file| {
        for number in 0..reads {
            let from = random.random_range(0..=genome.len() - READ);
            let bases = changed(&genome[from..from + READ], &mut random);
            writeln!(file, "@r{number}\n{}\n+\n{quality}", String::from_utf8_lossy(&bases))?;
        }
        Ok(())
    })
}

fn written(to: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let all = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(to)?);
        write(&mut file)?;
        file.flush()
    };
    all().map_err(|error| Error::io("make the genome", to, error))
}

/// The example as FASTA.
///
/// Errors: Missing (its package), Io.
pub(super) fn write_example(to: &Path) -> Result<()> {
    let file = File::open(EXAMPLE).map_err(|_| no_example())?;
    let mut text = Vec::new();
    let read = MultiGzDecoder::new(file).read_to_end(&mut text).and_then(|_| std::fs::write(to, &text));
    read.map_err(|error| Error::io("unpack the genome of E. coli", EXAMPLE, error))
}

/// Says where the example comes from.
pub(super) fn no_example() -> Missing {
    Missing::new("the genome of E. coli", format!("{EXAMPLE} is not there"), "apt-get install bowtie-examples")
}

/// Whether the example is installed.
pub(super) fn has_example() -> bool {
    Path::new(EXAMPLE).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_genome_is_the_same_for_each_seed_and_has_the_bases_asked_for() {
        let genome = synthetic(25_000, 1);

        assert_eq!(genome.len(), 25_000);
        assert_eq!(genome, synthetic(25_000, 1));
        assert_ne!(genome, synthetic(25_000, 2));
        assert!(genome.iter().all(|base| BASES.contains(base)));
    }

    #[test]
    fn a_genome_repeats_itself_with_changes() {
        let genome = synthetic(1_000_000, 1);

        // Of 50 000 chunks each is met where it stands. A fifth of the genome stands twice, and 20 bases of it are unchanged in 86 % of
        // its places: 8 600 chunks of a copy are met in what it was copied from, and as many the other way.
        let chunks: HashSet<&[u8]> = genome.chunks_exact(20).collect();
        let met = genome.windows(20).filter(|window| chunks.contains(window)).count();
        assert!((60_000..80_000).contains(&met), "{met}");
    }

    #[test]
    fn reads_are_pieces_of_the_genome_with_a_quality_for_each_base() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("reads.fq");

        write_reads(&synthetic(20_000, 1), 3, 2, &path).unwrap();

        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 12);
        assert_eq!((lines[0], lines[1].len(), lines[2], lines[3].len()), ("@r0", 100, "+", 100));
    }

    #[test]
    fn fasta_has_a_name_and_lines_of_80() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("genome.fa");

        write(&[b'A'; 100], &path).unwrap();

        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, format!(">genome\n{}\n{}\n", "A".repeat(80), "A".repeat(20)));
    }
}
