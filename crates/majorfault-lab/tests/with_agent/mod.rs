//! Programs beyond memory that are helped from within, by the agent: what it does, and that it harms nobody.

use super::*;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Runs a script with the agent.
fn script(world: &World, script: &str, variables: &[(&str, &str)]) -> Said {
    world.majorfault_with(&["run", "--memory", "64m", "-q", "--agent", "--", "sh", "-c", script], variables)
}

/// The directories of agents that are there.
fn homes() -> Vec<String> {
    let found = ["/dev/shm", "/tmp", "/var/tmp"].iter().filter_map(|base| fs::read_dir(base).ok()).flatten().flatten();
    found
        .filter(|entry| entry.path().join("libmajorfault_agent.so").exists())
        .map(|entry| entry.path().display().to_string())
        .collect()
}

/// A copy of a program in the world, for everybody.
fn copy(world: &World, from: &Path, name: &str) -> PathBuf {
    let to = world.path(name);
    fs::copy(from, &to).unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    to
}

#[test]
fn passes_beyond_memory_are_read_in_ahead_by_the_agent() {
    let Some((alone, _swap)) = with_swap() else { return };

    let plain = pattern(&alone.world, "seqread", 64, &["--no-advice"]);
    let helped = pattern(&alone.world, "seqread", 64, &["--agent"]);

    assert_eq!(sum(&helped), sum(&plain));
    let (plain, helped) = (outcome(&plain), outcome(&helped));
    let fetched = number(&helped, "/advised/fetched_bytes");
    assert!(fetched > 16 * MIB, "{helped:#}");
    assert!(number(&helped, "/advised/used_bytes") * 10 > fetched * 8, "{helped:#}");
    assert!(number(&helped, "/major_faults") * 2 < number(&plain, "/major_faults"), "{helped:#}\n{plain:#}");
    assert_eq!(
        [number(&helped, "/agents/met"), number(&helped, "/agents/without"), number(&helped, "/agents/lost")],
        [1, 0, 0]
    );
    assert_eq!(homes(), Vec::<String>::new());
}

#[test]
fn programs_that_a_program_starts_have_agents_of_their_own() {
    let Some((alone, _swap)) = with_swap() else { return };
    let own = std::env::current_exe().unwrap();
    let script = format!("sh -c '{} program --exact --nocapture; true'; true", own.display());

    let usual = ["run", "--memory", "32m", "--json", "--agent", "--", "sh", "-c", &script];
    let said = alone.world.majorfault_with(&usual, &[("MAJORFAULT_PATTERN", &format!("seqread {}", 64 * MIB))]);

    sum(&said);
    let said = outcome(&said);
    assert!(number(&said, "/advised/fetched_bytes") > 16 * MIB && number(&said, "/agents/met") > 0, "{said:#}");
}

#[test]
fn a_child_that_is_only_forked_has_no_agent_and_that_is_told() {
    let Some((alone, _swap)) = with_swap() else { return };

    let said = pattern(&alone.world, "forked", 64, &["--agent"]);

    sum(&said);
    let json = outcome(&said);
    assert!(number(&json, "/agents/without") > 0, "{json:#}");
    assert_eq!(number(&json, "/advised/fetched_bytes"), 0, "{json:#}");
}

#[test]
fn an_agent_that_is_gone_before_its_program_is_noticed_and_told() {
    let Some((alone, _swap)) = with_swap() else { return };

    let said = pattern(&alone.world, "leaving", 64, &["--agent"]);

    sum(&said);
    let json = outcome(&said);
    assert!(number(&json, "/advised/fetched_bytes") > 16 * MIB, "{json:#}");
    assert_eq!([number(&json, "/agents/met"), number(&json, "/agents/lost")], [1, 1], "{json:#}");
}

#[test]
fn the_agent_gives_way_to_calls_that_want_one_thread() {
    let Some(alone) = alone() else { return };
    let command = "unshare --user true";
    let plain = alone.world.shell(command);

    let helped = script(&alone.world, command, &[]);

    assert_eq!(helped.code == Some(0), plain, "{}", helped.errors);
    // A call that is wrong in itself has the same error with and without.
    let wrong = script(&alone.world, "nsenter --user=/proc/self/status true", &[]);
    assert!(wrong.errors.contains("Invalid argument"), "{}", wrong.errors);
}

#[test]
fn a_program_sees_nothing_of_the_agent_but_its_thread_its_mapping_and_a_variable() {
    let Some(alone) = alone() else { return };
    let list = "ls /proc/self/fd; umask; env | grep -v ^LD_PRELOAD= | sort; ulimit -a; trap; \
                grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; (exit 3); echo $?; echo err >&2";
    let usual = ["run", "--memory", "64m", "-q"];
    let run = |more: &[&str]| alone.world.majorfault(&[&usual, more, &["--", "sh", "-c", list]].concat());

    let (with, without) = (run(&["--agent"]), run(&["--no-advice"]));

    // What we say of the machine is not the program's.
    let own = |said: &Said| said.errors.lines().filter(|line| !line.starts_with("majorfault: ")).collect::<String>();
    assert_eq!((&with.output, own(&with), with.code), (&without.output, own(&without), without.code));
    // By the shell itself: while it starts another program it blocks signals for moments.
    let thread = "grep -c libmajorfault_agent /proc/self/maps; ls /proc/$$/task | wc -l; for task in /proc/$$/task/*/status; do \
                  while read -r line; do case $line in SigBlk*) echo \"$line\";; esac; done < $task; done";
    let said = script(&alone.world, thread, &[]);
    // All signals are blocked but those that cannot be (SIGKILL, SIGSTOP).
    let expected = "4\n2\nSigBlk:\t0000000000000000\nSigBlk:\tfffffffffffbfeff\n";
    assert_eq!(said.output, expected, "{}", said.errors);
}

#[test]
fn a_forked_child_has_the_library_and_not_the_ring() {
    let Some(alone) = alone() else { return };
    let maps = "while read line; do case $line in */libmajorfault_agent.so) lib=1;; */majorfault-run-*) echo $line;; esac; \
                done < /proc/self/maps; echo $lib";

    let said = script(&alone.world, &format!("({maps}); echo; {maps}"), &[]);

    let (child, parent) = said.output.split_once("\n\n").unwrap_or_else(|| panic!("{} {}", said.output, said.errors));
    assert_eq!((child, parent.lines().count(), parent.contains("rw-s")), ("1", 2, true), "{parent}");
}

#[test]
fn limits_that_leave_no_room_for_an_agent_harm_no_program() {
    let Some(alone) = alone() else { return };

    for limit in ["ulimit -f 0", "ulimit -u 0", "umask 777"] {
        let said = script(&alone.world, &format!("{limit}; exec sh -c 'echo fine; kill -0 $$'"), &[]);

        assert_eq!((said.output.as_str(), said.code), ("fine\n", Some(0)), "{limit}: {}", said.errors);
    }
}

#[test]
fn what_is_preloaded_already_is_loaded_too() {
    let Some(alone) = alone() else { return };
    let first = "/lib/x86_64-linux-gnu/libm.so.6";
    let found = if Path::new(first).exists() { Ok(()) } else { Err("it is elsewhere".to_owned()) };
    if !facility("a library to preload", found) {
        return;
    }

    let said =
        script(&alone.world, "echo $LD_PRELOAD; grep -c 'r-xp.*libm.so.6' /proc/self/maps", &[("LD_PRELOAD", first)]);

    let (variable, maps) = said.output.trim().split_once('\n').unwrap_or_else(|| panic!("{}", said.errors));
    assert!(variable.starts_with(&format!("{first}:/")) && variable.ends_with("/libmajorfault_agent.so"), "{variable}");
    assert_eq!((maps, said.errors.contains("preload")), ("1", false));
}

#[test]
fn a_static_program_does_not_begin_with_the_agent_and_does_without() {
    let Some(alone) = alone() else { return };
    let program = "/sbin/ldconfig";
    let is_static = Command::new("readelf").args(["-l", program]).output();
    let is_static =
        is_static.is_ok_and(|said| said.status.success() && !String::from_utf8_lossy(&said.stdout).contains("INTERP"));
    if !facility("a static program", if is_static { Ok(()) } else { Err(format!("{program} is not one")) }) {
        return;
    }
    let run = |more: &[&str]| {
        alone.world.majorfault(&[&["run", "--memory", "64m", "-q"], more, &["--", program, "-V"]].concat())
    };

    run(&["--agent"]).fails(125, "is a static program, which loads no library");

    assert_eq!(run(&[]).code, Some(0));
    assert_eq!(homes(), Vec::<String>::new());
}

#[test]
fn a_program_that_changes_its_group_does_not_begin_with_the_agent() {
    let Some(alone) = alone() else { return };
    let program = copy(&alone.world, Path::new("/bin/true"), "changing");
    let is_made = std::os::unix::fs::chown(&program, None, Some(65534))
        .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o2755)));
    if !facility("a program of another group", is_made.map_err(|error| error.to_string())) {
        return;
    }

    let said = alone.world.majorfault(&["run", "--memory", "64m", "-q", "--agent", "--", "./changing"]);

    said.fails(125, "changes its user or rights");
}

#[test]
fn a_program_lives_on_with_a_sleeping_agent_when_we_are_killed() {
    let Some((alone, _swap)) = with_swap() else { return };
    let world = &alone.world;
    let (own, go) = (std::env::current_exe().unwrap(), world.path("go"));
    // Within the limit: version 1 kills beyond it where nobody raises it any more.
    let script = format!(
        "exec > said 2>&1; echo $$ > pid.new; mv pid.new pid; until test -e {}; do sleep 0.05; done; \
         MAJORFAULT_PATTERN='seqread {}' {} program --exact --nocapture; echo $? > ended.new; mv ended.new ended",
        go.display(),
        8 * MIB,
        own.display()
    );
    let running = world.start_plain(&["run", "--memory", "32m", "-q", "--agent", "--", "sh", "-c", &script]);
    world.wait_for("the program", || world.path("pid").exists());
    let pid: u32 = world.text("pid").trim().parse().unwrap();

    running.signal("KILL");
    running.finish();

    // Another start leaves what it needs.
    world.majorfault(&["run", "--memory", "64m", "-q", "--agent", "--", "true"]);
    assert_eq!(homes().len(), 1);
    fs::write(go, "").unwrap();
    world
        .wait_for("the program's end", || world.path("ended").exists() && !Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!((world.text("ended").trim(), world.text("said").contains("cannot be preloaded")), ("0", false));
    world.majorfault(&["run", "--memory", "64m", "-q", "--", "true"]);
    assert_eq!(homes(), Vec::<String>::new());
}

#[test]
fn many_processes_that_come_and_go_leave_no_rings_behind() {
    let Some(alone) = alone() else { return };
    let storm = "i=0; while [ $i -lt 300 ]; do /bin/true & i=$((i+1)); done; wait; \
                 dir=${LD_PRELOAD%/*}; i=0; while [ $(ls $dir | wc -l) -ge 10 ] && [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done; \
                 [ $i -lt 400 ] && echo fine";

    let said = alone.world.majorfault(&["run", "--memory", "256m", "-q", "--agent", "--", "sh", "-c", storm]);

    assert_eq!((said.output.as_str(), said.code), ("fine\n", Some(0)), "{}", said.errors);
}

/// A group for the user nobody, removed at the end.
struct Delegated(PathBuf);

impl Delegated {
    fn new() -> Option<Delegated> {
        let own = group_of(std::process::id());
        let dir = own.join(format!("majorfault-test-{}", std::process::id()));
        let made = fs::create_dir(&dir).and_then(|()| {
            let all = fs::read_dir(&dir)?.flatten().map(|entry| entry.path()).chain([dir.clone()]);
            all.into_iter().try_for_each(|path| std::os::unix::fs::chown(path, Some(65534), Some(65534)))
        });
        let delegated = Delegated(dir);
        // Version 2 asks for more: no processes beside groups.
        let found = made.map_err(|error| error.to_string());
        (facility("a group to delegate", found) && is_version_1()).then_some(delegated)
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_user_without_special_rights_is_helped_by_the_agent() {
    let Some((alone, _swap)) = with_swap() else { return };
    let Some(group) = Delegated::new() else { return };
    let world = &alone.world;
    copy(world, Path::new(env!("CARGO_BIN_EXE_majorfault")), "majorfault");
    copy(world, &std::env::current_exe().unwrap(), "pattern");
    let run = |name: &str, more: &str| {
        let command = format!(
            "echo $$ > {}/cgroup.procs; MAJORFAULT_PATTERN='seqread {}' exec setpriv --reuid=65534 --regid=65534 --clear-groups \
             ./majorfault run --memory 32m --json {more} -- ./pattern program --exact --nocapture > {name}.out 2> {name}.err",
            group.0.display(),
            64 * MIB
        );
        assert!(world.shell(&command), "{}", world.text_or_empty(&format!("{name}.err")));
        Said { code: Some(0), output: world.text(&format!("{name}.out")), errors: world.text(&format!("{name}.err")) }
    };

    let (helped, plain) = (run("helped", ""), run("plain", "--no-advice"));

    assert_eq!(sum(&helped), sum(&plain));
    let (helped, plain) = (outcome(&helped), outcome(&plain));
    let unhelped = helped["unhelped"].as_str().map_or(Ok(()), |why| Err(why.to_owned()));
    if !facility("page faults for a plain user", unhelped.filter_perf()) {
        return;
    }
    assert_eq!((&helped["unhelped"], number(&helped, "/agents/met")), (&Value::Null, 1), "{helped:#}");
    assert!(number(&helped, "/advised/fetched_bytes") > 16 * MIB, "{helped:#}");
    assert!(number(&helped, "/major_faults") * 2 < number(&plain, "/major_faults"), "{helped:#}\n{plain:#}");
}

#[test]
fn a_program_that_becomes_root_is_limited_only_for_a_user_without_special_rights() {
    let Some(alone) = alone() else { return };
    let Some(group) = Delegated::new() else { return };
    let world = &alone.world;
    copy(world, Path::new(env!("CARGO_BIN_EXE_majorfault")), "majorfault");
    let program = copy(world, Path::new("/bin/true"), "changing");
    fs::set_permissions(program, fs::Permissions::from_mode(0o4755)).unwrap();
    let run = |more: &str| {
        let command = format!(
            "(sh -c 'echo $$ > {}/cgroup.procs; exec setpriv --reuid=65534 --regid=65534 --clear-groups \
             ./majorfault run --memory 32m {more} -- ./changing' 2> said; echo $? > code)",
            group.0.display()
        );
        assert!(world.shell(&command));
        (world.text("code").trim().to_owned(), world.text("said"))
    };

    let (code, said) = run("");
    assert_eq!(code, "0", "{said}");
    assert!(said.contains("limited only, not helped") && said.contains("changes its user or rights"), "{said}");

    let (code, said) = run("--agent");
    assert_eq!(code, "125", "{said}");
    assert!(said.contains("changes its user or rights"), "{said}");
}

/// Only the missing right to sample is a reason to skip.
trait FilterPerf {
    fn filter_perf(self) -> Self;
}

impl FilterPerf for Result<(), String> {
    fn filter_perf(self) -> Self {
        self.or_else(|why| if why.contains("perf_event_open") { Err(why) } else { Ok(()) })
    }
}
