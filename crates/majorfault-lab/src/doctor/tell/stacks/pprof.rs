//! Stacks as a profile in pprof's format (github.com/google/pprof, proto/profile.proto, of which the messages here are the parts in use).

use super::NamedStack;
use flate2::{Compression, GzBuilder};
use prost::Message;
use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

/// What a profile of ours is told by, in the header of the compressed file.
pub const COMMENT: &str = "majorfault stacks";

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

/// Both numbers are places in the table of strings.
#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// A profile in the making.
#[derive(Default)]
struct Builder {
    profile: Profile,
    strings: HashMap<String, i64>,
    /// A function and its location have the same number, from 1 on.
    functions: HashMap<String, u64>,
}

/// Faults and waits of each stack, with the process and the file as labels.
pub fn encode(stacks: &[NamedStack], watched: Duration) -> Vec<u8> {
    let bytes = built(stacks, watched).encode_to_vec();
    let mut packed = GzBuilder::new().comment(COMMENT).write(Vec::new(), Compression::default());
    packed.write_all(&bytes).and_then(|()| packed.finish()).expect("memory takes every byte")
}

fn built(stacks: &[NamedStack], watched: Duration) -> Profile {
    let mut builder = Builder::default();
    // The first string is the empty one.
    builder.string("");
    let types = [("faults", "count"), ("waited", "nanoseconds")];
    builder.profile.sample_type =
        types.map(|(name, unit)| ValueType { r#type: builder.string(name), unit: builder.string(unit) }).to_vec();
    builder.profile.default_sample_type = builder.string("waited");
    builder.profile.duration_nanos = watched.as_nanos() as i64;
    stacks.iter().for_each(|stack| builder.add(stack));
    builder.profile
}

impl Builder {
    fn add(&mut self, stack: &NamedStack) {
        let NamedStack { process, file, names, faults, waited_ns } = stack;
        let location_id = names.iter().rev().map(|name| self.location(name)).collect();
        let labels = [("process", process), ("file", file)];
        let label = labels.map(|(key, value)| Label { key: self.string(key), str: self.string(value) }).to_vec();
        self.profile.sample.push(Sample { location_id, value: vec![*faults as i64, *waited_ns as i64], label });
    }

    fn location(&mut self, name: &str) -> u64 {
        if let Some(known) = self.functions.get(name) {
            return *known;
        }
        let id = self.functions.len() as u64 + 1;
        self.functions.insert(name.to_owned(), id);
        let name = self.string(name);
        self.profile.function.push(Function { id, name });
        self.profile.location.push(Location { id, line: vec![Line { function_id: id }] });
        id
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let at = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::super::stack;
    use super::*;
    use std::io::Read;

    fn read_back(packed: &[u8]) -> Profile {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        Profile::decode(&bytes[..]).unwrap()
    }

    #[test]
    fn a_profile_has_faults_and_waits_of_each_stack_with_its_file() {
        let stacks = [stack("/a", &["main", "scan"], 3, 2500), stack("/b", &["main"], 1, 0)];

        let profile = read_back(&encode(&stacks, Duration::from_secs(2)));

        let text = |at: i64| profile.string_table[at as usize].as_str();
        let function = |id: &u64| text(profile.function.iter().find(|it| it.id == *id).unwrap().name);
        let told = |sample: &Sample| {
            let lines = sample.location_id.iter().map(|id| {
                let location = profile.location.iter().find(|it| it.id == *id).unwrap();
                function(&location.line[0].function_id)
            });
            (lines.collect::<Vec<_>>(), sample.value.clone(), text(sample.label[1].str))
        };
        let samples: Vec<_> = profile.sample.iter().map(told).collect();
        assert_eq!(samples, [(vec!["scan", "main"], vec![3, 2500], "/a"), (vec!["main"], vec![1, 0], "/b")]);
        let types: Vec<_> = profile.sample_type.iter().map(|it| (text(it.r#type), text(it.unit))).collect();
        assert_eq!(types, [("faults", "count"), ("waited", "nanoseconds")]);
        assert_eq!((text(0), text(profile.default_sample_type), profile.duration_nanos), ("", "waited", 2_000_000_000));
    }
}
