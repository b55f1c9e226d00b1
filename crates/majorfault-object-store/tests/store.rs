//! What a store does beside reading ranges; how it behaves where `io_uring` is refused, where nobody waits, and without a runtime.
#![allow(clippy::single_range_in_vec_init, reason = "one range is asked for, not its numbers")]

mod folder;

use folder::{Folder, content, has_io_uring};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use majorfault_object_store::FileStore;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Fifty short ranges that lie apart.
fn rows() -> Vec<Range<u64>> {
    (0..50u64).map(|row| row * 9_000..row * 9_000 + 700).collect()
}

/// Waits, at most a minute, until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn all_else_is_left_to_the_local_file_system() {
    let folder = Folder::new(&[]);
    let store = folder.open(FileStore::options());
    let path = |name: &str| Path::from(name);

    folder.runtime.block_on(async {
        store.put(&path("a/one"), vec![1; 1000].into()).await.unwrap();
        let create = PutOptions::from(PutMode::Create);
        let taken = store.put_opts(&path("a/one"), vec![2; 10].into(), create).await.unwrap_err();
        assert!(matches!(taken, Error::AlreadyExists { .. }), "{taken:?}");

        let mut upload = store.put_multipart(&path("a/two")).await.unwrap();
        upload.put_part(vec![3; 10].into()).await.unwrap();
        upload.put_part(vec![4; 10].into()).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!(store.get(&path("a/two")).await.unwrap().bytes().await.unwrap()[..], [[3; 10], [4; 10]].concat());

        store.copy(&path("a/two"), &path("b/three")).await.unwrap();
        store.rename(&path("a/two"), &path("b/two")).await.unwrap();
        let taken = store.rename_if_not_exists(&path("b/two"), &path("b/three")).await.unwrap_err();
        assert!(matches!(taken, Error::AlreadyExists { .. }), "{taken:?}");

        let mut names: Vec<String> =
            store.list(None).map_ok(|meta| meta.location.to_string()).try_collect().await.unwrap();
        names.sort();
        assert_eq!(names, ["a/one", "b/three", "b/two"]);
        let after: Vec<_> = store.list_with_offset(None, &path("b/three")).try_collect().await.unwrap();
        assert_eq!(after.len(), 1);
        assert_eq!(store.list_with_delimiter(None).await.unwrap().common_prefixes, [path("a"), path("b")]);

        let meta = store.head(&path("a/one")).await.unwrap();
        assert_eq!(meta.size, 1000);
        let one = path("a/one");
        let given = |options: GetOptions| store.get_opts(&one, options);
        let changed = given(GetOptions::new().with_if_match(Some("another"))).await.unwrap_err();
        assert!(matches!(changed, Error::Precondition { .. }), "{changed:?}");
        let same = given(GetOptions::new().with_if_none_match(meta.e_tag)).await.unwrap_err();
        assert!(matches!(same, Error::NotModified { .. }), "{same:?}");
        let last = given(GetOptions::new().with_range(Some(GetRange::Suffix(10)))).await.unwrap();
        assert_eq!(last.range, 990..1000);
        assert_eq!(store.get_range(&path("a/one"), 10..12).await.unwrap()[..], [1, 1]);

        store.delete(&path("b/two")).await.unwrap();
        let gone = store.delete_stream(futures_util::stream::iter([Ok(path("b/two"))]).boxed()).next().await.unwrap();
        assert!(matches!(gone.unwrap_err(), Error::NotFound { .. }));
    });
    assert!(store.to_string().starts_with("majorfault::FileStore(LocalFileSystem(file:///"), "{store}");
}

#[test]
fn a_short_read_alone_is_left_to_the_local_file_system_and_a_long_one_is_not() {
    if !has_io_uring("a_short_read_alone_is_left_to_the_local_file_system_and_a_long_one_is_not") {
        return;
    }
    let folder = Folder::new(&[("file", 500_000)]);
    let store = folder.open(FileStore::options());

    for ranges in [&[] as &[_], &[5..5], &[1000..9000, 3..3]] {
        let (ours, local) = folder.both(&store, "file", ranges);
        assert_eq!(ours, local);
    }
    assert_eq!((store.counts().single, store.counts().visits, store.threads()), (3, 0, 0));

    folder.cool("file");
    let long = &[Range { start: 1000, end: 400_000 }];
    let (ours, local) = folder.both(&store, "file", long);
    assert_eq!(ours, local);
    let counts = store.counts();
    assert_eq!((counts.visits, counts.reads, counts.bytes), (1, 4, 399_000), "{counts:?}");
}

#[test]
fn ranges_that_touch_are_one_read_and_gaps_are_read_only_on_request() {
    let folder = Folder::new(&[("file", 500_000)]);
    let ranges = [0..4096, 4096..8192, 6000..9000, 10_000..12_000, 20_000..20_001];

    for (gap, reads) in [(0, 3), (1000, 2), (8000, 1)] {
        let store = folder.open(FileStore::options().gap(gap));
        let (ours, local) = folder.both(&store, "file", &ranges);
        assert_eq!(ours, local);
        assert_eq!((store.counts().reads, store.counts().bytes), (reads, 11_001));
    }
}

#[test]
fn options_that_cannot_be_used_are_refused() {
    let root = std::env::temp_dir();
    for (options, told) in [
        (FileStore::options().depth(0), "Generic majorfault error: depth 0: legal is 1 to 4096"),
        (FileStore::options().depth(5000), "Generic majorfault error: depth 5000: legal is 1 to 4096"),
        (FileStore::options().threads(0), "Generic majorfault error: threads 0: legal is 1 to 1024"),
    ] {
        assert_eq!(options.open(&root).unwrap_err().to_string(), told);
    }
    assert!(FileStore::new("/there/is/no/such/folder").is_err());
}

#[test]
fn without_direct_io_reads_are_buffered_and_it_is_said() {
    if !has_io_uring("without_direct_io_reads_are_buffered_and_it_is_said") {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = FileStore::options().direct(true).open(folder.path()).unwrap();
    let on_disk = Folder::new(&[("file", 500_000)]);
    let direct = on_disk.open(FileStore::options().direct(true));
    std::fs::write(folder.path().join("file"), content("file", 500_000)).unwrap();

    let bytes = on_disk.runtime.block_on(store.get_ranges(&Path::from("file"), &rows())).unwrap();
    let (ours, local) = on_disk.both(&direct, "file", &rows());

    assert!(bytes.iter().map(|bytes| bytes.to_vec()).eq(local.clone().unwrap()));
    assert_eq!(ours, local);
    on_disk.cool("file");
    assert_eq!(on_disk.ours(&direct, "file", &rows()), local);
    assert_eq!((direct.refusal(), direct.counts().visits, direct.counts().cached), (None, 2, 0));
    // The kernel's tmpfs may have direct I/O (Linux 6.6).
    assert_eq!(store.refusal().is_some(), store.counts().buffered == 1, "{:?}", store.refusal());
}

/// Counts warnings.
#[derive(Default)]
struct Listener(Mutex<Vec<String>>);

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut visitor = Said(String::new());
        event.record(&mut visitor);
        self.0.lock().unwrap().push(visitor.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

struct Said(String);

impl tracing::field::Visit for Said {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{value:?}");
    }
}

/// Refuses io_uring_setup(2) to this thread and to those that it starts, as the seccomp profile of many containers does.
#[allow(unsafe_code, reason = "a seccomp filter is set by prctl(2)")]
fn refuse_io_uring() {
    const LOAD_NUMBER: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS, of seccomp_data.nr, at 0
    const EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is whole, and outlives the calls, which copy it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn where_io_uring_is_refused_each_call_is_the_local_file_systems_and_it_is_said_once() {
    if !has_io_uring("where_io_uring_is_refused_each_call_is_the_local_file_systems_and_it_is_said_once") {
        return;
    }
    let refused = std::thread::spawn(|| {
        refuse_io_uring();
        let folder = Folder::new(&[("file", 500_000)]);
        let store = folder.open(FileStore::options());
        let listener = Arc::new(Listener::default());

        tracing::subscriber::with_default(Arc::clone(&listener), || {
            for _ in 0..3 {
                folder.cool("file");
                let (ours, local) = folder.both(&store, "file", &rows());
                assert_eq!(ours, local);
            }
        });

        // What is cached needs no ring.
        folder.ours(&store, "file", &rows()).unwrap();
        let counts = store.counts();
        assert_eq!((counts.visits, counts.refused), (1, 3), "{counts:?}");
        let reason = store.refusal().unwrap();
        assert!(
            reason.starts_with("ranges are read one after the other: io_uring") && reason.contains("seccomp"),
            "{reason}"
        );
        assert_eq!(*listener.0.lock().unwrap(), [reason]);
    });
    refused.join().unwrap();
}

#[test]
fn io_uring_can_be_switched_off() {
    let folder = Folder::new(&[("file", 500_000)]);
    let store = folder.open(FileStore::options().io_uring(false));

    let (ours, local) = folder.both(&store, "file", &rows());

    assert_eq!(ours, local);
    assert_eq!((store.counts().refused, store.threads()), (1, 0));
}

struct Counted(AtomicUsize, std::thread::Thread);

impl Wake for Counted {
    fn wake(self: Arc<Counted>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.unpark();
    }
}

#[test]
fn without_a_runtime_it_reads_as_well_and_the_waiting_thread_is_free() {
    let folder = Folder::new(&[("file", 500_000)]);
    let store = folder.open(FileStore::options());
    let (path, rows) = (Path::from("file"), rows());
    let woken = Arc::new(Counted(AtomicUsize::new(0), std::thread::current()));
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut asked = pin!(store.get_ranges(&path, &rows));

    let mut polls = 0;
    let answers = loop {
        polls += 1;
        match asked.as_mut().poll(&mut context) {
            Poll::Ready(answers) => break answers.unwrap(),
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(10)),
        }
    };

    assert!(answers.iter().map(|bytes| bytes.to_vec()).eq(folder.local("file", &rows).unwrap()));
    // Read by a thread of the store's, which wakes the one that waits, unless it was done before that came to wait.
    assert_eq!((store.threads(), store.counts().visits), (1, 1));
    assert!(woken.0.load(Ordering::Relaxed) == 1 || polls == 1, "{polls}");
}

#[test]
fn calls_that_nobody_waits_for_end_and_later_ones_are_right() {
    if !has_io_uring("calls_that_nobody_waits_for_end_and_later_ones_are_right") {
        return;
    }
    let folder = Folder::new(&[("file", 4_000_000)]);
    let store = folder.open(FileStore::options().depth(2).threads(2));
    let path = Path::from("file");
    let many: Vec<Range<u64>> = (0..2000u64).map(|row| row * 2000..row * 2000 + 900).collect();

    folder.cool("file");
    let dropped = (0..50).filter(|_| store.get_ranges(&path, &many).now_or_never().is_none()).count();
    let (ours, local) = folder.both(&store, "file", &many);

    assert_eq!(ours, local);
    assert_eq!(dropped, 50);
    until("every dropped call was counted", || store.counts().cancelled == 50);
    assert_eq!(store.counts().visits, 1);
}

#[test]
fn the_store_leaves_no_thread_and_no_open_file() {
    if !has_io_uring("the_store_leaves_no_thread_and_no_open_file") {
        return;
    }
    let open = |folder: &Folder| {
        let links = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        links.filter(|link| link.starts_with(folder.root())).count()
    };
    let folder = Folder::new(&[("file", 4_000_000)]);
    let store = folder.open(FileStore::options().threads(2));
    let watched = store.clone();
    let path = Path::from("file");

    for _ in 0..20 {
        folder.cool("file");
        drop(store.get_ranges(&path, &rows()).now_or_never());
        folder.ours(&store, "file", &rows()).unwrap();
    }
    assert!((1..=2).contains(&store.threads()) && open(&folder) > 0);
    std::fs::remove_file(folder.path("file")).unwrap();

    // Nobody asks any more: the threads end by themselves, and with them the file's last descriptors.
    until("threads ended", || watched.threads() == 0);
    until("files closed", || open(&folder) == 0);
}
