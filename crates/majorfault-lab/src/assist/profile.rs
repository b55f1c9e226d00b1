//! What was learnt about a program's files, kept for its next run.

use super::AssistedFile;
use majorfault::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

/// What the file says it is.
const FORMAT: &str = "majorfault profile 1";

/// Faults in a file after which a stride that was not found again is forgotten.
const FORGETTING: u64 = 64;

/// The strides of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    format: String,
    /// Bytes from row to row, by the file's path.
    strides: BTreeMap<String, u64>,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile { format: FORMAT.to_owned(), strides: BTreeMap::new() }
    }
}

impl Profile {
    /// The profile in a file; an empty one where there is no file, or an empty file.
    ///
    /// Errors: Io; Invalid (the file is something else: it will not be replaced).
    pub fn read(path: &Path) -> Result<Profile> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Profile::default()),
            Err(error) => return Err(Error::io("read the profile", path, error)),
        };
        if text.is_empty() {
            return Ok(Profile::default());
        }
        let found: Option<Profile> = serde_json::from_str(&text).ok();
        found
            .filter(|profile| profile.format == FORMAT)
            .ok_or_else(|| Error::Invalid(format!("{} is no profile ({FORMAT}); name another file", path.display())))
    }

    /// The stride that a file had.
    pub fn stride(&self, path: &str) -> Option<u64> {
        self.strides.get(path).copied().filter(|stride| *stride > 0)
    }

    /// Takes over what a run found: the strides that were proven; those of files that had many faults and no stride are forgotten.
    pub fn learn(&mut self, files: &[AssistedFile]) {
        for file in files {
            match file.proved {
                Some(stride) => drop(self.strides.insert(file.path.clone(), stride)),
                None if file.faults >= FORGETTING => drop(self.strides.remove(&file.path)),
                None => {}
            }
        }
    }

    /// Writes it in place of the one before, as a whole or not at all.
    ///
    /// Errors: Io.
    pub fn write(&self, path: &Path) -> Result<()> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let failed = |error| Error::io("write the profile", path, error);
        let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
        serde_json::to_writer_pretty(&mut file, self).map_err(|error| failed(error.into()))?;
        file.write_all(b"\n").map_err(failed)?;
        file.persist(path).map(drop).map_err(|error| failed(error.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, faults: u64, proved: Option<u64>) -> AssistedFile {
        AssistedFile { path: path.to_owned(), faults, proved, ..AssistedFile::default() }
    }

    #[test]
    fn what_was_learnt_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let mut profile = Profile::read(&path).unwrap();

        profile.learn(&[file("/a b", 1, Some(65536)), file("/c", 1000, None)]);
        profile.write(&path).unwrap();

        let again = Profile::read(&path).unwrap();
        assert_eq!((again.stride("/a b"), again.stride("/c")), (Some(65536), None));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_stride_is_forgotten_where_64_faults_have_none_and_replaced_where_they_have_another() {
        let mut profile = Profile::default();
        profile.learn(&[file("/a", 9, Some(4096)), file("/b", 9, Some(4096)), file("/c", 9, Some(4096))]);

        profile.learn(&[file("/a", 63, None), file("/b", 64, None), file("/c", 64, Some(8192))]);

        assert_eq!(["/a", "/b", "/c"].map(|path| profile.stride(path)), [Some(4096), None, Some(8192)]);
    }

    #[test]
    fn another_file_is_not_taken_for_a_profile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        for text in ["my data", "{}", r#"{"format": "majorfault profile 2", "strides": {}}"#] {
            fs::write(&path, text).unwrap();
            assert!(Profile::read(&path).unwrap_err().to_string().contains("is no profile"));
        }
        fs::write(&path, "").unwrap();
        assert_eq!(Profile::read(&path).unwrap(), Profile::default());
    }

    #[test]
    fn a_stride_of_nothing_is_none() {
        let profile = Profile { strides: BTreeMap::from([("/a".to_owned(), 0)]), ..Profile::default() };

        assert_eq!(profile.stride("/a"), None);
    }
}
