//! The process that a subcommand works on: one that is running, or one that we start and whose exit code we return.

use crate::command::Exit;
use crate::outputs::Outputs;
use crate::watch::members::{GroupName, Members};
use crate::watch::target::{Prepared, WatchTarget};
use majorfault::observe::sampler::Stacks;
use majorfault::{Error, Result};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The processes to watch, as the command line names them.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("whom").required(true).multiple(true).args(["pid", "program", "cgroup", "unit", "container"])))]
pub struct Whom {
    /// Number of the process; processes that it has started and will start are included, unless --no-tree says otherwise
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    #[arg(conflicts_with_all = ["program", "cgroup", "unit", "container"])]
    pid: Option<u32>,
    /// A program to start, with its arguments; it is watched from its first instruction on
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["cgroup", "unit", "container"])]
    program: Vec<OsString>,
    /// Only the process itself, not those that it starts
    #[arg(long, conflicts_with_all = ["cgroup", "unit", "container"])]
    no_tree: bool,
    /// The processes of a cgroup and of those below: its directory, or its path as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH", conflicts_with_all = ["unit", "container"])]
    cgroup: Option<PathBuf>,
    /// The processes of a systemd unit (NAME means NAME.service)
    #[arg(long, value_name = "NAME", conflicts_with = "container")]
    unit: Option<String>,
    /// The processes of a container: the beginning of its number, or its name where its cgroup has it (LXC, systemd-nspawn)
    #[arg(long, value_name = "ID")]
    container: Option<String>,
}

/// The handle of a program that was started here.
#[derive(Default)]
pub struct Launched {
    child: Option<Child>,
}

impl Whom {
    /// The process's own program and files must not be overwritten by an output.
    pub fn is_input_of(&self, outputs: &mut Outputs) {
        self.pid.into_iter().for_each(|pid| outputs.watches(pid));
        outputs.starts(&self.program);
    }

    /// The name of the program that is to be started.
    pub fn program_name(&self) -> Option<String> {
        self.program.first().map(|name| name.to_string_lossy().into_owned())
    }

    /// Starts the program, if one is named. It keeps our standard input and output, and is watched from its first instruction on.
    ///
    /// Errors: Io (no such program), Invalid (no such group).
    pub fn launch(self) -> Result<(Launched, WatchTarget)> {
        self.launch_into(Stdio::inherit(), Stacks::LeftOut)
    }

    /// The same with the program's standard output going to `output`, and with the stacks of calls where they are asked for.
    ///
    /// Errors: as [`launch`](Self::launch).
    pub fn launch_into(self, output: Stdio, stacks: Stacks) -> Result<(Launched, WatchTarget)> {
        if let Some(group) = self.group() {
            return Ok((Launched { child: None }, WatchTarget::group(Members::of(&group)?).with_stacks(stacks)));
        }
        let tree = !self.no_tree;
        let Some((name, arguments)) = self.program.split_first() else {
            let pid = self.pid.unwrap_or_default();
            return Ok((Launched { child: None }, WatchTarget::running(pid).with_tree(tree).with_stacks(stacks)));
        };
        let (child, target) = start(Command::new(name).args(arguments).stdout(output), stacks)?;
        Ok((Launched { child: Some(child) }, target.with_tree(tree)))
    }

    /// The group that was named.
    pub fn group(&self) -> Option<GroupName> {
        let cgroup = self.cgroup.clone().map(GroupName::Cgroup);
        let unit = self.unit.clone().map(GroupName::Unit);
        cgroup.or(unit).or(self.container.clone().map(GroupName::Container))
    }
}

/// Starts a program that is to be watched from its first instruction on.
///
/// Errors: Io (no such program).
fn start(command: &mut Command, stacks: Stacks) -> Result<(Child, WatchTarget)> {
    let prepared = Prepared::here(stacks);
    let child = command.spawn().map_err(|error| {
        Error::io("start the program", command.get_program(), error).with_remedy("check its name and path")
    })?;
    let target = prepared.started(child.id());
    Ok((child, target))
}

impl Launched {
    /// Whether it was started here, so that standard output belongs to it.
    pub fn is_ours(&self) -> bool {
        self.child.is_some()
    }

    /// The exit code of a program that was started here, after waiting for its end; for a signal it is 128 plus its number, as in
    /// shells. None for other processes.
    ///
    /// Errors: Io.
    pub fn wait(&mut self) -> Result<Exit> {
        let Some(child) = &mut self.child else { return Ok(Exit::Ok) };
        let status = child.wait().map_err(|error| Error::io("wait for", "the program", error))?;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        Ok(Exit::Program(code as u8))
    }

    /// Says that a program that was started here runs on, where it does.
    pub fn tell_running(&mut self, name: &str, without: &str) {
        if let Some(child) = &mut self.child
            && !matches!(child.try_wait(), Ok(Some(_)))
        {
            eprintln!("majorfault: {name} keeps running{without} as process {}", child.id());
        }
    }

    /// The exit code when watching is over: the program's, if it was started here and has ended.
    ///
    /// Errors: as [`wait`](Self::wait).
    pub fn leave(&mut self, ended: bool, without: &str) -> Result<Exit> {
        if !ended && self.is_ours() {
            self.tell_running("the program", without);
            return Ok(Exit::Ok);
        }
        self.wait()
    }
}
