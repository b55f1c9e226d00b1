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
    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_at(offset, &mut bytes).map_err(io::Error::other)?;
        Ok(bytes)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len).map_err(io::Error::other)
    }
    fn sync_data(&self, _eventual: bool) -> io::Result<()> {
        self.0.sync().map_err(io::Error::other)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data).map_err(io::Error::other)
    }
}
