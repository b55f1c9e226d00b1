//! Four stores of values by number, behind one interface. A write is a transaction of its own; every so many of them the store is
//! told to make all of them durable, as a commit of a group does.

use super::CACHE;
use super::on_pool::OnPool;
use majorfault::Bytes;
use majorfault::pool::PooledFile;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

const VALUES: TableDefinition<u64, &[u8]> = TableDefinition::new("values");

/// A store, open; each thread has a session of its own.
pub trait Store: Sync {
    fn session(&self) -> Box<dyn Session + '_>;
    /// Makes every write so far durable.
    fn sync(&self);
}

pub trait Session {
    /// Shows a value; whether there is one.
    fn read(&mut self, key: u64, see: &mut dyn FnMut(&[u8])) -> bool;
    /// Shows so many values from this key on, in the order of their keys.
    fn scan(&mut self, from: u64, count: u64, see: &mut dyn FnMut(u64, &[u8]));
    /// Writes many as one transaction.
    fn write(&mut self, pairs: &mut dyn Iterator<Item = (u64, Vec<u8>)>);
}

/// The kinds, ours first.
pub const KINDS: [&str; 4] = ["pool", "file", "lmdb", "sqlite"];

/// Opens a store, made where it is missing; none where its library is not here.
pub fn open(kind: &str, path: &Path, budget: u64, beyond: bool) -> Option<Box<dyn Store>> {
    Some(match kind {
        "lmdb" => Box::new(Lmdb::open(path, beyond)?),
        "sqlite" => Box::new(Sqlite::open(path)?),
        _ => {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE);
            Box::new(Redb(match kind {
                "pool" => {
                    let file = PooledFile::options().memory(Bytes(budget)).open(path).expect("the database's file");
                    builder.create_with_backend(OnPool(file)).expect("the database")
                }
                _ => builder.create(path).expect("the database"),
            }))
        }
    })
}

struct Redb(Database);

impl Store for Redb {
    fn session(&self) -> Box<dyn Session + '_> {
        Box::new(RedbSession(&self.0))
    }

    fn sync(&self) {
        // An empty durable commit makes those before it durable.
        let mut transaction = self.0.begin_write().expect("a transaction");
        transaction.set_durability(Durability::Immediate).expect("no savepoints");
        transaction.commit().expect("room on the disk");
    }
}

struct RedbSession<'s>(&'s Database);

impl Session for RedbSession<'_> {
    fn read(&mut self, key: u64, see: &mut dyn FnMut(&[u8])) -> bool {
        let transaction = self.0.begin_read().expect("a snapshot");
        let table = transaction.open_table(VALUES).expect("the table");
        let found = table.get(key).expect("a read");
        found.inspect(|value| see(value.value())).is_some()
    }

    fn scan(&mut self, from: u64, count: u64, see: &mut dyn FnMut(u64, &[u8])) {
        let transaction = self.0.begin_read().expect("a snapshot");
        let table = transaction.open_table(VALUES).expect("the table");
        for pair in table.range(from..).expect("a range").take(count as usize) {
            let (key, value) = pair.expect("a read");
            see(key.value(), value.value());
        }
    }

    fn write(&mut self, pairs: &mut dyn Iterator<Item = (u64, Vec<u8>)>) {
        let mut transaction = self.0.begin_write().expect("a transaction");
        transaction.set_durability(Durability::None).expect("no savepoints");
        {
            let mut table = transaction.open_table(VALUES).expect("a table");
            for (key, value) in pairs {
                table.insert(key, value.as_slice()).expect("room on the disk");
            }
        }
        transaction.commit().expect("room on the disk");
    }
}

/// Functions of a library of the system, found while we run.
macro_rules! functions {
    ($name:ident from $file:literal { $($function:ident: fn($($given:ty),*) -> $gives:ty;)* }) => {
        struct $name { $($function: unsafe extern "C" fn($($given),*) -> $gives,)* }

        impl $name {
            /// None, and a sentence, where the library is not here.
            fn load() -> Option<$name> {
                // SAFETY: the library's initialisation is its own; it stays loaded.
                let library = unsafe { libc::dlopen(concat!($file, "\0").as_ptr().cast(), libc::RTLD_NOW) };
                if library.is_null() {
                    eprintln!("{} is not here, so its store is left out", $file);
                    return None;
                }
                // SAFETY: functions of these names have had these types since long before any library that is still in use.
                unsafe {
                    $(let $function = libc::dlsym(library, concat!(stringify!($function), "\0").as_ptr().cast());
                    assert!(!$function.is_null(), "{} has no {}", $file, stringify!($function));)*
                    Some($name { $($function: std::mem::transmute::<
                        *mut c_void, unsafe extern "C" fn($($given),*) -> $gives>($function),)* })
                }
            }
        }
    };
}

/// A pointer of a C library; each is used as that library allows.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Opaque(*mut c_void);

// SAFETY: LMDB's environment may be used by all threads; what belongs to one thread stays in its session.
unsafe impl Send for Opaque {}
// SAFETY: as above.
unsafe impl Sync for Opaque {}

const NOTHING: Opaque = Opaque(null_mut());

#[repr(C)]
struct Val {
    size: usize,
    data: *const c_void,
}

impl Val {
    fn of(bytes: &[u8]) -> Val {
        Val { size: bytes.len(), data: bytes.as_ptr().cast() }
    }

    /// The bytes that LMDB says it shows.
    ///
    /// # Safety
    ///
    /// LMDB filled this, and its transaction lives on.
    unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: as the caller says.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.size) }
    }
}

functions! {
    LmdbCalls from "liblmdb.so.0" {
        mdb_env_create: fn(*mut Opaque) -> c_int;
        mdb_env_set_mapsize: fn(Opaque, usize) -> c_int;
        mdb_env_open: fn(Opaque, *const c_char, c_uint, libc::mode_t) -> c_int;
        mdb_env_sync: fn(Opaque, c_int) -> c_int;
        mdb_txn_begin: fn(Opaque, Opaque, c_uint, *mut Opaque) -> c_int;
        mdb_txn_commit: fn(Opaque) -> c_int;
        mdb_txn_reset: fn(Opaque) -> ();
        mdb_txn_renew: fn(Opaque) -> c_int;
        mdb_txn_abort: fn(Opaque) -> ();
        mdb_dbi_open: fn(Opaque, *const c_char, c_uint, *mut c_uint) -> c_int;
        mdb_get: fn(Opaque, c_uint, *mut Val, *mut Val) -> c_int;
        mdb_put: fn(Opaque, c_uint, *mut Val, *mut Val, c_uint) -> c_int;
        mdb_cursor_open: fn(Opaque, c_uint, *mut Opaque) -> c_int;
        mdb_cursor_get: fn(Opaque, *mut Val, *mut Val, c_int) -> c_int;
        mdb_cursor_close: fn(Opaque) -> ();
    }
}

const MDB_NOSUBDIR: c_uint = 0x4000;
const MDB_NOSYNC: c_uint = 0x10000;
const MDB_RDONLY: c_uint = 0x20000;
const MDB_NOTLS: c_uint = 0x20_0000;
const MDB_NORDAHEAD: c_uint = 0x80_0000;
const MDB_INTEGERKEY: c_uint = 0x8;
const MDB_NEXT: c_int = 8;
const MDB_SET_RANGE: c_int = 17;
const MDB_NOTFOUND: c_int = -30798;

struct Lmdb {
    calls: LmdbCalls,
    environment: Opaque,
    table: c_uint,
}

fn done(code: c_int) {
    assert_eq!(code, 0, "LMDB's code");
}

impl Lmdb {
    /// Without read-ahead beyond memory, as its documentation says.
    fn open(path: &Path, beyond: bool) -> Option<Lmdb> {
        let calls = LmdbCalls::load()?;
        let path = CString::new(path.to_str().expect("a path of ours")).expect("no NUL");
        let (mut environment, mut transaction, mut table) = (NOTHING, NOTHING, 0);
        let ahead = if beyond { MDB_NORDAHEAD } else { 0 };
        // SAFETY: called in the order that LMDB's documentation has, with pointers to our own variables.
        unsafe {
            done((calls.mdb_env_create)(&mut environment));
            done((calls.mdb_env_set_mapsize)(environment, 8 << 30));
            let flags = MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOTLS | ahead;
            done((calls.mdb_env_open)(environment, path.as_ptr(), flags, 0o600));
            done((calls.mdb_txn_begin)(environment, NOTHING, 0, &mut transaction));
            done((calls.mdb_dbi_open)(transaction, null(), MDB_INTEGERKEY, &mut table));
            done((calls.mdb_txn_commit)(transaction));
        }
        Some(Lmdb { calls, environment, table })
    }
}

impl Store for Lmdb {
    fn session(&self) -> Box<dyn Session + '_> {
        let mut reading = NOTHING;
        // SAFETY: a transaction of this session's own.
        unsafe {
            done((self.calls.mdb_txn_begin)(self.environment, NOTHING, MDB_RDONLY, &mut reading));
            (self.calls.mdb_txn_reset)(reading);
        }
        Box::new(LmdbSession { store: self, reading })
    }

    fn sync(&self) {
        // SAFETY: any thread may.
        done(unsafe { (self.calls.mdb_env_sync)(self.environment, 1) });
    }
}

struct LmdbSession<'s> {
    store: &'s Lmdb,
    /// Renewed for each read, which is what LMDB has for many short ones.
    reading: Opaque,
}

impl Drop for LmdbSession<'_> {
    fn drop(&mut self) {
        // SAFETY: the session's own, used no more.
        unsafe { (self.store.calls.mdb_txn_abort)(self.reading) };
    }
}

impl Session for LmdbSession<'_> {
    fn read(&mut self, key: u64, see: &mut dyn FnMut(&[u8])) -> bool {
        let Lmdb { calls, table, .. } = self.store;
        let bytes = key.to_ne_bytes();
        let (mut key, mut value) = (Val::of(&bytes), Val::of(&[]));
        // SAFETY: the value is looked at before the transaction is reset.
        unsafe {
            done((calls.mdb_txn_renew)(self.reading));
            let code = (calls.mdb_get)(self.reading, *table, &mut key, &mut value);
            if code == 0 {
                see(value.bytes());
            } else {
                assert_eq!(code, MDB_NOTFOUND);
            }
            (calls.mdb_txn_reset)(self.reading);
            code == 0
        }
    }

    fn scan(&mut self, from: u64, count: u64, see: &mut dyn FnMut(u64, &[u8])) {
        let Lmdb { calls, table, .. } = self.store;
        let bytes = from.to_ne_bytes();
        let (mut key, mut value, mut cursor) = (Val::of(&bytes), Val::of(&[]), NOTHING);
        // SAFETY: keys and values are looked at before the transaction is reset.
        unsafe {
            done((calls.mdb_txn_renew)(self.reading));
            done((calls.mdb_cursor_open)(self.reading, *table, &mut cursor));
            let mut code = (calls.mdb_cursor_get)(cursor, &mut key, &mut value, MDB_SET_RANGE);
            for _ in 0..count {
                if code != 0 {
                    assert_eq!(code, MDB_NOTFOUND);
                    break;
                }
                see(u64::from_ne_bytes(key.bytes().try_into().expect("8 bytes")), value.bytes());
                code = (calls.mdb_cursor_get)(cursor, &mut key, &mut value, MDB_NEXT);
            }
            (calls.mdb_cursor_close)(cursor);
            (calls.mdb_txn_reset)(self.reading);
        }
    }

    fn write(&mut self, pairs: &mut dyn Iterator<Item = (u64, Vec<u8>)>) {
        let Lmdb { calls, environment, table } = self.store;
        let mut transaction = NOTHING;
        // SAFETY: LMDB copies what it is given before it returns.
        unsafe {
            done((calls.mdb_txn_begin)(*environment, NOTHING, 0, &mut transaction));
            for (key, bytes) in pairs {
                let key = key.to_ne_bytes();
                let (mut key, mut value) = (Val::of(&key), Val::of(&bytes));
                done((calls.mdb_put)(transaction, *table, &mut key, &mut value, 0));
            }
            done((calls.mdb_txn_commit)(transaction));
        }
    }
}

functions! {
    SqliteCalls from "libsqlite3.so.0" {
        sqlite3_open_v2: fn(*const c_char, *mut Opaque, c_int, *const c_char) -> c_int;
        sqlite3_close: fn(Opaque) -> c_int;
        sqlite3_busy_timeout: fn(Opaque, c_int) -> c_int;
        sqlite3_exec: fn(Opaque, *const c_char, *const c_void, *const c_void, *const c_void) -> c_int;
        sqlite3_errmsg: fn(Opaque) -> *const c_char;
        sqlite3_prepare_v2: fn(Opaque, *const c_char, c_int, *mut Opaque, *const c_void) -> c_int;
        sqlite3_bind_int64: fn(Opaque, c_int, i64) -> c_int;
        sqlite3_bind_blob: fn(Opaque, c_int, *const c_void, c_int, *const c_void) -> c_int;
        sqlite3_step: fn(Opaque) -> c_int;
        sqlite3_column_int64: fn(Opaque, c_int) -> i64;
        sqlite3_column_blob: fn(Opaque, c_int) -> *const c_void;
        sqlite3_column_bytes: fn(Opaque, c_int) -> c_int;
        sqlite3_reset: fn(Opaque) -> c_int;
        sqlite3_finalize: fn(Opaque) -> c_int;
    }
}

const SQLITE_OPEN: c_int = 0x2 | 0x4 | 0x8000;
const SQLITE_ROW: c_int = 100;
const SQLITE_DONE: c_int = 101;

/// Write-ahead log, which is synced by checkpoints only, and checkpoints where we say so; each thread a part of the cache.
const SETTINGS: &CStr =
    c"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-4096;
    CREATE TABLE IF NOT EXISTS held(number INTEGER PRIMARY KEY, content BLOB);";

struct Sqlite {
    calls: SqliteCalls,
    path: CString,
}

impl Sqlite {
    fn open(path: &Path) -> Option<Sqlite> {
        let path = CString::new(path.to_str().expect("a path of ours")).expect("no NUL");
        assert_eq!(CACHE, (4 * 4096) << 10, "four threads, as in the settings");
        Some(Sqlite { calls: SqliteCalls::load()?, path })
    }

    fn connected(&self) -> SqliteSession<'_> {
        let mut connection = NOTHING;
        // SAFETY: pointers to our own variables; the connection stays in this thread.
        unsafe {
            let code = (self.calls.sqlite3_open_v2)(self.path.as_ptr(), &mut connection, SQLITE_OPEN, null());
            assert_eq!(code, 0, "SQLite's code");
            (self.calls.sqlite3_busy_timeout)(connection, 60_000);
        }
        let mut session = SqliteSession { calls: &self.calls, connection, statements: [NOTHING; 3] };
        session.run(SETTINGS);
        session.statements = [
            c"SELECT number, content FROM held WHERE number = ?1",
            c"SELECT number, content FROM held WHERE number >= ?1 ORDER BY number LIMIT ?2",
            c"INSERT OR REPLACE INTO held VALUES (?1, ?2)",
        ]
        .map(|text| session.prepared(text));
        session
    }
}

impl Store for Sqlite {
    fn session(&self) -> Box<dyn Session + '_> {
        Box::new(self.connected())
    }

    fn sync(&self) {
        self.connected().run(c"PRAGMA wal_checkpoint(PASSIVE)");
    }
}

struct SqliteSession<'s> {
    calls: &'s SqliteCalls,
    connection: Opaque,
    /// One value, many, write.
    statements: [Opaque; 3],
}

impl SqliteSession<'_> {
    fn run(&self, text: &CStr) {
        // SAFETY: a connection of this thread.
        let code = unsafe { (self.calls.sqlite3_exec)(self.connection, text.as_ptr(), null(), null(), null()) };
        self.done(code);
    }

    fn done(&self, code: c_int) {
        // SAFETY: SQLite's own text, which lasts until the next call.
        let says = || unsafe { CStr::from_ptr((self.calls.sqlite3_errmsg)(self.connection)) };
        assert!(code == 0 || code == SQLITE_DONE, "{:?}", says());
    }

    fn prepared(&self, text: &CStr) -> Opaque {
        let mut statement = NOTHING;
        // SAFETY: a text with its end, and a pointer to our own variable.
        let code =
            unsafe { (self.calls.sqlite3_prepare_v2)(self.connection, text.as_ptr(), -1, &mut statement, null()) };
        self.done(code);
        statement
    }

    /// Shows the rows of a statement.
    fn rows(&mut self, statement: Opaque, given: &[u64], see: &mut dyn FnMut(u64, &[u8])) {
        let calls = self.calls;
        // SAFETY: a statement of this thread; a row's bytes are looked at before the next step.
        unsafe {
            for (place, value) in (1..).zip(given) {
                self.done((calls.sqlite3_bind_int64)(statement, place, *value as i64));
            }
            loop {
                let code = (calls.sqlite3_step)(statement);
                if code != SQLITE_ROW {
                    self.done(code);
                    break;
                }
                let (bytes, length) =
                    ((calls.sqlite3_column_blob)(statement, 1), (calls.sqlite3_column_bytes)(statement, 1));
                let key = (calls.sqlite3_column_int64)(statement, 0) as u64;
                see(key, std::slice::from_raw_parts(bytes.cast(), length as usize));
            }
            self.done((calls.sqlite3_reset)(statement));
        }
    }
}

impl Drop for SqliteSession<'_> {
    fn drop(&mut self) {
        // SAFETY: used no more.
        unsafe {
            self.statements.iter().for_each(|statement| _ = (self.calls.sqlite3_finalize)(*statement));
            (self.calls.sqlite3_close)(self.connection);
        }
    }
}

impl Session for SqliteSession<'_> {
    fn read(&mut self, key: u64, see: &mut dyn FnMut(&[u8])) -> bool {
        let mut found = false;
        self.rows(self.statements[0], &[key], &mut |_, bytes| {
            found = true;
            see(bytes);
        });
        found
    }

    fn scan(&mut self, from: u64, count: u64, see: &mut dyn FnMut(u64, &[u8])) {
        self.rows(self.statements[1], &[from, count], see);
    }

    fn write(&mut self, pairs: &mut dyn Iterator<Item = (u64, Vec<u8>)>) {
        self.run(c"BEGIN IMMEDIATE");
        let statement = self.statements[2];
        for (key, value) in pairs {
            // SAFETY: SQLite reads the bytes in the step, before they are gone (no destructor: SQLITE_STATIC).
            unsafe {
                self.done((self.calls.sqlite3_bind_int64)(statement, 1, key as i64));
                let length = value.len() as c_int;
                self.done((self.calls.sqlite3_bind_blob)(statement, 2, value.as_ptr().cast(), length, null()));
                self.done((self.calls.sqlite3_step)(statement));
                self.done((self.calls.sqlite3_reset)(statement));
            }
        }
        self.run(c"COMMIT");
    }
}
