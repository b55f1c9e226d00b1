//! What job files say: each option on both sides, sections, places of errors, the files that fio would open.

use super::*;
use crate::trial::{BlockLength, EndsWith, Job, JobOrder, Law, Turns};
use proptest::prelude::*;
use std::path::PathBuf;
use std::process::Command;

fn read_text(text: &str, chosen: &Chosen) -> std::result::Result<JobFile, String> {
    parsed(text, Path::new("/nowhere/job.fio"), chosen)
}

fn file_of(text: &str) -> JobFile {
    read_text(text, &Chosen::default()).unwrap()
}

fn refusal(text: &str) -> String {
    read_text(text, &Chosen::default()).unwrap_err()
}

/// The only job of a section with these lines, on files of 1 MiB.
fn job_of(lines: &str) -> Job {
    let file = file_of(&format!("[job]\n{lines}\n"));
    let draft = &file.stages[0][0];
    let files = (0..draft.files(0).len()).collect();
    draft.job(0, files, 1 << 20, 1).unwrap()
}

fn names(file: &JobFile) -> Vec<Vec<&str>> {
    file.stages.iter().map(|stage| stage.iter().map(|draft| draft.name.as_str()).collect()).collect()
}

#[test]
fn a_job_that_says_nothing_reads_its_file_once_in_order_in_blocks_of_4k() {
    let job = job_of("");

    assert_eq!((job.offset_bytes, job.range_bytes, job.io_bytes, job.loops), (0, 1 << 20, 1 << 20, 1));
    assert_eq!((job.reads_percent, job.order.clone()), (100, JobOrder::Steps { hole_bytes: 0 }));
    assert_eq!(job.blocks[0], [BlockLength { bytes: 4096, to_bytes: 4096, percent: 100 }]);
    assert_eq!((job.iodepth, job.limits.runtime_ns, job.commits.every, job.verify), (1, None, 0, false));
    assert!(job.pace.is_free());
}

#[test]
fn jobs_run_at_once_until_a_stonewall() {
    let file = file_of("[global]\nbs=8k\n[a]\n[b]\n[c]\nstonewall\n[d]\n[e]\nwait_for_previous\n");

    assert_eq!(names(&file), [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
}

#[test]
fn a_job_waits_for_another_where_all_before_it_are_waited_for() {
    assert_eq!(names(&file_of("[a]\n[b]\nwait_for=a\n[c]\nwait_for=a\n")), [vec!["a"], vec!["b", "c"]]);
    let chain = file_of("[a]\nnumjobs=4\n[b]\nwait_for=a\n[c]\nwait_for=b\n");
    assert_eq!(names(&chain), [vec!["a"], vec!["b"], vec!["c"]]);
}

#[test]
fn a_job_that_would_wait_for_a_part_of_those_before_it_is_refused() {
    let error = refusal("[a]\n[b]\n[c]\nwait_for=a\n");

    assert!(error.contains("[c] wait_for=a: it would wait for a part"), "{error}");
}

#[test]
fn global_options_hold_for_the_jobs_behind_them_and_add_up() {
    let file = file_of("[global]\nbs=8k\n[a]\n[global]\nrw=write\n[b]\nbs=16k\n");
    let job = |stage: usize, number: usize| file.stages[stage][number].job(0, vec![0], 1 << 20, 1).unwrap();

    assert_eq!((job(0, 0).blocks[0][0].bytes, job(0, 0).writes()), (8192, false));
    assert_eq!((job(0, 1).blocks[0][0].bytes, job(0, 1).writes()), (16384, true));
}

#[test]
fn only_the_sections_asked_for_are_taken() {
    let chosen = Chosen { sections: vec!["b".to_owned()], ..Chosen::default() };

    assert_eq!(names(&read_text("[a]\nrw=nonsense\n[b]\n", &chosen).unwrap()), [vec!["b"]]);
    let none = Chosen { sections: vec!["z".to_owned()], ..Chosen::default() };
    assert!(read_text("[a]\n", &none).unwrap_err().contains("--section z: there is no such section"));
}

#[test]
fn what_is_typed_goes_over_every_job() {
    let typed = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    let chosen =
        Chosen { options: vec![typed("size", "64k"), typed("bs", "8k"), typed("filename", "x")], sections: vec![] };

    let file = read_text("[a]\nsize=100g\nio_size=7g\nfilename=y\n[b]\nbs=1m\nfilesize=1g\n", &chosen).unwrap();

    for draft in &file.stages[0] {
        let job = draft.job(0, vec![0], 1 << 20, 1).unwrap();
        assert_eq!((job.range_bytes, job.io_bytes, job.blocks[0][0].bytes), (65536, 65536, 8192), "{}", draft.name);
        assert_eq!(draft.files(0), [PathBuf::from("x")]);
    }
}

#[test]
fn an_error_names_the_option_its_section_and_its_line() {
    let text = "; first\n[global]\nbs=4k\n\n[deep]\nrw=randread\nlatency_target=5 ; why\n";

    assert_eq!(
        refusal(text),
        "line 7 [deep]: latency_target=5: not done here: a latency is not aimed at here; the table shows p50 and p99 at each \
         depth that is given"
    );
    let typed = Chosen { options: vec![("iodept".to_owned(), Some("4".to_owned()))], sections: vec![] };
    let error = read_text("[a]\n", &typed).unwrap_err();
    assert_eq!(
        error,
        "on the command line: iodept=4: this option of fio, if it is one, is not understood here; did you mean iodepth?"
    );
}

#[test]
fn directions_and_mixes_are_those_of_fio() {
    for (lines, percent) in [
        ("rw=read", 100),
        ("rw=write", 0),
        ("readwrite=randwrite", 0),
        ("rw=randread\nrwmixread=10", 100),
        ("rw=rw", 50),
        ("rw=readwrite\nrwmixread=60\nrwmixwrite=40", 60),
        ("rw=randrw\nrwmixwrite=90", 10),
    ] {
        assert_eq!(job_of(lines).reads_percent, percent, "{lines}");
    }
}

#[test]
fn what_stands_behind_rw_is_a_hole_or_a_run() {
    let steps = |hole_bytes| JobOrder::Steps { hole_bytes };
    let run = |lines: &str| match job_of(lines).order {
        JobOrder::Draws { run, identical, once, .. } => (run, identical, once),
        JobOrder::Steps { .. } => panic!("{lines}"),
    };

    assert_eq!(job_of("rw=read:252k").order, steps(252 << 10));
    assert_eq!(job_of("rw=write:-8k").order, steps(-8192));
    assert_eq!(run("rw=randread:8"), (8, false, true));
    assert_eq!(run("rw=randwrite:4\nrw_sequencer=identical\nnorandommap"), (4, true, false));
}

#[test]
fn distributions_are_read_for_reads_and_writes() {
    let laws = |text: &str| match job_of(&format!("rw=randrw\nrandom_distribution={text}")).order {
        JobOrder::Draws { laws, .. } => laws,
        JobOrder::Steps { .. } => panic!("{text}"),
    };
    let both = |law: Law| [law.clone(), law];

    assert_eq!(laws("random"), both(Law::Uniform));
    assert_eq!(laws("zipf"), both(Law::Zipf(1.1)));
    assert_eq!(laws("zipf:0.5"), both(Law::Zipf(0.5)));
    assert_eq!(laws("pareto:0.3"), both(Law::Pareto(0.3)));
    assert_eq!(laws("normal:20"), both(Law::Normal(20.0)));
    assert_eq!(laws("zoned:60/10:30/20:10/"), both(Law::Zoned(vec![(60, 10), (30, 20), (10, 70)])));
    assert_eq!(laws("zoned:100/50,50/5:50/95"), [Law::Zoned(vec![(100, 50)]), Law::Zoned(vec![(50, 5), (50, 95)])]);
    assert_eq!(laws("zoned_abs:60/64k:40/128k"), both(Law::ZonedBytes(vec![(60, 65536), (40, 131072)])));
}

#[test]
fn lengths_are_one_a_range_or_a_split() {
    let block = |bytes, to_bytes, percent| BlockLength { bytes, to_bytes, percent };

    assert_eq!(job_of("bs=8k,16k").blocks, [vec![block(8192, 8192, 100)], vec![block(16384, 16384, 100)]]);
    assert_eq!(job_of("bs=,16k").blocks[0], [block(4096, 4096, 100)]);
    assert_eq!(job_of("bsrange=4k-16k").blocks[1], [block(4096, 16384, 100)]);
    assert_eq!(job_of("bssplit=4k/60:64k/40").blocks[0], [block(4096, 4096, 60), block(65536, 65536, 40)]);
    assert_eq!(job_of("bssplit=4k/50:8k:16k").blocks[0][1..], [block(8192, 8192, 25), block(16384, 16384, 25)]);
    assert_eq!(job_of("bssplit=512/50:1k/50\nblockalign=4k").align_bytes, [4096; 2]);
}

#[test]
fn ranges_are_parts_of_the_file() {
    let range = |lines: &str| {
        let job = job_of(lines);
        (job.offset_bytes, job.range_bytes, job.io_bytes)
    };

    assert_eq!(range("size=25%"), (0, 1 << 18, 1 << 18));
    assert_eq!(range("offset=50%"), (1 << 19, 1 << 19, 1 << 19));
    assert_eq!(range("offset=64k\nsize=128k"), (65536, 131072, 131072));
    assert_eq!(range("size=128k\nio_size=1m"), (0, 131072, 1 << 20));
    assert_eq!(range("size=2*64k"), (0, 131072, 131072));
    assert_eq!(range("filename=a:b\nsize=128k"), (0, 65536, 131072), "shared by its files");
    let file = file_of("[j]\noffset_increment=64k\nnumjobs=3\nsize=64k\n");
    let begins: Vec<u64> =
        (0..3).map(|copy| file.stages[0][0].job(copy, vec![0], 1 << 20, 1).unwrap().offset_bytes).collect();
    assert_eq!(begins, [0, 65536, 131072]);
}

#[test]
fn times_and_counts_are_in_fios_units() {
    let job = job_of(
        "runtime=2\ntime_based\nramp_time=500ms\nstartdelay=1m\nloops=3\nnumber_ios=64\niodepth=16\nthinktime=2000\nthinktime_spin=1ms\nthinktime_blocks=4",
    );

    assert_eq!(
        (job.limits.runtime_ns, job.limits.time_based, job.limits.accesses),
        (Some(2_000_000_000), true, Some(64))
    );
    assert_eq!((job.ramp_ns, job.delay_ns, job.loops, job.iodepth), (500_000_000, 60_000_000_000, 3, 16));
    assert_eq!((job.pace.think_ns, job.pace.spin_ns, job.pace.think_every), (2_000_000, 1_000_000, 4));
    assert!(!job_of("time_based").limits.time_based, "without a time nothing would end it");
    assert_eq!(job_of("timeout=1h").limits.runtime_ns, Some(3_600_000_000_000));
}

#[test]
fn commits_rates_shares_and_ends_are_kept() {
    let commits =
        |lines: &str| (job_of(lines).commits.every, job_of(lines).commits.metadata, job_of(lines).commits.at_end);

    assert_eq!(commits("rw=write\nfsync=32"), (32, true, false));
    assert_eq!(commits("rw=write\nfdatasync=8\nend_fsync=1"), (8, false, true));
    assert_eq!(commits("rw=write\nfdatasync=8\nfsync=4"), (4, true, false));
    assert_eq!(job_of("rate=1m,512k").pace.bytes_per_s, [1 << 20, 512 << 10]);
    assert_eq!((job_of("rate_iops=1000").pace.per_s, job_of("rate_process=poisson").pace.poisson), ([1000; 2], true));
    assert_eq!(job_of("flow=8").pace.flow, 8);
    assert_eq!(job_of("exitall").ends_with, EndsWith::Group);
    assert_eq!(job_of("exitall=1\nexit_what=stonewall").ends_with, EndsWith::Stage);
    assert!(job_of("rw=write\nverify=crc32c").verify && !job_of("verify=crc32c").verify);
    assert!(!job_of("rw=write\nverify=md5\ndo_verify=0").verify && !job_of("rw=write\nverify=none").verify);
    assert_eq!(job_of("file_service_type=random:8").turns, Turns::Drawn(8));
}

#[test]
fn values_that_cannot_be_honoured_are_refused_with_their_line() {
    for (line, why) in [
        ("rw=trim", "known are read"),
        ("rwmixread=101", "from 0 to 100"),
        ("bs=0", "legal are blocks of 1 to 1g"),
        ("bsrange=16k-4k", "ends before it begins"),
        ("bssplit=4k/60:8k/60", "add up to 120"),
        ("bssplit=4k/60:8k/30", "add up to 90"),
        ("size=101%", "not a percentage"),
        ("size", "needs a value"),
        ("size=4*", "not a size"),
        ("size=1/0", "divides by zero"),
        ("random_distribution=zipf:1", "legal are numbers above 0 but 1"),
        ("random_distribution=pareto:1", "between 0 and 1"),
        ("random_distribution=zoned:50/10:40/90", "add up to 90"),
        ("random_distribution=zoned:50/60:50/60:0/", "more than all"),
        ("random_distribution=random:7", "\"random\" is not understood"),
        ("ioengine=rbd", "the engine rbd does not read and write files"),
        ("direct=yes", "known are 0 and 1"),
        ("invalidate=2", "known are 0 and 1"),
        ("zonemode=zbd", "known are none"),
        ("steadystate=iops:10%", "end at another moment"),
        ("cmdprio_percentage=20", "priorities are not set here"),
        ("numa_cpu_nodes=0", "taskset or numactl"),
        ("exec_prerun=rm -rf /", "commands of a job file are not run"),
        ("continue_on_error=all", "a method that fails has no figure"),
        ("sync=1", "known are 0, none"),
        ("sync_file_range=write:8", "no such durability"),
        ("fill_device=1", "see --cache"),
        ("thinktime_iotime=1s", "thinktime_blocks"),
        ("kb_base=1000", "known are 1024"),
        ("iodepth=0", "from 1 on"),
        ("filename=${NO_SUCH_NAME}/f", "no NO_SUCH_NAME in the environment"),
        ("directory=dd:ee", "names 2 directories"),
        ("filename=-", "is a stream"),
        ("filename= f", "a blank around"),
        ("nonsense=7", "is not understood here"),
    ] {
        let error = refusal(&format!("[global]\nbs=4k\n[job]\n{line}\n"));

        assert!(error.starts_with("line 4 [job]: ") && error.contains(why), "{line}: {error}");
        assert!(error.contains(line.split('=').next().unwrap()), "{line}: {error}");
    }
}

#[test]
fn what_is_done_in_another_way_is_told_once() {
    let file = file_of("[global]\nwrite_bw_log=x\n[a]\nwrite_lat_log=y\nrefill_buffers\n[b]\nrefill_buffers\n");

    assert_eq!(file.told.len(), 3, "{:?}", file.told);
    assert!(file.told[0].starts_with("write_bw_log: no log is written"), "{:?}", file.told);
    assert!(file_of("[a]\ngroup_reporting\nthread=1\nname=x\ndescription=y\n").told.is_empty());
}

#[test]
fn a_range_without_room_and_writes_of_broken_words_are_refused() {
    let refused = |lines: &str| {
        let file = file_of(&format!("[job]\n{lines}\n"));
        file.stages[0][0].job(0, vec![0], 65536, 1).unwrap_err()
    };

    assert!(refused("bs=128k").contains("accesses of up to 131072 bytes in a range of 65536"));
    assert!(refused("offset=64k").contains("begins at 65536 of files of 65536"));
    assert!(refused("rw=write\nbs=1001").contains("not made of whole words"));
}

#[test]
fn jobs_at_once_need_one_ramp_and_nothing_may_follow_the_end_of_all() {
    assert!(refusal("[a]\nramp_time=1\n[b]\n").contains("ramp_time: jobs that run at once need the same"));
    assert!(refusal("[a]\nexitall\nexit_what=all\n[b]\nstonewall\n").contains("would never run"));
    assert_eq!(names(&file_of("[a]\nramp_time=1\n[b]\nstonewall\n")).len(), 2);
}

#[test]
fn a_file_takes_in_another_and_errors_there_name_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.fio");
    fs::write(&path, "[global]\ninclude common.inc\n[job]\nrw=write\n").unwrap();
    fs::write(dir.path().join("common.inc"), "bs=64k\n").unwrap();

    let file = read(&path, &Chosen::default()).unwrap();

    assert_eq!(file.stages[0][0].job(0, vec![0], 1 << 20, 1).unwrap().blocks[1][0].bytes, 65536);
    fs::write(dir.path().join("common.inc"), "\nbs=x\n").unwrap();
    let error = read(&path, &Chosen::default()).unwrap_err().to_string();
    assert!(error.contains("job.fio: ") && error.contains("common.inc line 2 [global]: bs=x"), "{error}");
    fs::write(dir.path().join("common.inc"), "include common.inc\n").unwrap();
    let error = read(&path, &Chosen::default()).unwrap_err().to_string();
    assert!(error.contains("more than 8 deep"), "{error}");
}

#[test]
fn variables_stand_for_the_machine_and_the_environment() {
    let job = job_of("bs=$pagesize\nsize=16*$pagesize");

    let page = rustix::param::page_size() as u64;
    assert_eq!((job.blocks[0][0].bytes, job.range_bytes), (page, 16 * page));
    let home = std::env::var("HOME").unwrap();
    assert_eq!(file_of("[j]\nfilename=${HOME}/f\n").stages[0][0].files(0), [PathBuf::from(format!("{home}/f"))]);
}

#[test]
fn no_option_stands_there_twice() {
    let mut names: Vec<&str> = options::ALL.iter().flat_map(|option| option.names).copied().collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();

    assert_eq!(names.len(), all);
}

/// What fio opens and what we would open, in a directory with `dd` and `ee`; none where it refuses.
fn opened_by_fio(text: &str) -> Option<Vec<String>> {
    let world = tempfile::tempdir().unwrap();
    for name in ["dd/sub", "ee"] {
        fs::create_dir_all(world.path().join(name)).unwrap();
    }
    fs::write(world.path().join("job.fio"), format!("{text}rw=write\nsize=48k\nbs=4k\n")).unwrap();
    let said = Command::new("fio").arg("job.fio").current_dir(&world).output().ok()?;
    let found = Command::new("find").args([".", "-type", "f"]).current_dir(&world).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let mut files: Vec<String> =
        found.lines().filter(|file| *file != "./job.fio").map(|file| file[2..].to_owned()).collect();
    files.sort();
    said.status.success().then_some(files)
}

fn opened_by_us(text: &str) -> Vec<String> {
    let shortest =
        |path: PathBuf| path.display().to_string().trim_start_matches("./").replace("//", "/").replace("//", "/");
    let file = file_of(text);
    let draft = &file.stages[0][0];
    let mut files: Vec<String> = (0..draft.copies).flat_map(|copy| draft.files(copy)).map(shortest).collect();
    files.sort();
    files.dedup();
    files
}

#[test]
fn fio_opens_the_same_files() {
    if Command::new("fio").arg("--version").output().is_err() {
        return eprintln!("SKIPPED fio_opens_the_same_files: fio is not installed");
    }
    for (text, files) in [
        ("[j]\ndirectory=dd\nfilename=f\n", &["dd/f"][..]),
        ("[j]\nfilename=f\ndirectory=dd\n", &["dd/f"]),
        ("[j]\ndirectory=dd/\nfilename=/x/f\n", &["dd/x/f"]),
        ("[j]\ndirectory=dd\nfilename=f:sub/g\n", &["dd/f", "dd/sub/g"]),
        ("[global]\ndirectory=dd\n[j]\nfilename=f\n", &["dd/f"]),
        ("[global]\nfilename=f\n[j]\ndirectory=dd\n", &["f"]),
        ("[global]\nfilename=f\ndirectory=ee\n[j]\ndirectory=dd\n", &["ee/f"]),
        ("[global]\ndirectory=ee\n[j]\ndirectory=dd\nfilename=f\n", &["dd/f"]),
        ("[j]\ndirectory=ee\ndirectory=dd\nfilename=f\n", &["dd/f"]),
        ("[j]\ndirectory=dd:\nfilename=f::g:\n", &["dd/f", "dd/g"]),
        ("[j]\ndirectory=dd\nfilename=a\\:b\n", &["dd/a:b"]),
        ("[j]\nfilename=f ; a comment\n", &["f"]),
        ("[j]\nfilename=f#one\n", &["f"]),
        ("[j]\nfilename=-x\n", &["-x"]),
        ("[j]\ndirectory=dd\nnrfiles=2\nnumjobs=2\n", &["dd/j.0.0", "dd/j.0.1", "dd/j.1.0", "dd/j.1.1"]),
        ("[global]\nname=other\n[j]\n", &["j.0.0"]),
        ("[j]\nfilename_format=$jobname-$filenum\nnrfiles=2\n", &["j-0", "j-1"]),
    ] {
        assert_eq!(opened_by_us(text), files, "{text}");
        assert_eq!(opened_by_fio(text).unwrap_or_default(), files, "fio: {text}");
    }
}

#[test]
fn names_that_are_given_twice_are_refused() {
    for text in ["[j]\nfilename=f\nfilename=g\n", "[global]\nfilename=f\n[j]\nfilename=g\n"] {
        assert!(refusal(text).contains("given twice"), "{text}");
    }
    assert!(refusal("filename=f\n[j]\n").contains("line 1: there are options before the first section"));
    assert!(refusal("[global]\n").contains("it has no job"));
    assert!(refusal("[j\n").contains("line 1: \"[j\" is no section"));
}

proptest! {
    #[test]
    fn any_text_is_taken_without_panic(text in "(\\[[a-z]{0,3}\\]|include x|[a-z_]{1,9}|=|[0-9]{1,3}[kmg%]?|:|/|\\*|\\\\|\n|;|#|\\$|\\{|\\}| |,|-){0,60}") {
        let _ = read_text(&text, &Chosen::default());
    }

    #[test]
    fn any_value_of_a_known_option_is_taken_without_panic(which in 0..options::ALL.len(), value in "\\PC{0,30}|[0-9kmg/:,.%*+-]{0,20}") {
        let name = options::ALL[which].names[0];
        if let Ok(file) = read_text(&format!("[j]\nrw=randrw\n{name}={value}\n"), &Chosen::default()) {
            let draft = &file.stages[0][0];
            let _ = draft.job(0, (0..draft.files(0).len().min(64)).collect(), 1 << 20, 1);
        }
    }

    #[test]
    fn shares_of_a_split_always_make_a_hundred(first in 1u8..=99) {
        let job = job_of(&format!("bssplit=4k/{first}:8k/{}", 100 - first));

        prop_assert_eq!(job.blocks[0].iter().map(|block| u32::from(block.percent)).sum::<u32>(), 100);
    }

    #[test]
    fn a_sum_of_products_is_what_it_says(a in 1u64..1000, b in 1u64..1000, c in 1u64..1000) {
        let job = job_of(&format!("size={a}*{b}+{c}k"));

        prop_assert_eq!(job.range_bytes, (a * b + c * 1024).min(1 << 20));
    }
}
