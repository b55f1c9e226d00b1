//! The adapter that makes redb run on a pooled file: all there is to it.

use majorfault::pool::PooledFile;
use redb::StorageBackend;
use std::io;

#[derive(Debug)]
pub struct OnPool(pub PooledFile);

impl StorageBackend for OnPool {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len())
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out).map_err(io::Error::other)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len).map_err(io::Error::other)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync().map_err(io::Error::other)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data).map_err(io::Error::other)
    }
}
