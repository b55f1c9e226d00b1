//! Asks the kinds that a trial names for their traits.

use crate::peer::Manner;
use crate::traits::{Class, Traits};
use crate::trial::{Arm, Choice, Trial};
use crate::workload::{self, Space};
use crate::{peer, procedure};
use majorfault::access::DirectIo;
use majorfault::params::{Switch, Value};
use majorfault::{methods, prefetch};
use std::collections::BTreeMap;

/// What the kinds of `trial` say of a run of so many accesses with these settings in force; `None` where one of them is
/// unknown here (a record of another version).
pub fn traits(trial: &Trial, settings: &BTreeMap<String, String>, accesses: u64) -> Option<Traits> {
    let workload = workload::named(&trial.workload.name).ok()?;
    let (class, direct, depth) = arm(trial, settings)?;
    let distinct = || (workload.distinct)(&Space::of(trial), &trial.workload.given(), accesses);
    let is_known = class != Class::Procedure && trial.jobs.is_empty();
    let distinct_bytes = if is_known { distinct() } else { None };
    Some(Traits {
        class,
        direct,
        depth,
        ends: workload.ends,
        order: workload.order,
        distinct_bytes,
        swaps: swaps(trial),
    })
}

fn swaps(trial: &Trial) -> bool {
    matches!(&trial.arm, Arm::Procedure(choice) if procedure::named(&choice.name).is_ok_and(|procedure| procedure.swaps))
}

/// Class, whether it reads past the page cache, transfers in flight.
fn arm(trial: &Trial, settings: &BTreeMap<String, String>) -> Option<(Class, bool, Option<u32>)> {
    match &trial.arm {
        Arm::Method(choice) => method(choice, settings),
        Arm::Peer(choice) => {
            let peer = peer::named(&choice.name).ok()?;
            let Manner { direct, depth } = (peer.manner)(trial, choice).ok()?;
            Some((Class::Peer, direct, depth))
        }
        Arm::Procedure(choice) => procedure::named(&choice.name).ok().map(|_| (Class::Procedure, false, None)),
    }
}

fn method(choice: &Choice, settings: &BTreeMap<String, String>) -> Option<(Class, bool, Option<u32>)> {
    let method = methods::named(&choice.name).ok()?;
    // What was given, over the defaults, where the run failed before it could say what is in force.
    let given = choice.given();
    let declared = prefetch::params(method, &given).ok()?;
    let usual = |name: &str| declared.iter().find(|param| param.name == name).map(|param| param.default.clone());
    let in_force = |name: &str| settings.get(name).or_else(|| choice.given.get(name)).cloned().or_else(|| usual(name));
    let direct = match method.direct {
        DirectIo::Never => false,
        DirectIo::Always => true,
        DirectIo::Given => Switch::read(&in_force("direct")?).ok()?.is_on(),
    };
    let depth = method.depth.and_then(in_force).and_then(|depth| depth.parse().ok());
    Some((method.class.into(), direct, depth))
}
