//! Memory for pages that come and go: one reserved address range, a state word for each page, and guards that make access to
//! the bytes safe (after vmcache, Leis et al., SIGMOD 2023).
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::sys::advice::{self, Advice};
use crate::sys::map::Mapping;
use crate::sys::page_state::{self as state, Leave, Refused, Seen};
use crate::sys::uffd::Uffd;
use crate::sys::view::{View, two_words};
use std::fmt;
use std::ops::{Deref, DerefMut, RangeInclusive};
use std::sync::atomic::AtomicU64;

/// Ranges dropped by one call; more would be refused (UIO_MAXIOV).
const RANGES: usize = 512;

/// A range of pages; a page takes no memory until it is filled.
pub struct PageMemory {
    /// Whoever reads or writes a missing page waits until it is filled. Closed before the memory is freed.
    faults: Option<Uffd>,
    memory: Mapping,
    words: Words,
    page: usize,
}

/// The state word of each page, in memory that is zeros until it is touched: that is [`state::NEW`].
struct Words {
    memory: Mapping,
    count: usize,
}

const _: () = assert!(state::NEW == 0);

impl Words {
    fn new(count: usize) -> Result<Words> {
        // Never nothing, which cannot be mapped; no overflow, as pages are longer than words.
        let memory = Mapping::reserve((count * size_of::<AtomicU64>()).max(1))?;
        // The first use of a page takes 4 KiB for the words around its own, not 2 MiB; refused where there are no huge pages.
        let _ = advice::madvise(&memory, 0, memory.length(), Advice::NoHugePage);
        Ok(Words { memory, count })
    }
}

impl Deref for Words {
    type Target = [AtomicU64];
    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is private, as long as this, begins at a multiple of 4096, and is reached by these atomic words
        // only; zeros are valid ones.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.count) }
    }
}

/// A page that this holder alone has. Let go on drop: free for all, or evicted again where it was and nothing was put in.
pub struct Exclusive<'m> {
    memory: &'m PageMemory,
    number: u64,
    dirty: bool,
    /// Whether its bytes are the page's.
    filled: bool,
}

/// A page that was asked for ([`PageMemory::enter`]).
pub enum Entered<'m> {
    /// It is in memory.
    Shared(Shared<'m>),
    /// Its bytes are absent; this holder brings them.
    Absent(Exclusive<'m>),
}

/// Pages next to each other that nobody changes or evicts while this lives.
pub struct Shared<'m> {
    /// Where the pages are; what a read needs of it is below, without another step.
    memory: &'m PageMemory,
    /// Their state words.
    words: &'m [AtomicU64],
    bytes: *const u8,
    length: usize,
}

// SAFETY: the bytes are those of pages that this holds for reading; any thread may read them and let go of them.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

/// A page that is read without holding it: what was read counts only if [`Optimistic::is_undisturbed`] then returns true.
#[derive(Clone, Copy, Debug)]
pub struct Optimistic<'m> {
    word: &'m AtomicU64,
    bytes: *const u8,
    length: usize,
    /// The word when the reading began.
    found: u64,
}

/// All pages, for reading without holding them: what a read needs, in registers instead of behind pointers.
///
/// ```
/// use majorfault::Bytes;
/// use majorfault::pool::{Pool, Refused};
///
/// let file = tempfile::NamedTempFile::new()?;
/// file.as_file().set_len(1 << 20)?;
/// let mut handle = Pool::options().memory(Bytes::mib(1)).open(file.path())?;
/// handle.fetch(&[7])?;
///
/// let pages = handle.pool().optimistic();
///
/// assert_eq!(pages.words::<2>(7, 128), Ok([0, 0]));
/// assert_eq!(pages.words::<2>(8, 128), Err(Refused::Evicted));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OptimisticPages<'m> {
    words: &'m [AtomicU64],
    base: *const u8,
    /// The page's size is 2 to the power of this.
    shift: u32,
}

// SAFETY: the bytes at `base` are reached as by `Optimistic`, which any number of threads may do.
unsafe impl Send for OptimisticPages<'_> {}
// SAFETY: as above.
unsafe impl Sync for OptimisticPages<'_> {}

impl fmt::Debug for Shared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.memory.page_at(self.bytes as usize);
        f.debug_struct("Shared").field("first", &first).field("count", &self.words.len()).finish_non_exhaustive()
    }
}

impl PageMemory {
    /// Address space for `count` pages of `page` bytes (a power of two, 4096 or more), and for 8 bytes of state each, which take
    /// memory as pages near each other are used first.
    ///
    /// Errors: Invalid (page), Io (no address space).
    pub fn new(count: u64, page: usize) -> Result<PageMemory> {
        if !page.is_power_of_two() || page < 4096 {
            return Err(Error::Invalid(format!("page={page}: legal is a power of two of 4096 or more")));
        }
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(page));
        let length =
            length.ok_or_else(|| Error::Invalid(format!("{count} pages of {page} bytes exceed the address space")))?;
        let memory = Mapping::reserve(length)?;
        // Huge pages would take memory for pages that are not filled; pages of that size may use them.
        let advice = if page < crate::sys::map::HUGE_PAGE { Advice::NoHugePage } else { Advice::HugePage };
        // Refused where the kernel has no huge pages, which does no harm.
        let _ = advice::madvise(&memory, 0, memory.length(), advice);
        Ok(PageMemory { faults: None, memory, words: Words::new(count as usize)?, page })
    }

    /// Memory where touching an absent page waits until it is filled: [`PageMemory::faults`] tells
    /// which page. Reached by plain pointers, so that uses are not noticed: pages are evicted in the order they arrived.
    ///
    /// Errors: as [`new`](PageMemory::new); Missing (no userfaultfd).
    pub fn faulting(count: u64, page: usize) -> Result<PageMemory> {
        let mut pages = PageMemory::new(count, page)?;
        pages.faults = Some(Uffd::over(&pages.memory)?);
        Ok(pages)
    }

    /// The source of faults, for memory made by [`faulting`](PageMemory::faulting).
    pub fn faults(&self) -> Option<&Uffd> {
        self.faults.as_ref()
    }

    /// All of the memory, for reading by copy; none unless made by [`faulting`](PageMemory::faulting), where absent pages are
    /// brought when they are touched. In other memory they would read as zeros.
    ///
    /// # Safety
    ///
    /// Nobody changes bytes of a page while it is read through this ([`Exclusive`] gives them for writing).
    pub unsafe fn view(&self) -> Option<View<'_>> {
        let length = self.memory.length();
        // SAFETY: the range lives as long as `self`; nobody writes what is read, as the caller promises.
        self.faults.as_ref().map(|_| unsafe { View::new(self.memory.as_ptr(), length) })
    }

    /// The `length` bytes from `at` on of [`faulting`](PageMemory::faulting) memory; none of other memory.
    ///
    /// # Safety
    ///
    /// While the slice lives:
    ///
    /// - nobody changes its bytes ([`Exclusive`] gives them for writing);
    /// - a page that is evicted comes back with the same bytes: its file is not changed, and can be read.
    pub unsafe fn bytes(&self, at: usize, length: usize) -> Option<&[u8]> {
        // SAFETY: what the caller promises.
        self.faults.as_ref().map(|_| unsafe { self.memory.bytes(at, length) })
    }

    /// The page that holds an address of this memory.
    pub fn page_at(&self, address: usize) -> u64 {
        ((address - self.memory.as_ptr() as usize) / self.page) as u64
    }

    /// Releases the threads that wait for a page of [`faulting`](PageMemory::faulting) memory. They see zeros where it could not
    /// be filled.
    pub fn let_go(&self, number: u64, is_filled: bool) {
        let Some(faults) = &self.faults else { return };
        let address = self.memory.as_ptr() as usize + number as usize * self.page;
        // Where the page is already there, waking is enough.
        if is_filled || faults.zero(address, self.page).is_err() {
            faults.wake(address, self.page);
        }
    }

    /// Wakes the threads that wait for pages of `numbers` in [`faulting`](PageMemory::faulting) memory: they look again.
    pub fn wake(&self, numbers: RangeInclusive<u64>) {
        let Some(faults) = &self.faults else { return };
        let (first, last) = (*numbers.start() as usize, *numbers.end() as usize);
        faults.wake(self.memory.as_ptr() as usize + first * self.page, (last - first + 1) * self.page);
    }

    /// Removes the zeros of [`let_go`](PageMemory::let_go), so that the page is requested again. Only for
    /// [`faulting`](PageMemory::faulting) memory: in other memory the holders of the page would lose its bytes.
    ///
    /// Errors: Invalid (other memory), Io.
    pub fn forget(&self, number: u64) -> Result<()> {
        if self.faults.is_none() {
            return Err(Error::Invalid("only a page of memory that faults can be forgotten".to_owned()));
        }
        advice::madvise(&self.memory, number as usize * self.page, self.page, Advice::DontNeed)
    }

    /// Bytes of a page.
    pub fn page(&self) -> usize {
        self.page
    }

    /// Number of pages.
    pub fn count(&self) -> u64 {
        self.words.len() as u64
    }

    fn word(&self, number: u64) -> &AtomicU64 {
        &self.words[number as usize]
    }

    /// Becomes the only holder of a page, in memory or not ([`Exclusive::is_filled`]).
    pub fn lock(&self, number: u64) -> std::result::Result<Exclusive<'_>, Refused> {
        state::lock(self.word(number)).map(|locked| self.exclusive(number, locked))
    }

    /// Becomes the only holder of a page that is not in memory.
    pub fn lock_evicted(&self, number: u64) -> std::result::Result<Exclusive<'_>, Refused> {
        state::lock_evicted(self.word(number)).map(|()| self.absent(number))
    }

    /// Becomes a reader of a page in memory, or the only holder of one that is not: never of one that another thread brought
    /// meanwhile.
    pub fn enter(&self, number: u64) -> std::result::Result<Entered<'_>, Refused> {
        let word = self.word(number);
        state::enter(word).map(|entered| match entered {
            state::Became::Reader => Entered::Shared(self.held(std::slice::from_ref(word), number)),
            state::Became::Filler => Entered::Absent(self.absent(number)),
        })
    }

    fn absent(&self, number: u64) -> Exclusive<'_> {
        self.exclusive(number, state::Locked { was_evicted: true, dirty: false })
    }

    /// Becomes the only holder of a page that the clock marked and nobody has used since.
    pub fn lock_marked(&self, number: u64) -> std::result::Result<Exclusive<'_>, Refused> {
        state::lock_marked(self.word(number)).map(|locked| self.exclusive(number, locked))
    }

    /// Becomes the only holder of a dirty page.
    pub fn lock_dirty(&self, number: u64) -> std::result::Result<Exclusive<'_>, Refused> {
        state::lock_dirty(self.word(number)).map(|locked| self.exclusive(number, locked))
    }

    fn exclusive(&self, number: u64, locked: state::Locked) -> Exclusive<'_> {
        Exclusive { memory: self, number, dirty: locked.dirty, filled: !locked.was_evicted }
    }

    /// Becomes a reader of a page in memory.
    #[inline]
    pub fn share(&self, number: u64) -> std::result::Result<Shared<'_>, Refused> {
        self.share_any(number).expect("a page of this memory")
    }

    /// The same of a number that may be past the last page; then none.
    #[inline(always)]
    pub fn share_any(&self, number: u64) -> Option<std::result::Result<Shared<'_>, Refused>> {
        let word = self.words.get(number as usize)?;
        Some(state::share(word).map(|()| self.held(std::slice::from_ref(word), number)))
    }

    /// The guard of a page of which the caller is a reader.
    #[inline(always)]
    fn held<'m>(&'m self, words: &'m [AtomicU64], number: u64) -> Shared<'m> {
        let bytes = self.memory.as_ptr().wrapping_add(number as usize * self.page);
        Shared { memory: self, words, bytes, length: self.page }
    }

    /// The pages for reading without holding them.
    #[inline]
    pub fn optimistic(&self) -> OptimisticPages<'_> {
        OptimisticPages { words: &self.words, base: self.memory.as_ptr(), shift: self.page.trailing_zeros() }
    }

    /// The clock's hand passes the page.
    pub fn pass(&self, number: u64) -> Seen {
        state::pass(self.word(number))
    }

    /// Gives memory to pages that are about to be filled: one call instead of a fault for each 4096 bytes (Linux 5.14; earlier
    /// kernels refuse, and the faults happen).
    pub fn populate(&self, first: u64, count: usize) {
        if self.faults.is_some() {
            return;
        }
        let _ = advice::madvise(&self.memory, first as usize * self.page, count * self.page, Advice::PopulateWrite);
    }

    /// Takes the memory of these pages back, and their content with it, in as few calls as the kernel allows: they are not
    /// filled afterwards. Returns the number of calls.
    ///
    /// Errors: Io; then those that are filled have their content.
    ///
    /// Panics where a page is of other memory: its number would name one here that somebody may be reading.
    pub fn evict(&self, pages: &mut [Exclusive<'_>]) -> Result<u64> {
        assert!(pages.iter().all(|held| std::ptr::eq(held.memory, self)), "a page of other memory");
        let mut calls = 0;
        for pages in pages.chunks_mut(RANGES) {
            let ranges: Vec<(usize, usize)> = pages.iter().map(|held| (held.at(), self.page)).collect();
            calls += 1;
            // Nothing before Linux 6.14, or a part where it was interrupted.
            let dropped = advice::process_madvise_dont_need(&self.memory, &ranges).map_or(0, |bytes| bytes / self.page);
            pages[..dropped].iter_mut().for_each(Exclusive::set_evicted);
            for held in &mut pages[dropped..] {
                calls += 1;
                advice::madvise(&self.memory, held.at(), self.page, Advice::DontNeed)?;
                held.set_evicted();
            }
        }
        Ok(calls)
    }
}

impl<'m> Exclusive<'m> {
    /// The page's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether its bytes are the page's; if not, they are unspecified.
    pub fn is_filled(&self) -> bool {
        self.filled
    }

    /// Puts the page's bytes in; the rest of the page becomes zeros or stays as it was. Threads that wait for it in
    /// [`faulting`](PageMemory::faulting) memory sleep on until [`PageMemory::wake`].
    ///
    /// Errors: Io (no memory for a page that others wait for).
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        match &self.memory.faults {
            None => self[..bytes.len()].copy_from_slice(bytes),
            Some(faults) => self.put_missing(faults, bytes)?,
        }
        self.filled = true;
        Ok(())
    }

    /// Writing would make this thread wait for itself: the kernel puts the whole page there.
    fn put_missing(&self, faults: &Uffd, bytes: &[u8]) -> Result<()> {
        let mut whole = Vec::new();
        let bytes = if bytes.len() == self.memory.page {
            bytes
        } else {
            whole.resize(self.memory.page, 0);
            whole[..bytes.len()].copy_from_slice(bytes);
            &whole
        };
        let address = self.memory.memory.as_ptr() as usize + self.at();
        let copied = faults.copy(address, bytes).or_else(|error| match error.raw_os_error() {
            // Zeros in place of a page that could not be read, or the remains of an eviction that failed.
            Some(libc::EEXIST) => {
                self.memory.forget(self.number).map_err(std::io::Error::other)?;
                faults.copy(address, bytes)
            }
            _ => Err(error),
        });
        copied.map_err(|error| Error::io("fill a page that a thread waits for", "UFFDIO_COPY", error))
    }

    /// Marks its bytes as the page's.
    pub fn set_filled(&mut self) {
        self.filled = true;
    }

    /// Its bytes are gone.
    fn set_evicted(&mut self) {
        self.filled = false;
        self.dirty = false;
    }

    /// Whether it was changed since it was last written.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Marks it as dirty, or as written.
    pub fn set_dirty(&mut self, dirty: bool) {
        self.dirty = dirty;
    }

    /// Lets others read the page; this holder becomes its first reader.
    pub fn share(self) -> Shared<'m> {
        let held = std::mem::ManuallyDrop::new(self);
        let (memory, number) = (held.memory, held.number);
        state::unlock(memory.word(number), Leave::Reading, held.dirty);
        memory.held(std::slice::from_ref(memory.word(number)), number)
    }

    fn at(&self) -> usize {
        self.number as usize * self.memory.page
    }
}

impl Deref for Exclusive<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: inside the reserved range; the state word says that this guard alone holds the page.
        unsafe { std::slice::from_raw_parts(self.memory.memory.as_ptr().add(self.at()), self.memory.page) }
    }
}

impl DerefMut for Exclusive<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively. Readers without a hold read volatile and check the word afterwards.
        unsafe { std::slice::from_raw_parts_mut(self.memory.memory.as_mut_ptr().add(self.at()), self.memory.page) }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        let leave = if self.filled { Leave::Free } else { Leave::Evicted };
        state::unlock(self.memory.word(self.number), leave, self.dirty && self.filled);
    }
}

impl<'m> Shared<'m> {
    /// Holds the page after the last one as well: their bytes are adjacent.
    pub fn extend(&mut self, next: Shared<'m>) {
        let is_next = std::ptr::eq(next.memory, self.memory) && next.bytes == self.bytes.wrapping_add(self.length);
        assert!(is_next, "the pages are not neighbours");
        let next = std::mem::ManuallyDrop::new(next);
        let first = self.memory.page_at(self.bytes as usize) as usize;
        self.words = &self.memory.words[first..first + self.words.len() + next.words.len()];
        self.length += next.length;
    }
}

impl Deref for Shared<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: inside the reserved range; the state words say that the pages are neither changed nor evicted.
        unsafe { std::slice::from_raw_parts(self.bytes, self.length) }
    }
}

impl Drop for Shared<'_> {
    #[inline]
    fn drop(&mut self) {
        self.words.iter().for_each(state::unshare);
    }
}

impl<'m> OptimisticPages<'m> {
    /// A page in memory.
    ///
    /// Panics past the last page.
    #[inline(always)]
    pub fn page(&self, number: u64) -> std::result::Result<Optimistic<'m>, Refused> {
        let word = &self.words[number as usize];
        let found = state::begin(word)?;
        let bytes = self.base.wrapping_add((number as usize) << self.shift);
        Ok(Optimistic { word, bytes, length: 1 << self.shift, found })
    }

    /// `N` words of a page from byte `at` on, undisturbed. Refused as busy where a writer has the page or had it meanwhile:
    /// try again, or pin it.
    ///
    /// Panics past the last page or its end, or where `at` is not a multiple of 8.
    #[inline]
    pub fn words<const N: usize>(&self, number: u64, at: usize) -> std::result::Result<[u64; N], Refused> {
        let page = self.page(number)?;
        let words = page.words(at);
        if page.is_undisturbed() { Ok(words) } else { Err(Refused::Busy) }
    }
}

impl Optimistic<'_> {
    /// The word at `at` of the page, which may be in the middle of a change.
    ///
    /// Panics past the end, or where `at` is not a multiple of 8.
    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        assert!(at % 8 == 0 && at < self.length, "a word must be aligned and lie within its page");
        // SAFETY: inside the reserved range and aligned. Read volatile, as another thread may write it or the kernel
        // drop it (it then reads as zeros): the value is used only where the state word proves neither happened.
        unsafe { self.bytes.add(at).cast::<u64>().read_volatile() }
    }

    /// `N` words from `at` on, like [`word`](Optimistic::word), with one check for all.
    ///
    /// Panics past the end, or where `at` is not a multiple of 8.
    #[inline]
    pub fn words<const N: usize>(&self, at: usize) -> [u64; N] {
        assert!(
            at % 8 == 0 && N * 8 <= self.length && at <= self.length - N * 8,
            "the words must be aligned and lie within their page"
        );
        let from = self.bytes.wrapping_add(at);
        if N % 2 == 0 && at % 16 == 0 {
            let mut words = [0; N];
            for (index, pair) in words.chunks_exact_mut(2).enumerate() {
                // SAFETY: as for one word; the page begins at a multiple of 4096, so these 16 bytes are aligned.
                pair.copy_from_slice(&unsafe { two_words(from.add(index * 16)) });
            }
            return words;
        }
        // SAFETY: as for one word.
        std::array::from_fn(|index| unsafe { from.add(index * 8).cast::<u64>().read_volatile() })
    }

    /// Whether everything read so far was the page's undisturbed content.
    #[inline]
    pub fn is_undisturbed(&self) -> bool {
        state::is_undisturbed(self.word, self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(memory: &PageMemory, number: u64, value: u8) {
        let mut held = memory.lock(number).unwrap();
        held.fill(value);
        held.set_filled();
    }

    /// Half of a change is seen by every second reader or so where nothing is checked.
    #[test]
    fn words_are_of_one_moment_while_others_change_the_page() {
        let memory = PageMemory::new(1, 4096).unwrap();
        filled(&memory, 0, 1);
        let pages = memory.optimistic();

        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..20_000).for_each(|round| filled(&memory, 0, round as u8)));
            while !writer.is_finished() {
                let Ok(words) = pages.words::<512>(0, 0) else { continue };
                assert_eq!(words, [words[0]; 512]);
            }
        });
        assert_eq!(pages.words::<2>(0, 4080), Ok([u64::from_ne_bytes([19_999u32 as u8; 8]); 2]));
    }

    #[test]
    fn a_page_is_evicted_until_it_is_filled() {
        let memory = PageMemory::new(4, 4096).unwrap();
        assert!(matches!(memory.share(1), Err(Refused::Evicted)));
        drop(memory.lock(1).unwrap());
        assert!(matches!(memory.share(1), Err(Refused::Evicted)), "locked and let go without bytes");

        filled(&memory, 1, 7);

        assert_eq!(memory.share(1).unwrap()[..], [7; 4096]);
    }

    #[test]
    fn a_change_stays_to_be_written_however_its_holder_lets_go() {
        let memory = PageMemory::new(3, 4096).unwrap();
        let changed = |number: u64| {
            let mut held = memory.lock(number).unwrap();
            held.put(&[1; 4096]).unwrap();
            held.set_dirty(true);
            held
        };

        drop(changed(0));
        drop(changed(1).share());
        drop(memory.lock(2));

        assert!(memory.lock_dirty(0).is_ok_and(|held| held.is_dirty() && held.is_filled()));
        assert!(memory.lock_dirty(1).is_ok_and(|held| held.is_dirty() && held.is_filled()));
        assert!(matches!(memory.lock_dirty(2), Err(Refused::Evicted)), "nothing was put in");
    }

    #[test]
    fn pages_that_are_no_neighbours_are_no_slice() {
        let memory = PageMemory::new(3, 4096).unwrap();
        (0..3).for_each(|number| filled(&memory, number, 1));
        let other = PageMemory::new(3, 4096).unwrap();
        (0..3).for_each(|number| filled(&other, number, 2));
        for no_neighbour in [memory.share(2).unwrap(), other.share(1).unwrap()] {
            let mut first = memory.share(0).unwrap();

            let extended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.extend(no_neighbour)));

            assert!(extended.is_err());
        }
    }

    #[test]
    fn holders_exclude_each_other_and_readers_do_not() {
        let memory = PageMemory::new(1, 4096).unwrap();
        filled(&memory, 0, 1);
        let (one, other) = (memory.share(0).unwrap(), memory.share(0).unwrap());
        assert!(matches!(memory.lock(0), Err(Refused::Busy)));
        drop((one, other));

        let held = memory.lock(0).unwrap();

        assert!(matches!(memory.share(0), Err(Refused::Busy)));
        assert!(matches!(memory.optimistic().page(0), Err(Refused::Busy)));
        drop(held);
    }

    #[test]
    fn neighbours_are_one_slice() {
        let memory = PageMemory::new(3, 4096).unwrap();
        (0..3).for_each(|number| filled(&memory, number, number as u8 + 1));
        let mut shared = memory.share(0).unwrap();
        shared.extend(memory.share(1).unwrap());

        assert_eq!((shared.len(), shared[4095], shared[4096]), (8192, 1, 2));
        drop(shared);
        assert!(memory.lock(0).is_ok() && memory.lock(1).is_ok());
    }

    #[test]
    fn evicted_pages_give_their_memory_back_in_one_call() {
        let memory = PageMemory::new(64, 4096).unwrap();
        (0..64).for_each(|number| filled(&memory, number, 9));
        let mut held: Vec<_> = (0..64).map(|number| memory.lock(number).unwrap()).collect();

        let calls = memory.evict(&mut held).unwrap();

        drop(held);
        assert!(calls == 1 || calls == 65, "{calls} calls for 64 pages");
        assert!((0..64).all(|number| matches!(memory.share(number), Err(Refused::Evicted))));
        assert!(memory.lock(5).unwrap().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_page_of_other_memory_evicts_nobodys_page() {
        let (memory, other) = (PageMemory::new(1, 4096).unwrap(), PageMemory::new(1, 4096).unwrap());
        filled(&memory, 0, 5);
        filled(&other, 0, 6);
        let reading = memory.share(0).unwrap();
        let mut foreign = [other.lock(0).unwrap()];

        let evicted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| memory.evict(&mut foreign)));

        assert!(evicted.is_err());
        assert_eq!(reading[..], [5; 4096]);
        assert!(memory.forget(0).is_err() && reading[0] == 5);
    }

    #[test]
    fn more_pages_than_addresses_are_refused() {
        assert!(matches!(PageMemory::new(u64::MAX / 4096 + 2, 4096), Err(Error::Invalid(_))));
    }

    #[test]
    fn a_reading_without_a_hold_is_undone_by_a_change() {
        let memory = PageMemory::new(1, 4096).unwrap();
        filled(&memory, 0, 3);
        let seen = memory.optimistic().page(0).unwrap();
        assert_eq!(seen.word(8), 0x0303_0303_0303_0303);
        assert!(seen.is_undisturbed());

        memory.lock(0).unwrap().fill(4);

        assert!(!seen.is_undisturbed());
    }
}
