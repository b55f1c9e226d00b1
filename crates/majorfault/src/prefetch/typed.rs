//! Policies as values, put around the typed options of a method.

use super::{Common, Policy, Predictor, Scene, around, underneath};
use crate::access::{self, MethodOptions, MmapOptions, Opened, PreadOptions};
use crate::error::Result;
use crate::files::Target;
use crate::params::{Given, Params};
use crate::pool::{PoolOptions, UffdOptions};
use std::path::Path;
use std::sync::Arc;

/// A policy as a value: a struct declared by [`params!`](crate::params!), which decides during visits.
pub trait PolicyOptions: Params {
    /// The policy that these options belong to.
    const POLICY: &'static Policy;

    /// A predictor for the first thread; other threads get siblings of it.
    ///
    /// Errors: Invalid (a value that cannot be used), Io.
    fn predictor(&self, scene: &Scene) -> Result<Box<dyn Predictor>>;
}

/// The options of a method, or of a mapped file, with a policy around them.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct WithPolicy<O, P> {
    pub(crate) options: O,
    pub(crate) plan: P,
    pub(crate) common: Common,
    /// Whether the options stay as they are.
    pub(crate) keeps: bool,
}

impl<O, P: PolicyOptions> WithPolicy<O, P> {
    pub(crate) fn new(options: O, plan: P) -> WithPolicy<O, P> {
        WithPolicy { options, plan, common: Common::default(), keeps: false }
    }

    /// Options that every policy has: bytes ahead, and which thread gives the hints.
    pub fn common(mut self, common: Common) -> WithPolicy<O, P> {
        self.common = common;
        self
    }

    /// Leaves the options unchanged. Without this, those at their defaults are set to what the policy is made for
    /// ([`Policy::underneath`]).
    pub fn keep_options(mut self) -> WithPolicy<O, P> {
        self.keeps = true;
        self
    }
}

impl<O: MethodOptions, P: PolicyOptions> WithPolicy<O, P> {
    /// Opens a file for reading, and reads ahead of its visits.
    ///
    /// Errors: as the `open` of the method's options; Invalid (a value of the policy that cannot be used).
    pub fn open(self, path: impl AsRef<Path>) -> Result<Opened> {
        self.open_target(access::for_reading(path.as_ref())?)
    }

    /// Opens several files, a part of one, or files for writing, and reads ahead of its visits.
    ///
    /// Errors: as [`open`](WithPolicy::open).
    pub fn open_target(self, target: Arc<Target>) -> Result<Opened> {
        let WithPolicy { options, plan, common, keeps } = self;
        let options = if keeps { options } else { fitted::<O>(&options.given(), P::POLICY)? };
        let start = |scene: &Scene| Ok((plan.predictor(scene)?, plan.given()));
        around(P::POLICY, O::METHOD, options.open_target(target)?, common, Some(start))
    }
}

/// The options, with those at their defaults set to what the policy is made for.
fn fitted<O: MethodOptions>(settings: &Given, policy: &Policy) -> Result<O> {
    let is_default = |name: &str| {
        O::declared().iter().any(|param| settings.get(name) == Some(param.default.as_str()) && param.name == name)
    };
    let chosen = settings.0.iter().filter(|(name, _)| !is_default(name));
    let chosen = Given(chosen.map(|(name, value)| (name.clone(), value.clone())).collect());
    O::from_given(&underneath(policy, O::METHOD, chosen)?)
}

/// Gives the options of methods that find what was read ahead the method `policy`.
macro_rules! takes_policies {
    ($($options:ident),*) => { $(
        impl $options {
            /// Adds a policy that reads ahead of the visits.
            pub fn policy<P: PolicyOptions>(self, policy: P) -> WithPolicy<$options, P> {
                WithPolicy::new(self, policy)
            }
        }
    )* };
}

takes_policies!(MmapOptions, PreadOptions, PoolOptions, UffdOptions);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Mmap, MmapHint, Pread};
    use crate::error::Error;
    use crate::methods;
    use crate::pool::Pool;
    use crate::prefetch::{self, By, Learned, Strided, Thread, Trace, Whole, Window};
    use crate::test_files::{PAGE, TestFile};
    use crate::units::Bytes;

    /// The settings in force where the same options are given by name.
    fn named(file: &TestFile, method: &str, given: &str) -> Given {
        let method = methods::named(method).unwrap();
        prefetch::open(method, file.target(false), &given.parse().unwrap()).unwrap().settings
    }

    #[test]
    fn what_is_opened_in_code_is_what_its_names_open() {
        let file = TestFile::on_disk(64 * PAGE);
        let trace = file.path().with_extension("trace").display().to_string();
        let pread = |opened: Result<Opened>| opened.unwrap().settings;

        assert_eq!(
            pread(Mmap::options().policy(Learned::default().rows(64)).open(file.path())),
            named(&file, "mmap", "policy=learned,rows=64")
        );
        assert_eq!(
            pread(Pread::options().policy(Window::default()).open(file.path())),
            named(&file, "pread", "policy=window")
        );
        assert_eq!(pread(Pread::options().policy(Whole::default()).open(file.path())).get("by"), Some("helper"));
        assert_eq!(
            pread(Mmap::options().policy(Strided::default().stride(Bytes::kib(64))).open(file.path())),
            named(&file, "mmap", "policy=strided,stride=64k")
        );
        assert_eq!(
            pread(Pool::options().memory(Bytes::mib(1)).policy(Thread::default()).open(file.path())),
            named(&file, "pool", "memory=1m,policy=thread")
        );
        assert_eq!(
            pread(Pread::options().policy(Trace::default().file(trace.as_str())).open(file.path())),
            named(&file, "pread", &format!("policy=trace,file={trace}"))
        );
        let _ = std::fs::remove_file(trace);
    }

    #[test]
    fn the_policys_wishes_beneath_yield_to_what_was_set_or_shall_be_kept() {
        let file = TestFile::on_disk(4 * PAGE);
        let advice = |opened: Result<Opened>| opened.unwrap().settings.get("advice").unwrap().to_owned();
        let options = Mmap::options;

        assert_eq!(advice(options().policy(Learned::default()).open(file.path())), "random");
        let set = options().advice(MmapHint::Sequential).policy(Learned::default());
        assert_eq!(advice(set.open(file.path())), "sequential");
        assert_eq!(advice(options().policy(Learned::default()).keep_options().open(file.path())), "normal");
    }

    #[test]
    fn the_options_of_every_policy_are_among_the_settings() {
        let file = TestFile::on_disk(4 * PAGE);
        let common = Common::default().budget(Bytes::kib(64)).by(By::Helper).release(true);

        let settings = Mmap::options().policy(Learned::default()).common(common).open(file.path()).unwrap().settings;

        let told = ["budget", "by", "release"].map(|name| settings.get(name).unwrap());
        assert_eq!(told, ["64k", "helper", "on"]);
    }

    #[test]
    fn a_policy_reads_ahead_and_the_bytes_are_those_of_the_file() {
        let file = TestFile::on_disk(64 * PAGE);
        let mut opened = Mmap::options().policy(Window::default()).open(file.path()).unwrap();
        let extents = opened.target.pieces(PAGE);
        let mut seen = 0;

        opened
            .visit(&extents, |index, bytes| {
                assert!(bytes == &file.content()[index * PAGE..][..PAGE]);
                seen += 1;
            })
            .unwrap();

        assert_eq!((seen, opened.len()), (64, 64 * PAGE as u64));
    }

    #[test]
    fn a_value_that_cannot_be_used_is_reported_in_code_too() {
        let file = TestFile::on_disk(4 * PAGE);
        let strided = Strided::default().stride(Bytes::kib(4)).length(Bytes::kib(8));

        let refused = Pread::options().policy(strided).open(file.path());

        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
}
