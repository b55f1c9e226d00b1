//! Paths in JSON: as text, and where they are not UTF-8 as their bytes in hexadecimal beside a text for people.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One path as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes {
        /// What can be read of it.
        about: String,
        /// Its bytes in hexadecimal, which alone count.
        bytes: String,
    },
}

pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| written(path)))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    let all = Vec::<Written>::deserialize(deserializer)?;
    all.into_iter().map(|one| read(one).map_err(serde::de::Error::custom)).collect()
}

fn written(path: &Path) -> Written {
    let hex = |byte: &u8| format!("{byte:02x}");
    match path.to_str() {
        Some(text) => Written::Text(text.to_owned()),
        None => Written::Bytes {
            about: path.display().to_string(),
            bytes: path.as_os_str().as_bytes().iter().map(hex).collect(),
        },
    }
}

fn read(written: Written) -> Result<PathBuf, String> {
    let bytes = match written {
        Written::Text(text) => return Ok(text.into()),
        Written::Bytes { bytes, .. } => bytes,
    };
    let pairs = bytes.as_bytes().chunks(2);
    let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let is_whole = |pair: &[u8]| pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
    let all: Option<Vec<u8>> = pairs.map(|pair| byte(pair).filter(|_| is_whole(pair))).collect();
    all.map(|all| OsString::from_vec(all).into()).ok_or_else(|| format!("\"{bytes}\" is not a path in hexadecimal"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder(#[serde(with = "super")] Vec<PathBuf>);

    fn path(bytes: &[u8]) -> PathBuf {
        OsString::from_vec(bytes.to_vec()).into()
    }

    #[test]
    fn a_path_is_text_where_it_can_be_and_its_bytes_where_not() {
        let holder = Holder(vec![path(b"/data/my \"file\""), path(b"caf\xe9")]);

        let text = serde_json::to_string(&holder).unwrap();

        assert_eq!(text, "[\"/data/my \\\"file\\\"\",{\"about\":\"caf\u{fffd}\",\"bytes\":\"636166e9\"}]");
    }

    #[test]
    fn bytes_that_are_none_are_an_error() {
        for bytes in ["6", "6g", "+1", "é"] {
            let text = serde_json::json!([{ "about": "", "bytes": bytes }]).to_string();

            assert!(serde_json::from_str::<Holder>(&text).is_err(), "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn every_path_reads_back(all in prop::collection::vec(prop::collection::vec(1u8..=255, 0..20), 0..4)) {
            let holder = Holder(all.iter().map(|bytes| path(bytes)).collect());

            let back: Holder = serde_json::from_str(&serde_json::to_string(&holder).unwrap()).unwrap();

            prop_assert_eq!(back, holder);
        }
    }
}
