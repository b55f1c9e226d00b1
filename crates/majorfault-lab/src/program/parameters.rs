//! Parameters of a program: `{NAME}` in its command stands for each of some values in turn.

use majorfault::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The most commands that lists of values may make.
const MOST: usize = 64;

/// One choice of values: each parameter's name and value. Without parameters there is one variant, and it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterValues {
    /// Names and values, in the order of the command line.
    pub given: Vec<(String, String)>,
}

impl ParameterValues {
    /// Every choice of values from lists of a name and values with commas between them; the last name changes fastest.
    ///
    /// Errors: Invalid (a name without values, twice, or that `command` has nowhere in braces; too many choices).
    pub fn all(lists: &[(String, String)], command: &[OsString]) -> Result<Vec<ParameterValues>> {
        let mut all = vec![ParameterValues::default()];
        for (name, values) in lists {
            let is_there = command.iter().any(|word| find(word.as_bytes(), braced(name).as_bytes()).is_some());
            let why = match () {
                () if all[0].given.iter().any(|(other, _)| other == name) => "it is given twice",
                () if values.split(',').any(str::is_empty) => "a value is empty; write them with commas between: 1,2,4",
                () if is_twice(values) => "a value is there twice, and both would be one command; write it once",
                () if !is_there => "the command does not have it; write the name in braces where its values belong",
                () => {
                    all = all.iter().flat_map(|one| values.split(',').map(|value| one.with(name, value))).collect();
                    continue;
                }
            };
            return Err(Error::Invalid(format!("--parameter-list {name} {values}: {why}")));
        }
        match all.len() {
            0..=MOST => Ok(all),
            many => Err(Error::Invalid(format!(
                "--parameter-list: {many} commands are too many; at most {MOST} take turns"
            ))),
        }
    }

    fn with(&self, name: &str, value: &str) -> ParameterValues {
        let given = self.given.iter().cloned().chain([(name.to_owned(), value.to_owned())]);
        ParameterValues { given: given.collect() }
    }

    /// The words with its values in place of the names in braces.
    pub fn filled<'w>(&self, words: impl IntoIterator<Item = &'w OsString>) -> Vec<OsString> {
        words.into_iter().map(|word| self.given.iter().fold(word.clone(), put)).collect()
    }

    /// `of` with this variant's name before it.
    pub fn named(&self, of: &str) -> String {
        if self.given.is_empty() { of.to_owned() } else { format!("{self}: {of}") }
    }
}

impl fmt::Display for ParameterValues {
    /// `threads=4, size=1m`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.given.iter().map(|(name, value)| format!("{name}={value}")).collect();
        out.write_str(&words.join(", "))
    }
}

/// Whether one of the values is there twice.
fn is_twice(values: &str) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    !values.split(',').all(|value| seen.insert(value))
}

fn braced(name: &str) -> String {
    format!("{{{name}}}")
}

fn put(word: OsString, (name, value): &(String, String)) -> OsString {
    let (mut rest, sign, mut filled) = (word.as_bytes(), braced(name), Vec::new());
    while let Some(at) = find(rest, sign.as_bytes()) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(OsStr::new(value).as_bytes());
        rest = &rest[at + sign.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

fn find(text: &[u8], sign: &[u8]) -> Option<usize> {
    text.windows(sign.len()).position(|window| window == sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(lists: &[(&str, &str)]) -> Vec<(String, String)> {
        lists.iter().map(|(name, values)| ((*name).to_owned(), (*values).to_owned())).collect()
    }

    fn command(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn every_choice_of_values_is_one_command() {
        let words = command(&["sort", "--parallel={threads}", "-S{size}", "{threads}{threads}.txt"]);

        let all = ParameterValues::all(&lists(&[("threads", "1,2"), ("size", "1m,64m")]), &words).unwrap();

        let filled: Vec<Vec<OsString>> = all.iter().map(|one| one.filled(&words)).collect();
        assert_eq!(filled.len(), 4);
        assert_eq!(filled[1], command(&["sort", "--parallel=1", "-S64m", "11.txt"]));
        assert_eq!(filled[2], command(&["sort", "--parallel=2", "-S1m", "22.txt"]));
        assert_eq!(
            (all[1].to_string(), all[1].named("assist")),
            ("threads=1, size=64m".into(), "threads=1, size=64m: assist".into())
        );
    }

    #[test]
    fn without_parameters_the_command_is_as_it_is() {
        let words = command(&["echo", "{threads}"]);

        let all = ParameterValues::all(&[], &words).unwrap();

        assert_eq!(all, [ParameterValues::default()]);
        assert_eq!((all[0].filled(&words), all[0].named("untouched")), (words, "untouched".to_owned()));
    }

    #[test]
    fn bytes_that_are_no_text_stay_as_they_are() {
        let words = vec![OsString::from_vec(b"\xff{n}\xfe".to_vec())];

        let all = ParameterValues::all(&lists(&[("n", "7")]), &words).unwrap();

        assert_eq!(all[0].filled(&words)[0].as_bytes(), b"\xff7\xfe");
    }

    #[test]
    fn lists_that_make_no_sense_are_refused_with_what_to_do() {
        let words = command(&["prog", "{a}", "{b}"]);
        let refusal = |given: &[(&str, &str)]| ParameterValues::all(&lists(given), &words).unwrap_err().to_string();

        assert!(refusal(&[("c", "1")]).contains("write the name in braces"));
        assert!(refusal(&[("a", "1,,2")]).contains("a value is empty"));
        assert!(refusal(&[("a", "1,2,1")]).contains("a value is there twice"));
        assert!(refusal(&[("a", "1"), ("a", "2")]).contains("it is given twice"));
        let nine = "1,2,3,4,5,6,7,8,9";
        assert!(refusal(&[("a", nine), ("b", nine)]).contains("81 commands are too many"));
        assert_eq!(
            ParameterValues::all(&lists(&[("a", "1,2,3,4,5,6,7,8"), ("b", "1,2,3,4,5,6,7,8")]), &words).unwrap().len(),
            64
        );
    }
}
