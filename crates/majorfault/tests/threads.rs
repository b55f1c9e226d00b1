//! What may be sent to another thread, and what may be shared by several. Held by the compiler: the tests need not run.

use majorfault::access::{DirectOptions, Method, MmapOptions, NullOptions, Opened, PreadOptions, Reader, UringOptions};
use majorfault::map::{LoadReport, MapFileOptions, MappedFile};
use majorfault::observe::{Observer, Snapshot};
use majorfault::pool::{
    Handle, Pool, PoolLayout, PoolOptions, PooledFile, PooledFileOptions, PooledMap, Shared, UffdOptions,
};
use majorfault::prefetch::{Follower, Learned, Policy, Prefetching, Strided, Thread, Trace, Whole, Window, WithPolicy};
use majorfault::trace::Writer;
use majorfault::{Bytes, Error, ErrorKind, Extent, Given, Layout, Missing, Nanos, Need, Target};

fn can_be_sent<T: Send>() {}
fn can_be_shared<T: Send + Sync>() {}

#[test]
fn values_errors_and_options_are_for_all_threads() {
    can_be_shared::<(Bytes, Nanos, Extent, Given, Layout, Missing, Need, Error, ErrorKind)>();
    can_be_shared::<(DirectOptions, MmapOptions, NullOptions, PreadOptions, UringOptions, MapFileOptions)>();
    can_be_shared::<(PoolLayout, PoolOptions, PooledFileOptions, UffdOptions)>();
    can_be_shared::<(Learned, Strided, Thread, Trace, Whole, Window, WithPolicy<MmapOptions, Learned>)>();
    can_be_shared::<(Method, Policy, Snapshot, LoadReport)>();
}

#[test]
fn what_threads_share_can_be_shared() {
    can_be_shared::<(Target, Pool, PooledFile, PooledMap, MappedFile)>();
    can_be_shared::<Shared<'_>>();
}

#[test]
fn what_each_thread_has_for_itself_can_be_sent_to_it() {
    can_be_sent::<(Opened, Box<dyn Reader>, Handle, Prefetching, Follower, Observer, Writer)>();
}
